"""Long backlogs: nothing is forgotten or doubled, and no turn is long, however many slots have come."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec
import pytest

from tests.actors.scheduler.recurring.slots import DAY, HOUR, MINUTE, accounted, all_occurrences, occurrences, slots_of
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.cron.rule import Rule
from tocsin.actors.scheduler.model.schedule_records import Occurrence
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, DefinitionRow
from tocsin.actors.scheduler.schedules.series import Next, before, next_of, unused
from tocsin.actors.scheduler.schedules.slots import Owed, Run, begun_anew, owed

NOW = 1_800_000_000_000


class Steps:
    """A pace of so many slots in one look."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = most

    def step(self) -> bool:
        self.left -= 1
        return self.left > 0


def defined(**given: object) -> DefinitionRow:
    row = DefinitionRow(uid="u", created_at=0, anchor=0, function_path="w:r")
    return msgspec.structs.replace(row, **given)


def looks(row: DefinitionRow, cursor: CursorRow, now: int, most: int = 50) -> tuple[list[Owed], CursorRow]:
    """Look after look until nothing is left."""
    found: list[Owed] = []
    while True:
        found.append(owed(row, cursor, next_of(row), now, Steps(most)))
        cursor = found[-1].cursor
        if not found[-1].more:
            return found, cursor
        assert len(found) < 20_000, "it does not come to an end"


def walked(following: Next, last: int, now: int) -> list[int]:
    found: list[int] = []
    while (slot := following(found[-1] if found else last)) is not None and slot <= now:
        found.append(slot)
    return found


def ended(look: Owed) -> list[Run]:
    """Runs of slots without a job of their own: also those for which a job stands."""
    return [*look.runs, *(Run(*piece, "coalesced") for fire in look.fires for piece in fire.pieces)]


def ends_of(found: Sequence[Owed], all_slots: Sequence[int]) -> dict[int, str]:
    """By slot: what became of it; each may end once only."""
    ends: dict[int, str] = {}
    for look in found:
        for run in ended(look):
            inside = [slot for slot in all_slots if run.first <= slot <= run.last]
            assert run.count is None or len(inside) == run.count
            for slot in inside:
                assert slot not in ends
                ends[slot] = run.reason or run.state
        for fire in look.fires:
            assert fire.slot not in ends
            ends[fire.slot] = "fired"
    return ends


# ---- What is owed, without a host ----------------------------------------------------------------

RULES: list[Callable[[], DefinitionRow]] = [
    lambda: defined(cron="* * * * *"),
    lambda: defined(cron="*/7 9-17 * * mon-fri", timezone="Europe/Berlin"),
    lambda: defined(cron="0 * * * *", timezone="America/New_York"),
    lambda: defined(every_ms=61_000, anchor=NOW - 3 * DAY),
]


@pytest.mark.parametrize("seed", range(24))
def test_every_slot_of_a_backlog_ends_once_whatever_the_page(seed: int) -> None:
    dice = random.Random(seed)
    row = msgspec.structs.replace(
        RULES[seed % len(RULES)](),
        misfire=dice.choice(("skip", "one", "all", "all")),
        catch_up_limit=dice.choice((None, 1, 7, 100)),
        grace_ms=dice.choice((0, MINUTE, 2 * HOUR)),
    )
    last = NOW - dice.randrange(2 * DAY)
    all_slots = walked(next_of(row), last, NOW)
    found, cursor = looks(row, CursorRow(1, last), NOW, dice.choice((1, 3, 50, 10_000)))
    ends = ends_of(found, all_slots)

    assert list(ends) == sorted(ends) and set(ends) == set(all_slots)
    assert cursor.fire_to is None and cursor.next_slot == next_of(row)(NOW)
    late = [slot for slot in all_slots if slot < NOW - row.grace_ms]
    on_time = all_slots[len(late) :]
    fired = [slot for slot, how in ends.items() if how == "fired"]
    if row.misfire == "one":
        assert fired == all_slots[-1:]
    elif row.misfire == "skip":
        assert fired == on_time
    elif row.catch_up_limit is None:
        assert fired == all_slots
    else:
        assert fired == [*late[-row.catch_up_limit :], *on_time]


@pytest.mark.parametrize("misfire", ["skip", "one", "all"])
def test_a_year_of_seconds_is_decided_in_a_few_looks_and_counted(misfire: str) -> None:
    """Nobody walks nine million slots."""
    row = defined(cron="* * 0-6 * * *", misfire=misfire, catch_up_limit=5)
    found, cursor = looks(row, CursorRow(1, NOW - 366 * DAY), NOW, 400)
    [run] = [run for look in found for run in ended(look)]
    fired = [fire.slot for look in found for fire in look.fires]
    due = walked(next_of(row), NOW - 3 * HOUR, NOW)  # the present lies at 08:00, the last slot is 06:59:59

    assert len(found) <= 2 and run.count == 366 * 7 * 3_600 - len(fired)
    assert run.first == next_of(row)(NOW - 366 * DAY)
    assert fired == {"skip": [], "one": due[-1:], "all": due[-5:]}[misfire]
    assert run.last == (due[-1] if misfire == "skip" else before(next_of(row), fired[0]))
    assert cursor.last == due[-1] and cursor.next_slot == next_of(row)(NOW)


@pytest.mark.parametrize("limit", [1, 2, 20, 100, 1_000])
@pytest.mark.parametrize(
    ("cron", "timezone"),
    [
        ("* * * * *", "Asia/Tokyo"),
        ("*/7 9-17 * * mon-fri", "Europe/Berlin"),
        ("59 59 23 28-31 * *", "America/New_York"),
        ("* * * 1 * *", "UTC"),
        ("0 0 1 1 *", "UTC"),
    ],
)
def test_the_newest_of_a_backlog_are_found_from_the_top(limit: int, cron: str, timezone: str) -> None:
    row = defined(cron=cron, timezone=timezone)
    series = next_of(row)
    first, top = series(NOW - 40 * 366 * DAY), before(series, NOW)
    assert first is not None
    whole = series.count(first, top)
    start = series.back(first, top, min(limit, whole or 0))

    assert series.count(start, top) == min(limit, whole or 0) and series(start - 1) == start


def test_what_lies_within_a_backlog_and_has_a_row_already_is_not_counted() -> None:
    """The clock was ahead, and some of them became jobs there."""
    row = defined(cron="* * * * *", misfire="one")
    used = {NOW - n * MINUTE for n in (0, 7, 8, 300)} | {NOW - 31_000}
    [look] = [owed(row, CursorRow(1, NOW - DAY), unused(next_of(row), used), NOW, Steps(50))]

    [fire] = look.fires
    assert fire.slot == NOW - MINUTE and fire.coalesced == 1_440 - 4 - 1


@pytest.mark.parametrize("aim", [None, (NOW - 30 * MINUTE, 70)])
def test_a_backlog_that_an_earlier_version_was_counting_is_decided_as_a_whole(aim: tuple[int, int] | None) -> None:
    row = defined(cron="* * * * *", misfire="all", catch_up_limit=100)
    first = NOW - DAY + MINUTE
    counting = CursorRow(1, NOW - HOUR, NOW - HOUR + MINUTE, missed_from=first, missed=1_380, aim=aim)
    counting = msgspec.structs.replace(counting, fire_to=None if aim is None else NOW - MINUTE)
    found, cursor = looks(row, begun_anew(counting), NOW)
    ends = ends_of(found, walked(next_of(row), NOW - DAY, NOW))

    assert set(ends) == set(walked(next_of(row), NOW - DAY, NOW)) and cursor.last == NOW
    assert sum(how == "fired" for how in ends.values()) == 102, "a hundred that are late, two that are on time"
    assert (cursor.missed_from, cursor.missed, cursor.aim, cursor.fire_to) == (None, 0, None, None)


@pytest.mark.parametrize("misfire", ["skip", "one", "all"])
@pytest.mark.parametrize("timezone", ["UTC", "America/New_York"])
def test_ten_years_take_no_more_steps_than_a_day(misfire: str, timezone: str) -> None:
    row = defined(cron="* * * * *", timezone=timezone, misfire=misfire, catch_up_limit=100)

    def steps(behind: int) -> int:
        pace = Steps(10_000)
        owed(row, CursorRow(1, NOW - behind), next_of(row), NOW, pace)
        return 10_000 - pace.left

    assert steps(3_650 * DAY) <= steps(DAY) + 5 < 250


@pytest.mark.parametrize("guess", [1, 1_000, DAY, 500 * DAY])
def test_the_slot_before_an_instant_is_found_whatever_is_guessed(guess: int) -> None:
    for make in RULES:
        following = next_of(make())
        some = walked(following, NOW - DAY, NOW)
        assert [before(following, slot, guess) for slot in some[1::9]] == some[:-1:9]
        assert before(following, NOW + 1, guess) == some[-1]


def test_the_limit_of_a_catch_up_counts_only_what_is_late() -> None:
    """Four slots within the grace, and a limit of one: all are on time."""
    row = defined(every_ms=10_000, misfire="all", catch_up_limit=1)
    [look], _ = looks(row, CursorRow(1, NOW - 35_000), NOW)

    assert [fire.late for fire in look.fires] == [False] * 4 and look.runs == []


# ---- Years down, many at once --------------------------------------------------------------------

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca",
    "America/Sao_Paulo", "Asia/Tokyo", "Pacific/Chatham", "Europe/Dublin",
)  # fmt: skip


@pytest.mark.parametrize("days", [365, 3_650])
@pytest.mark.parametrize(("misfire", "limit"), [("skip", 100), ("one", 100), ("all", 20)])
def test_twenty_schedules_that_are_years_behind_have_all_fired_within_a_second(
    misfire: str, limit: int, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of minutes, in ten zones. Counted in steps, of some thirty microseconds each, not in time."""
    steps = [0]
    next_ms, count = Rule.next_ms, Rule.count

    def next_counted(self: Rule, after_ms: int) -> int | None:
        steps[0] += 1
        return next_ms(self, after_ms)

    def count_counted(self: Rule, first_ms: int, last_ms: int) -> int | None:
        steps[0] += 1
        return count(self, first_ms, last_ms)

    @on_simulated_host(lanes=64)
    async def run(sim: SimulatedHost) -> None:
        for n in range(20):
            cron = "* * * * *" if n < 10 else "1-59/2 * * * *"
            await sim.jobs.schedules.put(
                f"s{n}", "work:run", cron=cron, timezone=ZONES[n % 10], misfire=misfire, catch_up_limit=limit,
                overlap="allow",
            )  # fmt: skip
        await sim.close()
        sim.clock.step(days * DAY)
        monkeypatch.setattr(Rule, "next_ms", next_counted)
        monkeypatch.setattr(Rule, "count", count_counted)
        await sim.open()
        opened = sim.now
        computed: list[int] = []
        while len({one.body["schedule"]["name"] for one in sim.deliveries}) < 20 and sim.now < opened + 130_000:
            await sim.sleep(0.05)
            computed.append(steps[0])
        until_fired = 120_500 if misfire == "skip" else 1_000  # what was missed is skipped: those that come next
        assert sim.now - opened <= until_fired and len(sim.deliveries) >= 20
        assert computed[-1] < 20 * 400
        if misfire == "one":
            assert all(one.body["schedule"]["coalesced"] > days * 700 for one in sim.deliveries[:20])
        monkeypatch.undo()

    run()


# ---- A week down, minute by minute ---------------------------------------------------------------


async def down_by_the_minute(sim: SimulatedHost, days: int, misfire: str, **options: object) -> list[Occurrence]:
    await sim.jobs.schedules.put("x", "work:run", cron="* * * * *", misfire=misfire, **options)  # type: ignore[arg-type]
    await sim.sleep(90)
    await sim.close()
    sim.receiver.deliveries.clear()
    await sim.sleep((days * DAY - 90_000) / 1000)
    await sim.open(occurrences_kept=20_000)
    await sim.sleep(40)
    return await all_occurrences(sim)


@on_simulated_host(occurrences_kept=20_000)
async def test_a_week_of_minutes_down_with_misfire_one(sim: SimulatedHost) -> None:
    first, run, fired = await down_by_the_minute(sim, 7, "one")

    assert first.state == "fired" and (run.state, run.slot) == ("coalesced", first.slot + MINUTE)
    assert fired.coalesced == run.count and fired.slot == (run.until or 0) + MINUTE
    assert 2 + (run.count or 0) == 7 * 24 * 60
    assert slots_of(sim.deliveries) == [fired.slot]


@on_simulated_host(occurrences_kept=20_000)
async def test_a_week_of_minutes_down_with_misfire_skip(sim: SimulatedHost) -> None:
    first, run, *on_time = await down_by_the_minute(sim, 7, "skip", overlap="allow")

    assert (first.state, run.state, run.reason) == ("fired", "skipped", "misfire")
    assert 1 + (run.count or 0) + len(on_time) == 7 * 24 * 60 and len(on_time) <= 2
    # Both were due when the host opened and were sent at that instant, so which arrived first is the loop's draw.
    assert sorted(slots_of(sim.deliveries)) == [one.slot for one in on_time]


@on_simulated_host(occurrences_kept=20_000)
async def test_a_week_of_minutes_down_with_misfire_all(sim: SimulatedHost) -> None:
    first, run, *fired = await down_by_the_minute(sim, 7, "all", overlap="allow")

    assert (run.state, run.reason) == ("skipped", "catch_up")
    assert len([one for one in fired if one.lateness_ms > MINUTE]) == 100
    assert 1 + (run.count or 0) + len(fired) == 7 * 24 * 60
    await sim.sleep(60)
    arrived = slots_of(sim.deliveries)
    late = [one.slot for one in fired if one.lateness_ms > MINUTE]
    assert [slot for slot in arrived if slot in late] == late, "in order"
    assert first.slot + MINUTE == run.slot


@on_simulated_host(occurrences_kept=20_000)
async def test_two_days_of_minutes_down_with_misfire_all_and_no_limit(sim: SimulatedHost) -> None:
    fired = await down_by_the_minute(sim, 2, "all", overlap="allow", catch_up_limit=None)
    await sim.sleep(400)

    assert accounted(fired) == {"fired": 2 * 24 * 60}
    arrived = slots_of(sim.deliveries)
    late = [one.slot for one in fired[1:] if one.lateness_ms > MINUTE]
    assert len(set(arrived)) == len(arrived) and {one.slot for one in fired[1:]} <= set(arrived)
    assert len(late) > 2_800 and [slot for slot in arrived if slot <= late[-1]] == late, "in order, though spread"


@on_simulated_host()
async def test_an_edit_of_the_policy_in_the_middle_of_a_backlog_forgets_nothing(sim: SimulatedHost) -> None:
    """The count that was under way ends as skipped; then the new policy rules."""
    await sim.jobs.schedules.put("x", "work:run", cron="* * * * *", misfire="one")
    await sim.close()
    await sim.sleep(3 * 86_400)
    await sim.open()
    put = sim.jobs.schedules.put("x", "work:run", cron="* * * * *", misfire="all", catch_up_limit=None)
    await put
    await sim.sleep(400)
    found = await occurrences(sim, "x")
    counts = accounted(found)

    assert sum(counts.values()) == (sim.now - (found[0].slot - MINUTE)) // MINUTE
    assert sim.deliveries


@on_simulated_host()
async def test_a_pause_in_the_middle_of_a_backlog_forgets_nothing(sim: SimulatedHost) -> None:
    start = sim.now
    await sim.jobs.schedules.put("x", "work:run", cron="* * * * *", misfire="all", overlap="allow")
    await sim.close()
    await sim.sleep(86_400)
    await sim.open()
    await sim.jobs.schedules.pause("x")
    await sim.sleep(86_400)
    await sim.jobs.schedules.resume("x")
    await sim.sleep(630)
    found = await occurrences(sim, "x")

    assert sum(accounted(found).values()) == sim.now // MINUTE - start // MINUTE
    assert {one.reason for one in found} <= {"paused", "catch_up", None}
    paused = next(one for one in found if one.reason == "paused")
    assert (paused.count or 0) >= 1_440, "counted, though it took many turns"
