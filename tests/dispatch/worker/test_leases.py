"""Leases: renewed while the handler runs, known to be lost when they are, and never used for another's attempt."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from tests.dispatch.worker.fake_queue import WorkerFixture, on_fake_queue, on_fake_queue_with_threads, sleeps
from tocsin import Accepted, Context, LeaseLostError
from tocsin.errors import HostClosedError, InvalidInputError, StoreUnavailable, UnreachableError


@on_fake_queue
async def test_a_lease_is_renewed_at_each_third_while_the_handler_runs(workers: WorkerFixture) -> None:
    async with workers.worker({"work": sleeps}, lease_ms=60_000):
        workers.queue.put("work", 110)
        [settled] = await workers.queue.all_settled()

    assert settled.said["ok"]
    assert [round(at) for _, at, _ in workers.queue.extended] == [20, 40, 60, 80, 100]


@on_fake_queue
async def test_renewals_that_fail_for_less_than_the_lease_are_tried_again(workers: WorkerFixture) -> None:
    async with workers.worker({"work": sleeps}, lease_ms=60_000) as worker:
        workers.queue.put("work", 100)
        await asyncio.sleep(10)
        workers.queue.down = StoreUnavailable("busy")
        await asyncio.sleep(48)
        workers.queue.down = None
        [settled] = await workers.queue.all_settled()

    assert settled.said["ok"]
    assert worker.tally.lost == 0


def test_the_log_hears_of_failing_renewals_once_a_second_at_most(caplog: pytest.LogCaptureFixture) -> None:
    @on_fake_queue
    async def test(workers: WorkerFixture) -> None:
        async with workers.worker({"work": sleeps}, lease_ms=3_000):
            workers.queue.put("work", 10)
            await asyncio.sleep(0.5)
            workers.queue.down = StoreUnavailable("busy")
            await asyncio.sleep(5)
            workers.queue.down = None

    with caplog.at_level(logging.INFO):
        test()
    assert 1 <= caplog.text.count("could not be renewed yet") <= 3


@on_fake_queue
async def test_cut_off_for_longer_than_the_lease_the_handler_is_cancelled_and_nothing_is_said(
    workers: WorkerFixture,
) -> None:
    ended: list[tuple[str, float]] = []

    async def work(args: Any, context: Context) -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            with pytest.raises(LeaseLostError):
                context.assert_ownership()
            assert context.will_retry(ValueError())
            ended.append(("cancelled", workers.now))
            raise

    async with workers.worker({"work": work}, lease_ms=60_000) as worker:
        workers.queue.put("work")
        await asyncio.sleep(1)
        workers.queue.cut()
        await workers.until(lambda: not worker.snapshot().jobs)
        assert [(how, round(at, 1)) for how, at in ended] == [("cancelled", 59.4)]
        workers.queue.down = None
        await asyncio.sleep(30)

    assert workers.queue.settled == []
    assert workers.queue.refused == []
    assert worker.tally.lost == 1


def test_a_loop_that_was_blocked_past_the_lease_knows_that_it_lost_its_job(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is settled as failed, nothing starts twice here, and the worker goes on."""
    owned: list[bool] = []

    @on_fake_queue_with_threads
    async def test(workers: WorkerFixture) -> None:
        workers.queue.redelivers = False

        async def work(args: Any, context: Context) -> None:
            if args == "block":
                time.sleep(1.2)  # noqa: ASYNC251 -- what must not be done
                try:
                    context.assert_ownership()
                except LeaseLostError:
                    owned.append(False)
                    raise

        async with workers.worker({"work": work}, lease_ms=1_000) as worker:
            workers.queue.put("work", "block")
            await workers.until(lambda: worker.tally.lost)
            workers.queue.put("work", "fine")
            [settled] = await workers.queue.all_settled()
            assert (settled.id, settled.said["ok"]) == ("job-2", True)

    with caplog.at_level(logging.WARNING):
        test()
    assert owned == [False]
    assert caplog.text.count("lease_lost") == 1


def test_a_success_that_comes_late_is_offered_and_refused_if_the_job_ran_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @on_fake_queue_with_threads
    async def test(workers: WorkerFixture) -> None:
        workers.queue.redelivers = True

        async def work(args: Any, context: Context) -> None:
            if context.attempt == 1:
                time.sleep(1.2)  # noqa: ASYNC251

        async with workers.worker({"work": work}, lease_ms=1_000, concurrency=1) as worker:
            workers.queue.put("work")
            await workers.queue.all_settled()
            assert workers.queue.leased[-1].attempt == 2
            assert worker.tally.lost == 1

    with caplog.at_level(logging.WARNING):
        test()
    assert caplog.text.count("stale_settle_rejected") == 1


@on_fake_queue
async def test_a_job_cancelled_at_the_host_has_its_handler_cancelled_and_frees_its_slot(workers: WorkerFixture) -> None:
    seen: list[Any] = []

    async def work(args: Any, context: Context) -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            seen.append(context.will_retry(ValueError()))
            with pytest.raises(LeaseLostError, match="was cancelled"):
                context.assert_ownership()
            raise

    async with workers.worker({"work": work}) as worker:
        workers.queue.put("work")
        await asyncio.sleep(1)
        workers.queue.cancelled.add("job-1")
        [settled] = await workers.queue.all_settled()

    assert settled.at == pytest.approx(20, abs=0.1)
    assert settled.said == {"ok": False, "error": "cancelled", "retryable": True, "delay": 0, "charge": False}
    assert seen == [False]
    assert worker.tally.cancelled == 1


@on_fake_queue
async def test_a_handler_asks_for_a_longer_lease_and_a_shorter_one_and_both_are_renewed_in_time(
    workers: WorkerFixture,
) -> None:
    async def work(args: Any, context: Context) -> None:
        assert await context.extend(600_000) == workers.queue.clock.now_ms() + 600_000
        await asyncio.sleep(250)
        await context.extend(3_000)
        await asyncio.sleep(10)
        context.assert_ownership()
        with pytest.raises(InvalidInputError, match=r"1000\.\.3600000"):
            await context.extend(5)
        with pytest.raises(InvalidInputError, match="await extend"):
            context.extend_from_thread(1_000)

    async with workers.worker({"work": work}):
        workers.queue.put("work")
        [settled] = await workers.queue.all_settled()

    assert settled.said["ok"]
    assert [length for _, _, length in workers.queue.extended][:3] == [600_000, 600_000, 3_000]
    assert len(workers.queue.extended) > 10


@on_fake_queue
async def test_a_short_lease_asked_for_after_an_outage_is_renewed_though_a_renewal_pauses(
    workers: WorkerFixture,
) -> None:
    async def work(args: Any, context: Context) -> None:
        await asyncio.sleep(10)
        workers.queue.down = StoreUnavailable("busy")
        await asyncio.sleep(25)
        workers.queue.down = None
        await context.extend(1_000)
        await asyncio.sleep(3)
        context.assert_ownership()

    async with workers.worker({"work": work}, lease_ms=60_000):
        workers.queue.put("work")
        [settled] = await workers.queue.all_settled()

    assert settled.said["ok"]


@on_fake_queue
async def test_a_job_that_came_after_a_long_wait_is_renewed_before_it_runs(workers: WorkerFixture) -> None:
    """The lease is counted from before the claim was sent, however long that waited at the host."""
    async with workers.worker({"work": sleeps}, lease_ms=10_000, wait="5m"):
        await asyncio.sleep(100)
        workers.queue.put("work", 1)
        [settled] = await workers.queue.all_settled()

    assert settled.said["ok"]
    assert [round(at) for _, at, _ in workers.queue.extended] == [100]


@on_fake_queue
async def test_an_end_is_said_again_until_it_is_heard_while_the_lease_lives(workers: WorkerFixture) -> None:
    async def fails(args: Any) -> None:
        await asyncio.sleep(1)
        raise ValueError("x")

    async with workers.worker({"work": fails}) as worker:
        workers.queue.put("work")
        await asyncio.sleep(0.5)
        workers.queue.cut()
        await asyncio.sleep(50)
        workers.queue.down = None
        [settled] = await workers.queue.all_settled()
        assert settled.said["error"] == "ValueError: x"
        assert worker.tally.retrying == 0 or worker.tally.retrying == 1
    assert worker.tally.retrying == 1


@on_fake_queue
async def test_when_the_host_of_this_process_is_closed_an_end_is_not_said_for_ever(workers: WorkerFixture) -> None:
    worker = workers.worker({"work": sleeps})
    worker.start()
    workers.queue.put("work", 1)
    await asyncio.sleep(0.5)
    workers.queue.down = HostClosedError("the host is not open")
    await asyncio.sleep(1)

    await worker.stop_and_drain()
    assert workers.now < 5


@on_fake_queue
async def test_accepted_work_is_held_for_whoever_completes_it_elsewhere(workers: WorkerFixture) -> None:
    leased: list[Any] = []

    async def work(args: Any, context: Context) -> Accepted:
        leased.append(context.leased)
        return Accepted(120_000)

    async with workers.worker({"work": work}) as worker:
        workers.queue.put("work")
        await workers.until(lambda: workers.queue.extended)
        await workers.until(lambda: not worker.snapshot().jobs)
        await asyncio.sleep(100)

    assert [length for _, _, length in workers.queue.extended] == [120_000]
    await workers.queue.settle(leased[0].id, leased[0].lease)


# ---- Functions in threads ------------------------------------------------------------------------


@on_fake_queue_with_threads
async def test_a_function_in_a_thread_may_ask_for_its_lease(workers: WorkerFixture) -> None:
    def work(args: Any, context: Context) -> str:
        until = context.extend_from_thread(30_000)
        context.assert_ownership()
        return f"{until - workers.queue.clock.now_ms() > 29_000} {threading.current_thread().name[:13]}"

    async with workers.worker({"work": work}):
        workers.queue.put("work")
        [settled] = await workers.queue.all_settled()

    assert settled.said == {"ok": True, "result": "True tocsin-worker"}


@on_fake_queue_with_threads
async def test_a_thread_that_takes_too_long_has_failed_goes_on_and_keeps_its_place(workers: WorkerFixture) -> None:
    let_go = threading.Event()
    lost: list[bool] = []

    def work(args: Any, context: Context) -> None:
        let_go.wait(10)
        try:
            context.assert_ownership()
        except LeaseLostError:
            lost.append(True)

    async with workers.worker({"work": work}, concurrency=1) as worker:
        workers.queue.put("work", timeout_ms=50)
        [settled] = await workers.queue.all_settled()
        assert settled.said["error"] == "timed out after 0.05 s; its thread cannot be stopped and is still running"
        assert settled.said["charge"]
        assert len(worker.snapshot().jobs) == 1
        workers.queue.put("work")
        await asyncio.sleep(0.05)
        assert len(workers.queue.waiting) == 1
        let_go.set()
        await workers.queue.all_settled(2)

    assert lost == [True]


@on_fake_queue_with_threads
async def test_a_thread_that_outlives_the_drain_is_given_back_for_when_its_lease_would_have_ended(
    workers: WorkerFixture,
) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def work(args: Any) -> None:
        begun.set()
        let_go.wait(10)

    worker = workers.worker({"work": work})
    worker.start()
    workers.queue.put("work")
    await asyncio.to_thread(begun.wait, 5)

    assert await worker.stop_and_drain(0.05) == 1
    [settled] = workers.queue.settled
    let_go.set()
    assert settled.said["error"] == "interrupted by shutdown; its thread cannot be stopped and is still running"
    assert not settled.said["charge"]
    assert 55 < settled.said["delay"] < 60


def test_what_may_pass_is_told_from_what_does_not() -> None:
    from tocsin.dispatch.worker.trouble import is_refusal, may_pass
    from tocsin.errors import OverloadedError, SettingsError, UnauthenticatedError

    assert [may_pass(error("x")) for error in (UnreachableError, OverloadedError, StoreUnavailable)] == [True] * 3
    assert [may_pass(error("x")) for error in (HostClosedError, UnauthenticatedError, InvalidInputError)] == [False] * 3
    assert [is_refusal(error("x")) for error in (UnauthenticatedError, InvalidInputError, SettingsError)] == [True] * 3
    assert not is_refusal(UnreachableError("x"))
