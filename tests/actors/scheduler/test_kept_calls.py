"""The rows of kept calls: over turns that are full, restarts, losses and repairs, on test clocks, and by every door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tests.actors.scheduler.turn_runner import NOW, TurnRunner
from tocsin import Job, Outbox
from tocsin.actors.outbox.job_text import new_job
from tocsin.actors.scheduler.integrity.invariants import check, examine
from tocsin.actors.scheduler.integrity.repair import repair_rows
from tocsin.actors.scheduler.model import validation
from tocsin.actors.scheduler.model.later_rows import ThrottleRow
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import timer_key
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import put_off
from tocsin.actors.scheduler.transitions.claim import claim
from tocsin.actors.scheduler.transitions.settle import AttemptResult, settle
from tocsin.actors.scheduler.transitions.submit import cancel, submit
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.scheduled import Scheduled
from tocsin.dispatch.transport import Answer
from tocsin.storage.api import Batch
from tocsin.storage.memory import MemoryProvider

JOBS = 20


async def kept(runner: TurnRunner) -> list[AttemptResult]:
    """Let jobs run, each with a call that is kept, of args in several pieces. Their ends."""
    first = [debounced(runner, n, 1) for n in range(JOBS)]
    await runner.turn(lambda turn: submit(turn, first))
    runner.now += 1
    claims = await runner.turn(lambda turn: claim(turn, JOBS))
    for n in range(0, JOBS, 5):
        calls = [debounced(runner, m, 200_000) for m in range(n, n + 5)]
        answers = await runner.turn(partial(submit, jobs=calls))
        assert all(isinstance(one, Scheduled) and one.state == "running" for one in answers)
    return [AttemptResult(one.job, one.token, AttemptOutcome(Verdict.DONE)) for one in claims]


def debounced(runner: TurnRunner, n: int, size: int) -> NewJob:
    return validation.new_job(
        function_path="work:run", workflow=None, args=b'"%b"' % (b"x" * size), scheduled_for=runner.now,
        enqueued_at=runner.now, minted="", options={"id": f"j{n:02}", "debounce_ms": 1},
    )  # fmt: skip


def in_turns(test: Callable[[TurnRunner, list[AttemptResult]], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            provider = MemoryProvider()
            await provider.start()
            runner = await TurnRunner.open(provider)
            await test(runner, await kept(runner))
            await provider.stop()

        asyncio.run(main())

    return run


@in_turns
async def test_calls_that_do_not_fit_the_commit_in_which_their_runs_end_go_on_by_timers(
    runner: TurnRunner, finished: list[AttemptResult]
) -> None:
    async def end(turn: Turn) -> int:
        settled = await settle(turn, finished)
        await put_off.bring_later(turn)
        return settled

    assert await runner.turn(end) == JOBS
    rows = dict(await runner.view.scan(b"later/", b"later0", limit=100))
    timers = [key for key, _ in await runner.view.scan(b"timer/", b"timer0", limit=100) if b"/later/" in key]
    assert 0 < len(rows) < JOBS and {key[6:] for key in rows} == {key.rpartition(b"/")[2] for key in timers}
    assert await check(runner.view, NOW) == []

    last = max(rows)[6:].decode()
    assert (await runner.turn(lambda turn: cancel(turn, last))).cancelled
    await runner.turn(lambda turn: submit(turn, [debounced(runner, int(min(rows)[7:]), 1)]))
    for _ in range(JOBS):
        due = [(NOW, key[6:].decode()) for key, _ in await runner.view.scan(b"later/", b"later0", limit=100)]
        await runner.turn(partial(put_off.ring_later, due=due))
    assert await runner.view.scan(b"later", b"latest", limit=100) == []
    assert len(await runner.view.scan(b"job/", b"job0", limit=100)) == JOBS - 1


@in_turns
async def test_rows_that_are_lost_or_stray_are_found_and_repaired(
    runner: TurnRunner, finished: list[AttemptResult]
) -> None:
    leases = dict(await runner.view.scan(b"lease/j00/", b"lease/j000", limit=1))
    period = ThrottleRow(NOW + 5, NOW)
    strays = {b"laterargs/none/00": b"x", b"throttle/z": msgspec.msgpack.encode(period)}
    await runner.store.commit(Batch(strays, {*leases, b"laterargs/j01/01"}))
    found = (await examine(runner.view, NOW)).counts
    assert {"TIMER_MISSING": 2, "ARGS_EXTRA": 1, "ARGS_LOST": 1}.items() <= found.items()

    await repair_rows(runner.store)
    left = (await examine(runner.view, 0)).counts
    assert left == {"ARGS_LOST": 1}, "what is lost stays lost"
    keys = {key for key, _ in await runner.view.scan(b"timer/", b"timer0", limit=100)}
    assert timer_key(period.until, "throttle", "z") in keys


@on_simulated_host()
async def test_on_a_test_clock_calls_count_from_where_it_stands(sim: SimulatedHost) -> None:
    jobs = sim.host.scheduler("clocked")
    start = datetime(2030, 1, 1, tzinfo=UTC)
    await jobs.clock.create(start)
    for n in range(2):
        await jobs.run_debounced("1h", "work:run", {"n": n}, id="x", max_wait="90m")
        await jobs.clock.advance("40m")
        await jobs.clock.wait()
    assert sim.deliveries == []
    await jobs.clock.advance("10m")
    await jobs.clock.wait()

    [one] = sim.deliveries
    assert (one.body["args"], one.body["scheduledFor"]) == ({"n": 1}, int(start.timestamp() * 1000) + 90 * 60_000)


@on_simulated_host()
async def test_an_equal_id_in_another_instance_is_another_job(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(5)
    for name in ("t", "u"):
        await sim.host.scheduler(name).run_debounced("1s", "work:run", {"at": name}, id="x")
    await sim.sleep(2)
    await sim.host.scheduler("u").run_debounced("1s", "work:run", {"at": "again"}, id="x")
    await sim.sleep(20)

    assert [one.body["args"]["at"] for one in sim.deliveries].count("again") == 1
    assert len(sim.deliveries) == 3


@on_simulated_host()
async def test_a_paused_instance_keeps_what_is_put_off_and_a_kept_call_counts_as_pending(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(5)
    await sim.jobs.run_debounced("1s", "work:run", {"n": 0}, id="x")
    await sim.sleep(2)
    await sim.jobs.run_debounced("1s", "work:other", {"n": 1}, id="x")
    assert (await sim.jobs.pending("work:other")).count == 1
    [_, said] = await sim.jobs.why("x")
    assert said.code == "CALL_KEPT"
    await sim.jobs.pause()
    await sim.sleep(60)
    assert len(sim.deliveries) == 1
    await sim.jobs.run_debounced("1s", "work:last", {"n": 2}, id="x")
    await sim.jobs.pause(False)
    await sim.sleep(20)

    assert [one.body["functionPath"] for one in sim.deliveries] == ["work:run", "work:last"]
    assert (await sim.jobs.pending("")).count == 0


@on_simulated_host()
async def test_a_kept_call_of_a_queue_goes_to_the_next_worker(sim: SimulatedHost) -> None:
    await sim.jobs.run_debounced(1, "work:run", {"n": 0}, id="x", queue="q")
    [held] = await sim.jobs.claim("q", wait=5)
    await sim.jobs.run_debounced(1, "work:run", {"n": 1}, id="x", queue="q")
    assert await sim.jobs.claim("q", wait=10) == []
    await sim.jobs.complete(held.id, held.lease)
    [again] = await sim.jobs.claim("q", wait=5)

    assert (again.id, again.args) == ("x", {"n": 1})
    await sim.jobs.complete(again.id, again.lease)


@on_simulated_host()
async def test_a_cancel_of_all_takes_the_kept_call_and_its_undo_brings_back_what_waited(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(10, Answer(500, {}, b""))
    await sim.jobs.run_debounced("1s", "work:run", {"n": 0}, id="x")
    await sim.sleep(2)
    await sim.jobs.run_debounced("1h", "work:run", {"n": 1}, id="x")
    await sim.jobs.run_debounced("1h", "work:run", {"n": 2}, id="y")
    done = await sim.jobs.cancel_all(all=True)
    assert done.action_id is not None
    undone = await sim.jobs.undo(done.action_id)
    await sim.sleep(60)

    assert (done.cancelled, undone.restored, undone.skipped) == (2, 1, {"running": 1})
    assert [one.id for one in (await sim.jobs.list()).records] == ["y"]
    await sim.jobs.run_debounced("1s", "work:run", {"n": 3}, id="y")
    assert (await sim.jobs.status()).backlog == 1


@on_simulated_host()
async def test_rows_of_an_outbox_put_jobs_off_from_when_they_come(sim: SimulatedHost) -> None:
    box = Outbox("t", clock=sim.clock, random=Random(1))
    entries = [box.run_debounced("10s", "work:run", {"n": n}, id="x", max_wait="1m") for n in range(2)]
    await sim.sleep(100)
    began = sim.now
    for entry in entries:
        await sim.port.jobs.submit(new_job(sim.port.checks, "t", entry.statement.values["job"]))
    record = await sim.jobs.get("x")
    assert record is not None and record.put_off is not None
    assert (record.scheduled_for, record.put_off.until) == (began + 10_000, began + 60_000)


@on_simulated_host()
async def test_a_deferred_block_and_a_task_put_jobs_off_too(sim: SimulatedHost) -> None:
    def index(document: str) -> None: ...

    task = sim.jobs.task("search:index", index, id="d7", max_wait="1m")
    async with sim.jobs.deferred() as later:
        assert later.run_debounced("5s", "search:index", {"document": "a"}, id="d7") == "d7"
    assert await task.debounced("5s", document="b") == "d7"
    await sim.sleep(10)

    assert [one.body["args"] for one in sim.deliveries] == [{"document": "b"}]
    assert Job(path="a:b", debounce="5s", options={"id": "x"}).debounce == "5s"


@pytest.mark.parametrize("merges", [False, True])
def test_a_throttled_job_that_comes_again_is_answered_as_at_first(merges: bool) -> None:
    """A call whose answer was lost is sent again with the incarnation that it had."""

    async def main() -> None:
        provider = MemoryProvider()
        await provider.start()
        runner = await TurnRunner.open(provider)
        new = runner.job("x")
        row = msgspec.structs.replace(new.job, incarnation="left-1")
        new = msgspec.structs.replace(
            new, job=row, throttle=(60_000, merges), on_conflict="replace" if merges else "error"
        )
        answers = [await runner.turn(lambda turn: submit(turn, [new])) for _ in range(2)]
        [one] = await runner.turn(lambda turn: claim(turn, 1))
        done = AttemptResult(one.job, one.token, AttemptOutcome(Verdict.DONE))
        await runner.turn(lambda turn: settle(turn, [done]))
        answers.append(await runner.turn(lambda turn: submit(turn, [new])))
        assert answers[0] == answers[1] == answers[2]
        assert isinstance(answers[0][0], Scheduled) and answers[0][0].created
        assert runner.state.counters.waiting == 0
        await provider.stop()

    asyncio.run(main())


@on_simulated_host()
async def test_a_throttled_row_of_mail_is_kept_as_a_letter_for_people(sim: SimulatedHost) -> None:
    new = sim.port.checks.job(Job("work:run", {"n": 0}, after=0, options={"id": "x", "throttle": "1m"}), sim.now)
    assert (await sim.port.jobs.submit(new)).created
    refused = await sim.port.jobs.submit(msgspec.structs.replace(new, parked_as="row-1"))
    await sim.sleep(1)

    assert (refused.id, refused.state) == ("row-1", "dead")
    [letter] = (await sim.jobs.dead()).records
    assert letter.id == "row-1" and letter.last_error is not None and "THROTTLED" in letter.last_error.message
    assert len(sim.deliveries) == 1
