"""However much comes at once, a turn stays short and fits one commit, and everybody gets a turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.scheduler.recurring.slots import accounted, occurrences, slots_of
from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow, slot_prefix
from tocsin.actors.scheduler.schedules import allowance, process_due, purge, series
from tocsin.actors.scheduler.state import spread
from tocsin.dispatch.transport import Answer
from tocsin.storage.api import MAX_BATCH_KEYS, after
from tocsin.storage.memory import MemoryProvider


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each turn wrote, on its way to the store."""
    from tocsin.storage.combiner import Combiner

    sizes: list[int] = []
    submit = Combiner.submit

    def counted(self: Combiner, handle: Any, batch: Any) -> Any:
        sizes.append(len(batch.puts) + len(batch.deletes))
        return submit(self, handle, batch)

    monkeypatch.setattr(Combiner, "submit", counted)
    return sizes


async def register(sim: SimulatedHost, count: int, **options: Any) -> None:
    given = {"path": "work:run", **options}
    for start in range(0, count, 1000):
        many = [(f"s{n:05d}", given) for n in range(start, min(start + 1000, count))]
        await sim.jobs.schedules.register(f"o{start // 1000}", many)


def slot_rows(sim: SimulatedHost, name: str) -> int:
    prefix = slot_prefix(name)
    return len(sim.disk.maps["scheduler/t"].range(prefix, after(prefix), 10_000, False))


def test_many_backlogs_at_once_fit_their_commits(batches: list[int]) -> None:
    """25 schedules with a day of quarter hours each: 2,400 jobs, of some seven rows."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await register(sim, 25, cron="*/15 * * * *", misfire="all", overlap="allow", catch_up_limit=None)
        await sim.close()
        await sim.sleep(86_400)
        batches.clear()
        await sim.open()
        await sim.sleep(400)
        assert len({(one.body["schedule"]["name"], one.body["schedule"]["slot"]) for one in sim.deliveries}) >= 2_400

    run()
    assert max(batches) < MAX_BATCH_KEYS / 2


def test_many_schedules_trimmed_in_step_fit_their_commits(batches: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """They were made together, so they outgrow what is kept in the same minute."""
    monkeypatch.setattr(allowance, "ROWS", 200)

    @on_simulated_host(occurrences_kept=10)
    async def run(sim: SimulatedHost) -> None:
        await register(sim, 60, every="1m")
        batches.clear()
        await sim.sleep(40 * 60)
        assert {slot_rows(sim, f"o0:s{n:05d}") > 10 + 3 * 20 for n in range(60)} == {False}

    run()
    assert max(batches) < 200 + 60 * 12, "200 rows of trimming, and what 60 starts and ends take"


def test_many_histories_forgotten_in_step_fit_their_commits(
    batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "ROWS", 100)

    @on_simulated_host(look_again_s=3_600, idle_after_s=86_400)
    async def run(sim: SimulatedHost) -> None:
        await register(sim, 20, every="1m")
        await sim.jobs.schedules.trigger("o0:s00007", "k")
        await sim.sleep(45 * 60)
        await sim.jobs.schedules.register("o0", [], prune=True)
        await sim.sleep(29 * 86_400)
        batches.clear()
        await sim.sleep(2 * 86_400)
        rows = sim.disk.maps["scheduler/t"].range(b"\x01", b"\xff", 100, False)
        assert [key for key, _ in rows if not key.startswith((b"meta/", b"hist/")) and b"audit" not in key] == []

    run()
    assert max(batches) < 150


def test_a_turn_computes_so_many_slots_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 schedules with 600 missed slots each: a stop, or anybody else, never waits for more than a turn."""
    steps: list[int] = []
    next_of, whole = series.next_of, process_due.process_due

    def counting(row: DefinitionRow) -> series.Series:
        found = next_of(row)

        def following(after: int) -> int | None:
            steps[-1] += 1
            return found(after)

        def count(first: int, last: int) -> int | None:
            steps[-1] += 1
            return found.count(first, last)

        return series.Series(following, count)

    async def watched(*args: Any) -> int:
        steps.append(0)
        return await whole(*args)

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await register(sim, 200, every=1)
        await sim.close()
        await sim.sleep(600)
        monkeypatch.setattr(series, "next_of", counting)
        monkeypatch.setattr(process_due, "process_due", watched)
        await sim.open()
        await sim.sleep(3)
        assert len({one.body["schedule"]["name"] for one in sim.deliveries}) == 200
        assert min(one.body["schedule"].get("coalesced", 600) for one in sim.deliveries) >= 598

    run()
    assert (
        200 < sum(steps) < 200 * 100 and max(steps) <= allowance.STEPS + 2 * allowance.LEAST_STEPS + process_due.AT_ONCE
    )


@on_simulated_host()
async def test_large_args_of_a_backlog_fit_their_commits(sim: SimulatedHost) -> None:
    """100 occurrences of 200 KB are 20 MB; a commit takes 8."""
    await sim.jobs.schedules.put(
        "x", "work:run", {"text": "y" * 200_000}, cron="*/5 * * * *", misfire="all", overlap="allow"
    )
    await sim.close()
    await sim.sleep(86_400)
    await sim.open()
    await sim.sleep(200)

    assert accounted(await occurrences(sim, "x"))["fired"] >= 100
    assert len(set(slots_of(sim.deliveries))) >= 100


@on_simulated_host()
async def test_slots_held_back_with_large_args_start_when_all_end_at_once(sim: SimulatedHost) -> None:
    """60 of 200 KB: their live occurrences end in one turn."""
    ended = asyncio.Event()

    async def answer() -> Answer:
        await ended.wait()
        return OK

    sim.reply = lambda one: answer()
    options: dict[str, Any] = {"every": "10s", "overlap": "queue", "args": {"text": "y" * 200_000}}
    for owner in ("one", "other"):
        await sim.jobs.schedules.register(owner, [(f"s{n}", {"path": "work:run", **options}) for n in range(30)])
    await sim.sleep(25)
    assert len(sim.deliveries) == 60
    ended.set()
    await sim.sleep(2)

    assert len(sim.deliveries) == 120


@on_simulated_host()
async def test_a_long_backlog_delays_nobody_who_is_on_time(sim: SimulatedHost) -> None:
    """20 schedules are behind by a day of minutes; one is due every second."""
    await register(sim, 20, cron="* * * * *")
    await sim.close()
    await sim.sleep(86_400)
    await sim.open()
    await sim.jobs.schedules.put("brisk", "work:run", every=1, overlap="allow")
    started = sim.now
    await sim.sleep(20)
    brisk = [one for one in sim.deliveries if one.body["schedule"]["name"] == "brisk"]

    late = [int(one.headers["webhook-timestamp"]) * 1000 - one.body["scheduledFor"] for one in brisk]
    assert len(brisk) >= 19 and max(late) <= 1_000 and brisk[0].body["scheduledFor"] == started + 1_000


@on_simulated_host(lanes=6)
async def test_five_hundred_overdue_schedules_are_spread(sim: SimulatedHost) -> None:
    await register(sim, 500, every="6h", misfire="one")
    await sim.jobs.schedules.put("minutely", "work:run", cron="* * * * *", misfire="skip", grace=5)
    await sim.close()
    await sim.sleep(8 * 3600)
    await sim.open()
    opened = sim.now - 1_800_000_000_000
    await sim.sleep(400)
    late = [at - opened for at, job in sim.arrivals if at >= opened]
    on_time = [one for one in sim.deliveries if one.body["schedule"]["name"] == "minutely"]

    assert len(late) >= 500 and max(map(late[1:].count, late)) <= spread.AT_ONCE
    assert sum(at < 1_000 for at in late) <= spread.AT_ONCE + 12 and late[-1] - late[0] > 40_000
    assert max(int(one.headers["webhook-timestamp"]) * 1000 - one.body["scheduledFor"] for one in on_time) <= 1_000


@on_simulated_host()
async def test_overdue_ones_that_expire_are_not_spread_past_their_time(sim: SimulatedHost) -> None:
    await register(sim, 300, every="1h", misfire="one", expires_after="10m")
    await sim.close()
    await sim.sleep(3600 + 585)
    await sim.open()
    await sim.sleep(60)

    assert len(sim.deliveries) == 300


@on_simulated_host()
async def test_a_prune_of_more_than_one_commit_holds_is_done_in_pages(sim: SimulatedHost) -> None:
    await register(sim, 250, cron="0 0 1 1 *")
    kept = [("new", {"path": "work:run", "every": 60})]
    orphaned = await sim.jobs.schedules.register("o0", kept)
    removed = await sim.jobs.schedules.register("o0", kept, prune=True)

    assert len(orphaned.orphaned) == len(removed.removed) == 250 and orphaned.removed == []
    assert [one.name for one in (await sim.jobs.schedules.list()).schedules] == ["o0:new"]


@on_simulated_host()
async def test_a_slot_held_back_outlives_what_is_kept(sim: SimulatedHost) -> None:
    """The live occurrence takes so long that a thousand later slots are skipped."""
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=1, overlap="queue", pool="p")
    await sim.sleep(1_500)
    fired, queued, skipped = await occurrences(sim, "x")
    await sim.jobs.schedules.pause("x")
    await sim.jobs.schedules.resume("x")
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(2)

    assert (fired.state, queued.state, skipped.reason) == ("fired", "queued", "overlap")
    assert (skipped.count or 0) > 1_490, "what follows one another is one row"
    assert slots_of(sim.deliveries)[:2] == [fired.slot, queued.slot]


@on_simulated_host(max_jobs=3)
async def test_slots_beyond_the_quota_are_recorded(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=10, overlap="allow", pool="p")
    await sim.sleep(95)
    *fired, run = await occurrences(sim, "x")

    assert [one.state for one in fired] == ["fired"] * 3
    assert (run.state, run.reason, run.count) == ("skipped", "quota", 6)


@on_simulated_host()
async def test_while_the_instance_is_paused_jobs_are_made_and_wait(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=10)
    await sim.jobs.pause()
    await sim.sleep(65)
    assert sim.deliveries == []
    await sim.jobs.pause(False)
    await sim.sleep(1)

    assert len(sim.deliveries) == 1
    assert accounted(await occurrences(sim, "x")) == {"fired": 1, "skipped": 5}


@on_simulated_host()
async def test_a_full_store_makes_no_occurrence_and_catches_up_later(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=10, misfire="all", overlap="allow")
    await sim.jobs.run_after(30, "work:late", expires_at=sim.now + 40_000)
    await sim.sleep(15)
    provider = sim.host.runtime.provider
    assert isinstance(provider, MemoryProvider)
    provider.full = True
    before = provider.stats().rows_put
    await sim.sleep(300)
    while_full = provider.stats().rows_put - before
    assert len(await occurrences(sim, "x")) == 1
    assert await sim.jobs.list() is not None
    provider.full = False
    await sim.sleep(65)

    assert while_full < 10, "no job is made, and nothing is rewritten again and again"
    assert accounted(await occurrences(sim, "x"))["fired"] >= 37
    assert (await sim.jobs.status()).backlog == 0, "what expired meanwhile was seen"


@on_simulated_host()
async def test_an_erased_instance_leaves_no_row_of_its_schedules(sim: SimulatedHost) -> None:
    await register(sim, 20, every="10s", args={"text": "y" * 100_000})
    await sim.jobs.schedules.trigger("o0:s00001", "k")
    await sim.sleep(30)
    await sim.jobs.schedules.delete("o0:s00002")
    await sim.jobs.remove()
    await sim.sleep(60)
    rows = sim.disk.maps["scheduler/t"].range(b"\x01", b"\xff", 10, False)

    assert rows == []
    await sim.jobs.schedules.put("o0:s00001", "work:run", every=10)
    assert [one.name for one in (await sim.jobs.schedules.list()).schedules] == ["o0:s00001"]


def test_a_turn_gives_way_whatever_an_expression_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock ends a look, not only the number of its steps."""
    monkeypatch.setattr(allowance, "BUSY_MS", 0)

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.put("x", "work:run", cron="* * * * *", misfire="all", overlap="allow")
        await sim.close()
        await sim.sleep(3600)
        await sim.open()
        await sim.sleep(60)
        assert len(slots_of(sim.deliveries)) >= 60

    run()


@on_simulated_host()
async def test_schedules_with_large_args_are_listed_to_the_last(sim: SimulatedHost) -> None:
    """A page of them is more than a scan brings."""
    await register(sim, 30, cron="0 0 1 1 *", args={"text": "y" * 220_000})
    for start in range(30, 330, 30):
        many = [(f"s{n:05d}", {"path": "w", "cron": "0 0 1 1 *", "args": {"t": "y" * 200_000}}) for n in range(30)]
        await sim.jobs.schedules.register(f"p{start}", many)
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = await sim.jobs.schedules.list(limit=1000, cursor=cursor)
        names += [one.name for one in page.schedules]
        if not page.truncated:
            break
        cursor = page.cursor

    assert len(names) == len(set(names)) == 330
