"""What goes wrong with one schedule stops no other; what a crash interrupts goes on; what is held back ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.recurring.slots import accounted, occurrences, slots_of
from tests.actors.scheduler.row_snapshot import edited
from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.model.rows import decode, encode, job_key
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, DefinitionRow, SlotRow, cursor_key, definition_key
from tocsin.actors.scheduler.schedules import fire, process_due, series
from tocsin.actors.scheduler.schedules.schedule import Schedule
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer

ROWS = "scheduler/t"


async def rewrite(sim: SimulatedHost, key: bytes, change: Callable[[bytes], bytes]) -> None:
    """Somebody edits a row by hand, while the host is down."""
    await sim.close()
    value = sim.disk.maps[ROWS].get(key)
    assert value is not None
    sim.disk.maps[ROWS].apply({key: change(value)})
    await sim.open()


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

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        schedules = sim.jobs.schedules
        await schedules.put("bad", "work:bad", cron="* * * * *")
        await schedules.put("good", "work:good", cron="* * * * *")
        await rewrite(sim, definition_key("bad"), edited(DefinitionRow, **changes))
        await sim.sleep(190)
        record = await sim.jobs.schedules.get("bad")

        assert record is not None and record.state == "error" and record.error
        assert {one.body["functionPath"] for one in sim.deliveries} == {"work:good"} and len(sim.deliveries) == 3
        await sim.jobs.schedules.put("bad", "work:bad", cron="* * * * *")
        await sim.sleep(60)
        record = await sim.jobs.schedules.get("bad")
        assert record is not None and record.state == "active"
        assert [one.body["functionPath"] for one in sim.deliveries].count("work:bad") == 1

    run()


@on_simulated_host()
async def test_a_rule_that_answers_an_instant_of_the_past_is_stopped(sim: SimulatedHost) -> None:
    """Never a loop that fires for ever."""
    await sim.jobs.schedules.put("bad", "work:bad", cron="* * * * *")
    await sim.jobs.schedules.put("good", "work:good", cron="* * * * *")
    rule = series.rule_of("*/7 * * * *", "UTC")
    rule._real_time = lambda start: start - 60  # type: ignore[method-assign]
    await rewrite(sim, definition_key("bad"), edited(DefinitionRow, cron="*/7 * * * *"))
    await sim.sleep(130)
    series._rule.cache_clear()
    series._next.cache_clear()
    record = await sim.jobs.schedules.get("bad")

    assert record is not None and record.state == "error" and "not after" in (record.error or "")
    assert {one.body["functionPath"] for one in sim.deliveries} == {"work:good"}
    again = await sim.jobs.schedules.resume("bad")
    assert again.state == "active" and again.error is None


@on_simulated_host()
async def test_a_cursor_that_cannot_be_read_is_moved_aside_and_its_schedule_goes_on(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("bad", "work:bad", every=10)
    await sim.jobs.schedules.put("good", "work:good", every=10)
    await sim.sleep(11)
    await rewrite(sim, cursor_key("bad"), lambda value: b"\xff\xff")
    await sim.sleep(30)
    record = await sim.jobs.schedules.get("bad")

    assert record is not None and record.state == "active" and record.revision > 1
    assert sum(one.body["functionPath"] == "work:bad" for one in sim.deliveries) >= 3
    assert sum(one.body["functionPath"] == "work:good" for one in sim.deliveries) == 4
    sim.disk.maps[ROWS].apply({b"bad/" + cursor_key("bad"): None})


@on_simulated_host()
async def test_a_definition_that_cannot_be_read_is_moved_aside_and_may_be_put_again(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("bad", "work:bad", every=10)
    await sim.jobs.schedules.put("good", "work:good", every=10)
    await rewrite(sim, definition_key("bad"), lambda value: b"\xff\xff")
    await sim.sleep(31)
    assert [one.body["functionPath"] for one in sim.deliveries] == ["work:good"] * 3
    made = await sim.jobs.schedules.put("bad", "work:bad", every=10)
    await sim.sleep(11)

    assert made.revision == 2
    assert sum(one.body["functionPath"] == "work:bad" for one in sim.deliveries) == 1
    sim.disk.maps[ROWS].apply({b"bad/" + definition_key("bad"): None})


@on_simulated_host()
async def test_an_occurrence_whose_row_was_lost_blocks_its_schedule_no_longer(sim: SimulatedHost) -> None:
    """It never says that it has ended; with `overlap: skip` nothing would ever fire again."""
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=10, pool="p")
    await sim.sleep(11)
    [first] = await occurrences(sim, "x")
    assert first.job_id is not None
    await rewrite(sim, job_key(first.job_id), lambda value: b"\xff\xff")
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(30)

    assert len(sim.deliveries) >= 2
    for key, _ in sim.disk.maps[ROWS].range(b"bad/", b"bad0", 10, False):
        sim.disk.maps[ROWS].apply({key: None})


# ---- Ends ----------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_triggered_occurrence_says_how_it_ended(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"")
    await sim.jobs.schedules.put("x", "work:run", cron="0 0 1 1 *")
    run = await sim.jobs.schedules.trigger("x", "k")
    await sim.sleep(1)
    [found] = await occurrences(sim, "x")
    assert (found.state, found.triggered, found.live) == ("dead", True, False)
    sim.reply = lambda one: OK
    await sim.jobs.dead_retry(run.id)
    await sim.sleep(1)

    [found] = await occurrences(sim, "x")
    record = await sim.jobs.schedules.get("x")
    assert found.state == "fired" and record is not None and record.live == 0


@on_simulated_host()
async def test_a_slot_held_back_passes_when_its_schedule_is_paused_or_deleted(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(25)
    for name in ("paused", "deleted", "resumed"):
        await sim.jobs.schedules.put(name, "work:run", every=10, overlap="queue")
    await sim.sleep(21)
    await sim.jobs.schedules.pause("paused")
    await sim.jobs.schedules.delete("deleted")
    await sim.jobs.schedules.pause("resumed")
    await sim.jobs.schedules.resume("resumed")
    await sim.sleep(16)
    ends = {name: [(one.state, one.reason) for one in await occurrences(sim, name)][:2] for name in (
        "paused", "deleted", "resumed")}  # fmt: skip

    assert ends["paused"] == [("fired", None), ("skipped", "paused")]
    assert ends["deleted"] == [("fired", None), ("skipped", "deleted")]
    assert ends["resumed"] == [("fired", None), ("fired", None)]


@on_simulated_host()
async def test_a_dead_occurrence_that_is_retried_counts_as_live_again(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"") if one.attempt == 1 else after(45)
    await sim.jobs.schedules.put("x", "work:run", every=10)
    await sim.sleep(11)
    [dead] = await occurrences(sim, "x")
    await sim.jobs.schedules.pause("x")
    await sim.jobs.schedules.resume("x")
    await sim.jobs.dead_retry(dead.job_id or "")
    await sim.sleep(20)
    record = await sim.jobs.schedules.get("x")

    assert record is not None and record.live == 1
    assert [one.reason for one in await occurrences(sim, "x")] == [None, "overlap"]


@on_simulated_host()
async def test_a_stale_occurrence_expires_where_it_waits_and_is_not_dead(sim: SimulatedHost) -> None:
    """Due 09:00, good for 300 s, its pool busy until 09:06."""
    await sim.jobs.set_pool("p", paused=True)
    put = await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *", pool="p", expires_after=300)
    slot = put.preview[0]
    await sim.sleep((slot - sim.now) / 1000 + 360)
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(5)
    [one] = await occurrences(sim, "x")

    assert (one.state, one.slot, one.decided_at) == ("expired", slot, slot + 300_000)
    assert sim.deliveries == [] and not (await sim.jobs.dead()).records


# ---- Crashes -------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_host_that_crashes_at_any_step_of_a_slot_fires_it_once(sim: SimulatedHost) -> None:
    """With a store that takes its time: before the claim, after it, during the callback, after it."""
    await sim.jobs.schedules.put("x", "work:run", every=10, misfire="all", overlap="allow", grace=5)
    start = sim.now
    for n in range(40):
        await sim.sleep(((start + (n + 1) * 10_000) - sim.now) / 1000 - 0.002)
        for _ in range(n):
            await asyncio.sleep(0)
        await asyncio.sleep(0.002 if n % 2 else 0)
        for _ in range(n // 2):
            await asyncio.sleep(0)
        await sim.crash()
        await sim.open()
    await sim.sleep(120)
    webhooks = {one.body["schedule"]["slot"]: one.webhook_id for one in sim.deliveries}

    due = [start + (n + 1) * 10_000 for n in range(40)]
    assert set(due) <= webhooks.keys()
    assert all(one.webhook_id == webhooks[one.body["schedule"]["slot"]] for one in sim.deliveries)


@on_simulated_host()
async def test_the_time_of_a_retry_survives_restarts(sim: SimulatedHost) -> None:
    """Restarts at +10, +20, +50 s; the attempt comes at +60 s."""
    sim.reply = lambda one: Answer(500, {}, b"") if one.attempt == 1 else OK
    await sim.jobs.run_after(0, "work:run", id="j", retry=Retry(base_ms=60_000, backoff="linear"))
    await sim.sleep(1)
    for wait in (9, 10, 30):
        await sim.sleep(wait)
        await sim.crash()
        await sim.open()
    await sim.sleep(30)

    assert sim.times("j")[0] < 50 and 60_000 <= sim.times("j")[1] <= 60_050


@on_simulated_host()
async def test_slots_fire_after_a_restart_though_nobody_calls(sim: SimulatedHost) -> None:
    """Scenarios M06 and M14: an alarm three days old, and no client; the registration says nothing new."""
    own = [("nightly", {"path": "work:run", "cron": "0 3 * * *"})]
    await sim.jobs.schedules.register("app", own)
    await sim.close()
    await sim.sleep(3 * 86_400)
    await sim.open()
    await sim.sleep(1)
    assert len(sim.deliveries) == 1
    before = await sim.jobs.schedules.get("app:nightly")
    again = await sim.jobs.schedules.register("app", own)

    assert before is not None and again.schedules[0].revision == 1 and again.schedules[0].next_at == before.next_at


@on_simulated_host()
async def test_what_a_fault_of_one_look_breaks_is_looked_at_again(sim: SimulatedHost) -> None:
    """A turn that fails leaves no trace, and its timers are still due."""
    calls = 0

    async def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("as the test wanted")
        return await fire.know(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_due, "know", failing)
        await sim.jobs.schedules.put("x", "work:run", every=60)
        await sim.sleep(70)

    assert calls == 2 and len(slots_of(sim.deliveries)) == 1
    assert accounted(await occurrences(sim, "x")) == {"fired": 1}


@on_simulated_host()
async def test_an_unreadable_slot_is_moved_aside_and_stops_nothing(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=10, pool="p", overlap="allow")
    await sim.sleep(11)
    [one] = await occurrences(sim, "x")
    [(key, _)] = sim.disk.maps[ROWS].range(b"slot/", b"slot0", 1, False)
    await rewrite(sim, key, lambda value: b"\xff")
    await sim.jobs.cancel(one.job_id or "")
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(30)

    assert len(sim.deliveries) == len(await occurrences(sim, "x")) == 3
    sim.disk.maps[ROWS].apply({b"bad/" + key: None})


def test_a_cursor_says_what_its_schedule_is_in_the_middle_of() -> None:
    """Members were added at the end: rows written before them are read."""
    old = encode(CursorRow(3, 5))[:0] + msgspec.msgpack.encode([1, 3, 5, 7, 7])

    assert decode(CursorRow, b"", old) == CursorRow(3, 5, 7, 7)


@contextmanager
def slots_fail_of(*names: str) -> Iterator[None]:
    """While this lasts, no slot of these schedules can be fired."""
    start = fire.start

    def broken(turn: Turn, one: Schedule, *args: Any, **given: Any) -> None:
        if one.name in names:
            one.record(turn, 0, SlotRow("fired", turn.now, 0))  # what it has written goes with the turn
            raise ZeroDivisionError("as the test wanted")
        start(turn, one, *args, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fire, "start", broken)
        yield


def test_a_slot_that_fails_sets_its_schedule_aside_and_all_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """Also where several fail at once; each says which slot it was, and why."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        for name in ("broken", "broken too", "well"):
            await sim.jobs.schedules.put(name.replace(" ", "-"), "work:run", every=10)
        first = sim.now + 10_000
        with slots_fail_of("broken", "broken-too"):
            await sim.jobs.run_after(12, "work:run", id="job")
            await sim.sleep(60)
            ran = [one.webhook_id.partition(":")[0] for one in sim.deliveries]
            assert "job" in ran and accounted(await occurrences(sim, "well"))["fired"] >= 5
            for name in ("broken", "broken-too"):
                record = await sim.jobs.schedules.get(name)
                assert record is not None and record.error is not None
                assert f"(slot {first})" in record.error and "ZeroDivisionError('as the test wanted')" in record.error
                assert await occurrences(sim, name) == []
            assert (await sim.jobs.status()).health == "green"
        said = [record.getMessage() for record in caplog.records if "the alarm of" in record.getMessage()]
        assert len(said) == 2 and f"slot {first}" in said[0] and "schedule 'broken" in said[0]
        assert await sim.faults() == []

    with caplog.at_level(logging.WARNING):
        run()


@on_simulated_host()
async def test_a_schedule_that_was_set_aside_is_tried_again_and_loses_no_slot(sim: SimulatedHost) -> None:
    """After an hour, or when it is resumed."""
    for name in ("x", "y"):
        await sim.jobs.schedules.put(name, "work:run", every=600, misfire="all", overlap="allow")
    with slots_fail_of("x", "y"):
        await sim.sleep(620)
    assert slots_of(sim.deliveries) == []
    await sim.jobs.schedules.resume("y")
    await sim.sleep(10)
    assert accounted(await occurrences(sim, "y")) == {"fired": 1}
    await sim.sleep(3_600)

    record = await sim.jobs.schedules.get("x")
    assert record is not None and record.error is None
    assert accounted(await occurrences(sim, "x")) == accounted(await occurrences(sim, "y")) == {"fired": 7}


@on_simulated_host()
async def test_a_slot_held_back_that_fails_is_still_held_back(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=30, overlap="queue")
    sim.reply = lambda one: after(40)
    await sim.sleep(50)  # the first runs, until the second waits for its end
    with slots_fail_of("x"):
        await sim.sleep(28)
    record = await sim.jobs.schedules.get("x")
    assert record is not None and record.error is not None
    assert accounted(await occurrences(sim, "x")) == {"fired": 1, "queued": 1}
    await sim.jobs.schedules.resume("x")
    await sim.sleep(5)

    assert accounted(await occurrences(sim, "x")) == {"fired": 2}


@on_simulated_host()
async def test_a_schedule_that_was_set_aside_and_put_again_begins_at_once(sim: SimulatedHost) -> None:
    with slots_fail_of("x"):
        await sim.jobs.schedules.put("x", "work:run", every=10)
        await sim.sleep(11)  # the slot has failed; nothing is on disk of that yet
    await sim.jobs.schedules.put("x", "work:other", every=10)
    await sim.sleep(31)

    record = await sim.jobs.schedules.get("x")
    assert record is not None and record.error is None and len(slots_of(sim.deliveries)) >= 2
