"""Schedules of a host in virtual time: each slot once, whatever comes between."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.recurring.records import Occurrence
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidCronError, InvalidInputError, NotFoundError, UnknownTimezoneError

MINUTE = 60_000
HOUR = 3_600_000
DAY = 24 * HOUR


async def after(seconds: float, answer: Answer = OK) -> Answer:
    await asyncio.sleep(seconds)
    return answer


async def occurrences(stage: Stage, name: str) -> list[Occurrence]:
    """All that are kept, the oldest first."""
    return list((await stage.jobs.schedules.occurrences(name, limit=1000)).occurrences)[::-1]


def accounted(found: list[Occurrence]) -> Counter[str]:
    """How many slots ended in each way."""
    counts: Counter[str] = Counter()
    for one in found:
        counts[one.state] += 1 if one.until is None else one.count or 0
    return counts


def slots_of(deliveries: list[Delivery]) -> list[int]:
    return [one.body["schedule"]["slot"] for one in deliveries]


# ---- Firing --------------------------------------------------------------------------------------


@staged()
async def test_each_slot_becomes_one_callback_at_its_instant(stage: Stage) -> None:
    put = await stage.jobs.schedules.put("report", "reports:send", {"n": 1}, cron="*/5 * * * *")
    first = put.preview[0]
    await stage.sleep((first - stage.now) / 1000 + 16 * 60)

    assert put.revision == 1 and put.next_at == first and len(put.preview) == 5
    assert slots_of(stage.deliveries) == [first + n * 5 * MINUTE for n in range(4)]
    assert [one.body["scheduledFor"] for one in stage.deliveries] == slots_of(stage.deliveries)
    assert all(one.body["schedule"] == {"name": "report", "slot": one.body["scheduledFor"]} for one in stage.deliveries)
    assert stage.deliveries[0].body["args"] == {"n": 1} and stage.deliveries[0].body["functionPath"] == "reports:send"
    assert (
        max(at - one.body["scheduledFor"] for (at, _), one in zip(absolute(stage), stage.deliveries, strict=True))
        < 5_000
    )


def absolute(stage: Stage) -> list[tuple[int, str]]:
    return [(int(one.headers["webhook-timestamp"]) * 1000, one.id) for one in stage.deliveries]


@staged()
async def test_an_interval_counts_from_its_creation(stage: Stage) -> None:
    created = stage.now
    await stage.jobs.schedules.put("tick", "work:run", every=5400)
    await stage.sleep(5 * 3600)

    assert slots_of(stage.deliveries) == [created + n * 5_400_000 for n in (1, 2, 3)]


@staged()
async def test_a_one_time_rule_fires_once_and_is_completed(stage: Stage) -> None:
    at = stage.now + HOUR
    await stage.jobs.schedules.put("once", "work:run", at=at)
    await stage.sleep(2 * 3600)
    record = await stage.jobs.schedules.get("once")

    assert slots_of(stage.deliveries) == [at]
    assert record is not None and (record.state, record.next_at) == ("completed", None)
    await stage.jobs.schedules.put("once", "work:run", at=at)
    await stage.jobs.schedules.pause("once")
    await stage.jobs.schedules.resume("once")
    await stage.sleep(3600)
    assert len(stage.deliveries) == 1


@staged()
async def test_jitter_is_the_same_offset_at_every_slot(stage: Stage) -> None:
    for n in range(50):
        await stage.jobs.schedules.put(f"s{n}", "work:run", cron="0 * * * *", jitter=60)
    await stage.sleep(3 * 3600)

    offsets: dict[str, set[int]] = {}
    for one in stage.deliveries:
        schedule = one.body["schedule"]
        offsets.setdefault(schedule["name"], set()).add(one.body["scheduledFor"] - schedule["slot"])
    assert len(offsets) == 50 and all(len(found) == 1 for found in offsets.values())
    spread = sorted(found.pop() for found in offsets.values())
    assert 0 <= spread[0] < spread[-1] < MINUTE and spread[-1] - spread[0] > 30_000


# ---- Misfire -------------------------------------------------------------------------------------


async def down_for_a_week(stage: Stage, misfire: str, **options: object) -> list[Occurrence]:
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", misfire=misfire, **options)  # type: ignore[arg-type]
    await stage.sleep(90 * 60)
    await stage.close()
    before = len(stage.deliveries)
    await stage.sleep(7 * 86_400)
    await stage.open()
    await stage.sleep(20 * 60)
    del stage.receiver.deliveries[:before]
    return [one for one in await occurrences(stage, "x") if one.decided_at > stage.now - HOUR]


@staged()
async def test_a_week_down_with_misfire_one_is_one_job_for_all(stage: Stage) -> None:
    run, fired = await down_for_a_week(stage, "one")

    assert (run.state, run.count, run.reason) == ("coalesced", 167, None)
    assert (fired.state, fired.first_slot, fired.coalesced) == ("fired", run.slot, 167)
    assert run.until == fired.slot - HOUR
    [one] = stage.deliveries
    assert one.body["schedule"] == {"name": "x", "slot": fired.slot, "firstSlot": run.slot, "coalesced": 167}


@staged()
async def test_a_week_down_with_misfire_skip_is_recorded_and_fires_nothing(stage: Stage) -> None:
    [run] = await down_for_a_week(stage, "skip")

    assert (run.state, run.reason, run.count) == ("skipped", "misfire", 168)
    assert stage.deliveries == []
    await stage.sleep(3600)
    assert len(stage.deliveries) == 1


@staged()
async def test_a_week_down_with_misfire_all_fires_the_newest_in_order(stage: Stage) -> None:
    run, *fired = await down_for_a_week(stage, "all", overlap="allow", catch_up_limit=20)

    assert (run.state, run.reason, run.count) == ("skipped", "catch_up", 148)
    assert [one.state for one in fired] == ["fired"] * 20
    assert sorted(slots_of(stage.deliveries)) == [one.slot for one in fired]


@staged()
async def test_a_week_down_with_misfire_all_and_no_limit_fires_all(stage: Stage) -> None:
    fired = await down_for_a_week(stage, "all", overlap="allow", catch_up_limit=None)

    assert [one.state for one in fired] == ["fired"] * 168
    assert len(set(slots_of(stage.deliveries))) == 168


@staged()
async def test_a_slot_within_its_grace_is_on_time(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", misfire="skip", grace="10m")
    await stage.close()
    await stage.sleep(3600 + 5)
    await stage.open()
    await stage.sleep(60)
    states = [(one.state, one.reason) for one in await occurrences(stage, "x")]

    assert states in ([("fired", None)], [("skipped", "misfire")])


# ---- Overlap -------------------------------------------------------------------------------------


@staged()
async def test_a_slot_that_meets_a_live_occurrence_is_skipped(stage: Stage) -> None:
    stage.reply = lambda one: after(50)
    await stage.jobs.schedules.put("x", "work:run", every=30)
    await stage.sleep(5 * 60)
    found = await occurrences(stage, "x")

    assert [(one.state, one.reason) for one in found[:4]] == [
        ("fired", None), ("skipped", "overlap"), ("fired", None), ("skipped", "overlap"),
    ]  # fmt: skip


@staged()
async def test_a_retrying_occurrence_counts_as_live(stage: Stage) -> None:
    stage.reply = lambda one: Answer(500, {}, b"") if one.attempt == 1 else OK
    await stage.jobs.schedules.put("x", "work:run", every=20)
    await stage.sleep(61)

    assert [one.reason for one in await occurrences(stage, "x")] == [None, "overlap", None]


@staged()
async def test_one_slot_is_held_back_until_the_live_one_has_ended(stage: Stage) -> None:
    stage.reply = lambda one: after(50)
    await stage.jobs.schedules.put("x", "work:run", every=20, overlap="queue")
    await stage.sleep(65)
    held = [(one.state, one.reason) for one in await occurrences(stage, "x")]
    record = await stage.jobs.schedules.get("x")
    await stage.sleep(10)
    later = [(one.state, one.reason) for one in await occurrences(stage, "x")]

    assert held == [("fired", None), ("queued", None), ("skipped", "overlap")]
    assert record is not None and record.held_back is not None
    assert later[1] == ("fired", None)
    assert len(stage.deliveries) == 2


@staged()
async def test_overlaps_are_allowed_when_asked_for(stage: Stage) -> None:
    stage.reply = lambda one: after(50)
    await stage.jobs.schedules.put("x", "work:run", every=10, overlap="allow")
    await stage.sleep(45)
    record = await stage.jobs.schedules.get("x")

    assert len(stage.deliveries) == 4 and record is not None and record.live == 4


# ---- How occurrences end -------------------------------------------------------------------------


@staged()
async def test_a_slot_says_how_its_job_ended(stage: Stage) -> None:
    stage.reply = lambda one: Answer(410, {}, b"") if one.body["schedule"]["name"] == "dead" else OK
    schedules = stage.jobs.schedules
    await schedules.put("dead", "work:run", every=10, overlap="allow")
    await schedules.put("expired", "work:run", every=10, pool="closed", expires_after=5)
    await schedules.put("cancelled", "work:run", every=10, pool="closed")
    await stage.jobs.set_pool("closed", paused=True)
    await stage.sleep(11)
    [waiting] = await occurrences(stage, "cancelled")
    assert waiting.live and waiting.job_id is not None
    await stage.jobs.cancel(waiting.job_id)
    await stage.sleep(6)

    for name in ("dead", "expired", "cancelled"):
        assert (await occurrences(stage, name))[0].state == name
        record = await schedules.get(name)
        assert record is not None and record.live == 0
    [dead] = await occurrences(stage, "dead")
    stage.reply = lambda one: OK
    await stage.jobs.dead_retry(dead.job_id or "")
    await stage.sleep(1)
    assert (await occurrences(stage, "dead"))[0].state == "fired"
    record = await schedules.get("dead")
    assert record is not None and record.live == 0


@staged()
async def test_a_taken_id_is_recorded_and_the_next_slot_goes_on(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", every=10)
    await stage.sleep(11)
    [first] = await occurrences(stage, "x")
    assert first.job_id is not None
    taken = first.job_id.replace(f"{first.slot:015d}", f"{first.slot + 10_000:015d}")
    await stage.jobs.run_after("1h", "work:run", id=taken)
    await stage.sleep(20)

    assert [(one.state, one.reason) for one in await occurrences(stage, "x")] == [
        ("fired", None), ("skipped", "id_taken"), ("fired", None),
    ]  # fmt: skip


# ---- Changing ------------------------------------------------------------------------------------


@staged()
async def test_the_same_definition_again_changes_nothing(stage: Stage) -> None:
    first = await stage.jobs.schedules.put("x", "work:run", {"n": 1}, every="1h")
    await stage.sleep(600)
    again = await stage.jobs.schedules.put("x", "work:run", {"n": 1}, every="1h")

    assert again == first


@staged()
async def test_a_stale_revision_changes_nothing(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    await schedules.put("x", "work:run", cron="0 9 * * *")
    await schedules.put("x", "work:run", cron="0 10 * * *", revision=1)
    for change in (
        schedules.put("x", "work:run", cron="0 11 * * *", revision=1),
        schedules.pause("x", revision=1),
        schedules.resume("x", revision=3),
        schedules.delete("x", revision=1),
    ):
        with pytest.raises(ConflictError, match="is at revision 2"):
            await change
    record = await schedules.get("x")

    assert record is not None and (record.cron, record.revision) == ("0 10 * * *", 2)
    with pytest.raises(ConflictError, match="at revision 0"):
        await schedules.put("new", "work:run", every=60, revision=3)


@staged()
async def test_an_edit_fires_nothing_and_counts_from_now(stage: Stage) -> None:
    """Scenario M09."""
    schedules = stage.jobs.schedules
    await schedules.put("x", "work:run", cron="0 9 * * *")
    await stage.sleep(86_400)
    before = len(stage.deliveries)
    put = await schedules.put("x", "work:run", cron="0 22 * * *", timezone="America/New_York")
    await stage.sleep(60)

    assert len(stage.deliveries) == before
    assert put.next_at is not None and put.next_at > stage.now
    same = await schedules.put("x", "work:other", cron="0 22 * * *", timezone="America/New_York")
    assert (same.next_at, same.revision) == (put.next_at, 3)


@staged()
async def test_an_occurrence_keeps_what_was_defined_when_it_was_made(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    await stage.jobs.set_pool("p", paused=True)
    await schedules.put("x", "work:old", {"v": 1}, every=10, pool="p")
    await stage.sleep(11)
    await schedules.put("x", "work:new", {"v": 2}, every=10, pool="p")
    await schedules.delete("x")
    await stage.jobs.set_pool("p", paused=False)
    await stage.sleep(5)

    assert [(one.body["functionPath"], one.body["args"]) for one in stage.deliveries] == [("work:old", {"v": 1})]


@staged()
async def test_slots_that_pass_while_paused_are_skipped(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    await schedules.put("x", "work:run", every=60)
    await stage.sleep(61)
    paused = await schedules.pause("x")
    await stage.sleep(600)
    resumed = await schedules.resume("x")
    await stage.sleep(61)

    assert (paused.state, paused.next_at) == ("paused", None) and resumed.state == "active"
    assert [(one.state, one.reason, one.count) for one in await occurrences(stage, "x")] == [
        ("fired", None, None), ("skipped", "paused", 10), ("fired", None, None),
    ]  # fmt: skip


@staged()
async def test_paused_left_out_stays_as_it_is(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    await schedules.put("x", "work:run", every=60, paused=True)
    await schedules.put("x", "work:run", every=30)
    record = await schedules.get("x")

    assert record is not None and record.paused
    await stage.sleep(120)
    assert stage.deliveries == []


@staged()
async def test_a_trigger_runs_once_per_key_even_when_paused(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    await schedules.put("x", "work:run", cron="0 0 1 1 *", paused=True)
    first = await schedules.trigger("x", "k1")
    again = await schedules.trigger("x", "k1")
    other = await schedules.trigger("x")
    await stage.sleep(1)

    assert first.created and not again.created and (again.id, again.slot) == (first.id, first.slot)
    assert other.id != first.id and len(stage.deliveries) == 2
    found = await occurrences(stage, "x")
    assert [one.triggered for one in found] == [True, True]
    with pytest.raises(NotFoundError):
        await schedules.trigger("nothing")


@staged()
async def test_a_schedule_made_again_goes_on_with_its_revision_and_uses_no_slot_twice(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    at = stage.now + 5_000
    await schedules.put("x", "work:run", at=at)
    await stage.sleep(6)
    assert await schedules.delete("x") and not await schedules.delete("x")
    assert await schedules.get("x") is None
    made = await schedules.put("x", "work:run", at=at)
    await stage.sleep(60)

    assert made.revision == 2 and len(stage.deliveries) == 1


@staged()
async def test_deleting_may_cancel_what_is_pending(stage: Stage) -> None:
    await stage.jobs.set_pool("p", paused=True)
    await stage.jobs.schedules.put("x", "work:run", every=10, pool="p", overlap="allow")
    await stage.sleep(35)
    assert await stage.jobs.schedules.delete("x", cancel_pending=True)

    assert (await stage.jobs.status()).backlog == 0
    assert [one.state for one in await occurrences(stage, "x")] == ["cancelled"] * 3


@staged()
async def test_history_of_a_deleted_schedule_goes_after_thirty_days(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", every=10)
    await stage.sleep(35)
    await stage.jobs.schedules.delete("x")
    await stage.sleep(29 * 86_400)
    assert len(await occurrences(stage, "x")) == 3
    await stage.sleep(2 * 86_400)
    assert await occurrences(stage, "x") == []


@staged()
async def test_a_thousand_occurrences_are_kept(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", every=1)
    await stage.sleep(1_350)

    found = (await stage.jobs.schedules.occurrences("x", limit=1000)).occurrences
    assert len(found) == 1_000
    assert len(set(slots_of(stage.deliveries))) == len(stage.deliveries) >= 1_340


@staged()
async def test_what_cannot_be_is_refused_and_changes_nothing(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    for change, error, words in (
        (schedules.put("x", "w:r"), InvalidInputError, "exactly one of cron, everyMs and at"),
        (schedules.put("x", "w:r", cron="* * * * *", every=5), InvalidInputError, "exactly one of cron"),
        (schedules.put("x", every=5), InvalidInputError, "exactly one of functionPath and workflow"),
        (schedules.put("x", "w:r", every=0.5), InvalidInputError, "everyMs must be 1000"),
        (schedules.put("x", "w:r", cron="61 * * * *"), InvalidCronError, "minute field"),
        (schedules.put("x", "w:r", cron="* * * * *", timezone="Mars"), UnknownTimezoneError, "Mars"),
        (schedules.put("a/b", "w:r", every=5), InvalidInputError, "name must match"),
        (schedules.put("x", "w:r", every=5, misfire="maybe"), InvalidInputError, "misfire must be one of"),
        (schedules.put("x", "w:r", every=5, max_concurrency=2), InvalidInputError, "give pool as well"),
        (schedules.put("x", "w:r", every=5, catch_up_limit=0), InvalidInputError, "catchUpLimit must be 1"),
    ):
        with pytest.raises(error, match=words):
            await change

    assert (await schedules.list()).schedules == []


# ---- Owners --------------------------------------------------------------------------------------


@staged()
async def test_a_set_is_registered_as_a_whole_and_again_without_effect(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    own = [("sweep", {"path": "w:sweep", "cron": "17 * * * *"}), ("mail", {"path": "w:mail", "every": "5m"})]
    first = await schedules.register("app", own)
    again = await schedules.register("app", own)

    assert [one.name for one in first.schedules] == ["app:sweep", "app:mail"]
    assert again == first
    left = await schedules.register("app", own[:1])
    assert left.orphaned == ["app:mail"] and left.removed == []
    mail = await schedules.get("app:mail")
    assert mail is not None and mail.orphaned and mail.owner == "app"
    back = await schedules.register("app", own)
    mail = await schedules.get("app:mail")
    assert mail is not None and not mail.orphaned and back == first
    pruned = await schedules.register("app", own[1:], prune=True)
    assert pruned.removed == ["app:sweep"] and await schedules.get("app:sweep") is None


@staged()
async def test_a_name_of_another_owner_refuses_the_whole_set(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    await schedules.put("app:mail", "w:mail", every=60)
    with pytest.raises(ConflictError, match="'app:mail' is there already"):
        await schedules.register("app", [("new", {"path": "w:n", "every": 60}), ("mail", {"path": "w:m", "every": 60})])

    assert [one.name for one in (await schedules.list()).schedules] == ["app:mail"]
    with pytest.raises(InvalidCronError, match="schedule 'bad': cron"):
        await schedules.register("app", [("bad", {"path": "w:n", "cron": "nonsense"})])


# ---- Clocks and crashes --------------------------------------------------------------------------


@staged()
async def test_a_clock_that_steps_back_fires_nothing_twice(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", every=60, overlap="allow")
    await stage.sleep(605)
    stage.clock.step(-3_600_000)
    await stage.sleep(3600 + 120)

    assert len(stage.deliveries) == len(set(slots_of(stage.deliveries))) == 12


@staged()
async def test_a_clock_that_was_a_lifetime_ahead_is_left_behind(stage: Stage) -> None:
    """Scenario K04."""
    century = 72 * 366 * DAY
    stage.clock.step(century)
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *")
    await stage.sleep(3601)
    stage.clock.step(-century)
    await stage.jobs.run_after(0, "work:other")
    await stage.sleep(2 * 3600)

    assert len([one for one in stage.deliveries if "schedule" in one.body]) == 3


@staged()
async def test_crashes_lose_no_slot_and_double_none(stage: Stage) -> None:
    """Scenario T15: every minute of a day, each once, over three crashes and stalls."""
    await stage.jobs.schedules.put(
        "x", "work:run", cron="* * * * *", misfire="all", overlap="allow", catch_up_limit=None
    )
    start = stage.now
    for _ in range(3):
        await stage.sleep(6 * 3600 + stage.random.random() * 90)
        await stage.crash()
        await stage.sleep(stage.random.random() * 90)
        await stage.open()
    await stage.sleep((start + DAY - stage.now) / 1000 + 120)
    due = [slot for slot in set(slots_of(stage.deliveries)) if start < slot <= start + DAY]

    assert len(due) == 1_440


@staged()
async def test_preview_and_refusals_are_those_of_a_definition(stage: Stage) -> None:
    schedules = stage.jobs.schedules
    start = datetime(2025, 3, 8, 12, tzinfo=UTC)
    coming = schedules.preview("30 2 * * *", timezone="America/New_York", start=start, count=2)

    assert [datetime.fromtimestamp(ms / 1000, UTC).isoformat() for ms in coming] == [
        "2025-03-09T07:00:00+00:00", "2025-03-10T06:30:00+00:00",
    ]  # fmt: skip
    with pytest.raises(InvalidCronError):
        schedules.preview("nonsense")
