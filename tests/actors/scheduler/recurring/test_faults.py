"""What goes wrong with one schedule stops no other; what a crash interrupts goes on; what is held back ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.recurring.slots import accounted, after, occurrences, slots_of
from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.model.rows import Row, decode, encode, job_key
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, DefinitionRow, cursor_key, definition_key
from tocsin.actors.scheduler.schedules import fire, series
from tocsin.actors.scheduler.schedules import process_due as look
from tocsin.actors.scheduler.schedules.schedule import Schedule
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer

ROWS = "scheduler/t"


async def rewrite(stage: Stage, key: bytes, change: Callable[[bytes], bytes]) -> None:
    """Somebody edits a row by hand, while the host is down."""
    await stage.close()
    value = stage.disk.maps[ROWS].get(key)
    assert value is not None
    stage.disk.maps[ROWS].apply({key: change(value)})
    await stage.open()


def edited(kind: type[Row], **changes: object) -> Callable[[bytes], bytes]:
    return lambda value: encode(msgspec.structs.replace(decode(kind, b"", value), **changes))


# ---- One bad schedule ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"timezone": "Europe/Berln"},
        {"cron": "61 * * * *"},
        {"cron": None},
        {"cron": None, "every_ms": 0},
        {"cron": "0 0 31 2 *"},
    ],
)
def test_a_rule_that_was_spoilt_by_hand_stops_only_itself(changes: dict[str, object]) -> None:
    """Scenario T12."""

    @staged()
    async def run(stage: Stage) -> None:
        schedules = stage.jobs.schedules
        await schedules.put("bad", "work:bad", cron="* * * * *")
        await schedules.put("good", "work:good", cron="* * * * *")
        await rewrite(stage, definition_key("bad"), edited(DefinitionRow, **changes))
        await stage.sleep(190)
        record = await stage.jobs.schedules.get("bad")

        assert record is not None and record.state == "error" and record.error
        assert {one.body["functionPath"] for one in stage.deliveries} == {"work:good"} and len(stage.deliveries) == 3
        await stage.jobs.schedules.put("bad", "work:bad", cron="* * * * *")
        await stage.sleep(60)
        record = await stage.jobs.schedules.get("bad")
        assert record is not None and record.state == "active"
        assert [one.body["functionPath"] for one in stage.deliveries].count("work:bad") == 1

    run()


@staged()
async def test_a_rule_that_answers_an_instant_of_the_past_is_stopped(stage: Stage) -> None:
    """Scenario D06: never a loop that fires for ever."""
    await stage.jobs.schedules.put("bad", "work:bad", cron="* * * * *")
    await stage.jobs.schedules.put("good", "work:good", cron="* * * * *")
    rule = series.rule_of("*/7 * * * *", "UTC")
    rule._real_time = lambda start: start - 60  # type: ignore[method-assign]
    await rewrite(stage, definition_key("bad"), edited(DefinitionRow, cron="*/7 * * * *"))
    await stage.sleep(130)
    series._rule.cache_clear()
    series._next.cache_clear()
    record = await stage.jobs.schedules.get("bad")

    assert record is not None and record.state == "error" and "not after" in (record.error or "")
    assert {one.body["functionPath"] for one in stage.deliveries} == {"work:good"}
    again = await stage.jobs.schedules.resume("bad")
    assert again.state == "active" and again.error is None


@staged()
async def test_a_cursor_that_cannot_be_read_is_moved_aside_and_its_schedule_goes_on(stage: Stage) -> None:
    await stage.jobs.schedules.put("bad", "work:bad", every=10)
    await stage.jobs.schedules.put("good", "work:good", every=10)
    await stage.sleep(11)
    await rewrite(stage, cursor_key("bad"), lambda value: b"\xff\xff")
    await stage.sleep(30)
    record = await stage.jobs.schedules.get("bad")

    assert record is not None and record.state == "active" and record.revision > 1
    assert sum(one.body["functionPath"] == "work:bad" for one in stage.deliveries) >= 3
    assert sum(one.body["functionPath"] == "work:good" for one in stage.deliveries) == 4
    stage.disk.maps[ROWS].apply({b"bad/" + cursor_key("bad"): None})


@staged()
async def test_a_definition_that_cannot_be_read_is_moved_aside_and_may_be_put_again(stage: Stage) -> None:
    await stage.jobs.schedules.put("bad", "work:bad", every=10)
    await stage.jobs.schedules.put("good", "work:good", every=10)
    await rewrite(stage, definition_key("bad"), lambda value: b"\xff\xff")
    await stage.sleep(31)
    assert [one.body["functionPath"] for one in stage.deliveries] == ["work:good"] * 3
    made = await stage.jobs.schedules.put("bad", "work:bad", every=10)
    await stage.sleep(11)

    assert made.revision == 2
    assert sum(one.body["functionPath"] == "work:bad" for one in stage.deliveries) == 1
    stage.disk.maps[ROWS].apply({b"bad/" + definition_key("bad"): None})


@staged()
async def test_an_occurrence_whose_row_was_lost_blocks_its_schedule_no_longer(stage: Stage) -> None:
    """It never says that it has ended; with `overlap: skip` nothing would ever fire again."""
    await stage.jobs.set_pool("p", paused=True)
    await stage.jobs.schedules.put("x", "work:run", every=10, pool="p")
    await stage.sleep(11)
    [first] = await occurrences(stage, "x")
    assert first.job_id is not None
    await rewrite(stage, job_key(first.job_id), lambda value: b"\xff\xff")
    await stage.jobs.set_pool("p", paused=False)
    await stage.sleep(30)

    assert len(stage.deliveries) >= 2
    for key, _ in stage.disk.maps[ROWS].range(b"bad/", b"bad0", 10, False):
        stage.disk.maps[ROWS].apply({key: None})


# ---- Ends ----------------------------------------------------------------------------------------


@staged()
async def test_a_triggered_occurrence_says_how_it_ended(stage: Stage) -> None:
    stage.reply = lambda one: Answer(410, {}, b"")
    await stage.jobs.schedules.put("x", "work:run", cron="0 0 1 1 *")
    run = await stage.jobs.schedules.trigger("x", "k")
    await stage.sleep(1)
    [found] = await occurrences(stage, "x")
    assert (found.state, found.triggered, found.live) == ("dead", True, False)
    stage.reply = lambda one: OK
    await stage.jobs.dead_retry(run.id)
    await stage.sleep(1)

    [found] = await occurrences(stage, "x")
    record = await stage.jobs.schedules.get("x")
    assert found.state == "fired" and record is not None and record.live == 0


@staged()
async def test_a_slot_held_back_passes_when_its_schedule_is_paused_or_deleted(stage: Stage) -> None:
    stage.reply = lambda one: after(25)
    for name in ("paused", "deleted", "resumed"):
        await stage.jobs.schedules.put(name, "work:run", every=10, overlap="queue")
    await stage.sleep(21)
    await stage.jobs.schedules.pause("paused")
    await stage.jobs.schedules.delete("deleted")
    await stage.jobs.schedules.pause("resumed")
    await stage.jobs.schedules.resume("resumed")
    await stage.sleep(16)
    ends = {name: [(one.state, one.reason) for one in await occurrences(stage, name)][:2] for name in (
        "paused", "deleted", "resumed")}  # fmt: skip

    assert ends["paused"] == [("fired", None), ("skipped", "paused")]
    assert ends["deleted"] == [("fired", None), ("skipped", "deleted")]
    assert ends["resumed"] == [("fired", None), ("fired", None)]


@staged()
async def test_a_dead_occurrence_that_is_retried_counts_as_live_again(stage: Stage) -> None:
    stage.reply = lambda one: Answer(410, {}, b"") if one.attempt == 1 else after(45)
    await stage.jobs.schedules.put("x", "work:run", every=10)
    await stage.sleep(11)
    [dead] = await occurrences(stage, "x")
    await stage.jobs.schedules.pause("x")
    await stage.jobs.schedules.resume("x")
    await stage.jobs.dead_retry(dead.job_id or "")
    await stage.sleep(20)
    record = await stage.jobs.schedules.get("x")

    assert record is not None and record.live == 1
    assert [one.reason for one in await occurrences(stage, "x")] == [None, "overlap"]


@staged()
async def test_a_stale_occurrence_expires_where_it_waits_and_is_not_dead(stage: Stage) -> None:
    """Scenario M12: due 09:00, good for 300 s, its pool busy until 09:06."""
    await stage.jobs.set_pool("p", paused=True)
    put = await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", pool="p", expires_after=300)
    slot = put.preview[0]
    await stage.sleep((slot - stage.now) / 1000 + 360)
    await stage.jobs.set_pool("p", paused=False)
    await stage.sleep(5)
    [one] = await occurrences(stage, "x")

    assert (one.state, one.slot, one.decided_at) == ("expired", slot, slot + 300_000)
    assert stage.deliveries == [] and not (await stage.jobs.dead()).records


# ---- Crashes -------------------------------------------------------------------------------------


@staged()
async def test_a_host_that_crashes_at_any_step_of_a_slot_fires_it_once(stage: Stage) -> None:
    """Scenario F01, with a store that takes its time: before the claim, after it, during the callback, after it."""
    await stage.jobs.schedules.put("x", "work:run", every=10, misfire="all", overlap="allow", grace=5)
    start = stage.now
    for n in range(40):
        await stage.sleep(((start + (n + 1) * 10_000) - stage.now) / 1000 - 0.002)
        for _ in range(n):
            await asyncio.sleep(0)
        await asyncio.sleep(0.002 if n % 2 else 0)
        for _ in range(n // 2):
            await asyncio.sleep(0)
        await stage.crash()
        await stage.open()
    await stage.sleep(120)
    webhooks = {one.body["schedule"]["slot"]: one.webhook_id for one in stage.deliveries}

    due = [start + (n + 1) * 10_000 for n in range(40)]
    assert set(due) <= webhooks.keys()
    assert all(one.webhook_id == webhooks[one.body["schedule"]["slot"]] for one in stage.deliveries)


@staged()
async def test_the_time_of_a_retry_survives_restarts(stage: Stage) -> None:
    """Scenario M11: restarts at +10, +20, +50 s; the attempt comes at +60 s."""
    stage.reply = lambda one: Answer(500, {}, b"") if one.attempt == 1 else OK
    await stage.jobs.run_after(0, "work:run", id="j", retry=Retry(base_ms=60_000, backoff="linear"))
    await stage.sleep(1)
    for wait in (9, 10, 30):
        await stage.sleep(wait)
        await stage.crash()
        await stage.open()
    await stage.sleep(30)

    assert stage.times("j")[0] < 50 and 60_000 <= stage.times("j")[1] <= 60_050


@staged()
async def test_slots_fire_after_a_restart_though_nobody_calls(stage: Stage) -> None:
    """Scenarios M06 and M14: an alarm three days old, and no client; the registration says nothing new."""
    own = [("nightly", {"path": "work:run", "cron": "0 3 * * *"})]
    await stage.jobs.schedules.register("app", own)
    await stage.close()
    await stage.sleep(3 * 86_400)
    await stage.open()
    await stage.sleep(1)
    assert len(stage.deliveries) == 1
    before = await stage.jobs.schedules.get("app:nightly")
    again = await stage.jobs.schedules.register("app", own)

    assert before is not None and again.schedules[0].revision == 1 and again.schedules[0].next_at == before.next_at


@staged()
async def test_what_a_fault_of_one_look_breaks_is_looked_at_again(stage: Stage) -> None:
    """A turn that fails leaves no trace, and its timers are still due."""
    calls = 0

    async def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("as the test wanted")
        return await fire.know(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(look, "know", failing)
        await stage.jobs.schedules.put("x", "work:run", every=60)
        await stage.sleep(70)

    assert calls == 2 and len(slots_of(stage.deliveries)) == 1
    assert accounted(await occurrences(stage, "x")) == {"fired": 1}


@staged()
async def test_an_unreadable_slot_is_moved_aside_and_stops_nothing(stage: Stage) -> None:
    await stage.jobs.set_pool("p", paused=True)
    await stage.jobs.schedules.put("x", "work:run", every=10, pool="p", overlap="allow")
    await stage.sleep(11)
    [one] = await occurrences(stage, "x")
    [(key, _)] = stage.disk.maps[ROWS].range(b"slot/", b"slot0", 1, False)
    await rewrite(stage, key, lambda value: b"\xff")
    await stage.jobs.cancel(one.job_id or "")
    await stage.jobs.set_pool("p", paused=False)
    await stage.sleep(30)

    assert len(stage.deliveries) == len(await occurrences(stage, "x")) == 3
    stage.disk.maps[ROWS].apply({b"bad/" + key: None})


def test_a_cursor_says_what_its_schedule_is_in_the_middle_of() -> None:
    """Members were added at the end: rows written before them are read."""
    old = encode(CursorRow(3, 5))[:0] + msgspec.msgpack.encode([1, 3, 5, 7, 7])

    assert decode(CursorRow, b"", old) == CursorRow(3, 5, 7, 7)


def test_a_slot_that_fails_is_named_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    """With its schedule and the cause; it is tried again until it succeeds."""
    start, failing = fire.start, [True]

    def broken(turn: Turn, one: Schedule, *args: Any, **given: Any) -> None:
        if failing[0] and one.name == "broken":
            raise ZeroDivisionError("as the test wanted")
        start(turn, one, *args, **given)

    @staged()
    async def run(stage: Stage) -> None:
        await stage.jobs.schedules.put("broken", "work:run", every=10)
        slot = stage.now + 10_000
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fire, "start", broken)
            await stage.sleep(10 + 120)
            said = [record.getMessage() for record in caplog.records if "the alarm of" in record.getMessage()]
            [first] = [line for line in said if "schedule 'broken'" in line]
            assert f"slot {slot}" in first and "ZeroDivisionError('as the test wanted')" in first
            assert 2 <= len(said) <= 6 and said[-1].endswith("for the same reason")
            failing[0] = False
            await stage.sleep(10)
        assert slots_of(stage.deliveries)

    with caplog.at_level(logging.WARNING):
        run()
