"""Claiming, stopping, presence, hooks, options."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import pytest

from tests.dispatch.worker.fake_queue import FakeQueue, WorkerFixture, on_fake_queue, sleeps
from tocsin import ActorHost, Worker, WorkerSnapshot
from tocsin.actors.testing import VirtualClock
from tocsin.errors import NotYetError, SettingsError, UnauthenticatedError, UnreachableError

# ---- Claiming ------------------------------------------------------------------------------------


@on_fake_queue
async def test_it_claims_as_many_as_it_has_room_for_and_waits_at_the_host_otherwise(workers: WorkerFixture) -> None:
    for _ in range(5):
        workers.queue.put("work", 10)
    async with workers.worker({"work": sleeps}, concurrency=3, queues=["mail", "sms"]) as worker:
        await asyncio.sleep(5)
        assert len(worker.snapshot().jobs) == 3
        assert [claim["max"] for claim in workers.queue.claims] == [3]
        await workers.queue.all_settled(5)
        await asyncio.sleep(60)

    assert len(workers.queue.claims) <= 12, "an idle worker asks once in 20 s"
    assert workers.queue.claims[0]["queue"] == ["mail", "sms"]
    assert workers.queue.claims[0]["worker"].id == worker.info.id


@on_fake_queue
async def test_every_queue_but_some(workers: WorkerFixture) -> None:
    async with workers.worker({"work": sleeps}, exclude=["slow"]):
        await asyncio.sleep(1)

    assert (workers.queue.claims[0]["queue"], workers.queue.claims[0]["exclude"]) == ("*", ["slow"])


@on_fake_queue
async def test_claims_that_fail_back_off_up_to_five_seconds_and_go_on_when_the_host_is_back(
    workers: WorkerFixture,
) -> None:
    workers.queue.down = UnreachableError("nobody")
    async with workers.worker({"work": sleeps}):
        await asyncio.sleep(60)
        assert 12 <= len(workers.queue.claims) <= 24
        workers.queue.down = None
        workers.queue.put("work", 0)
        began = workers.now
        await workers.queue.all_settled()
        assert workers.now - began <= 5.1


@on_fake_queue
async def test_a_host_that_answers_nothing_at_once_is_not_asked_in_a_tight_loop(workers: WorkerFixture) -> None:
    async def nothing(*_: Any, **__: Any) -> list[Any]:
        workers.queue.claims.append({})
        return []

    workers.queue.claim = nothing  # type: ignore[method-assign]
    async with workers.worker({"work": sleeps}):
        await asyncio.sleep(60)

    assert len(workers.queue.claims) <= 24


@on_fake_queue
async def test_what_can_never_be_claimed_ends_the_run_but_only_at_the_start(workers: WorkerFixture) -> None:
    workers.queue.down = UnauthenticatedError("no such token")
    with pytest.raises(UnauthenticatedError):
        await workers.worker({"work": sleeps}).run()

    workers.queue.down = None
    workers.queue.put("work", 0)
    async with workers.worker({"work": sleeps}):
        await workers.queue.all_settled()
        workers.queue.down = UnauthenticatedError("tokens are being rotated")
        await asyncio.sleep(30)
        workers.queue.down = None
        workers.queue.put("work", 0)
        await workers.queue.all_settled(2)


@on_fake_queue
async def test_what_can_never_be_claimed_is_raised_at_the_end_of_an_async_with(workers: WorkerFixture) -> None:
    workers.queue.down = UnauthenticatedError("no such token")
    with pytest.raises(UnauthenticatedError):
        async with workers.worker({}) as worker:
            await asyncio.sleep(1)
            assert isinstance(worker.refused, UnauthenticatedError)
    with pytest.raises(UnauthenticatedError) as refused:
        async with workers.worker({}):
            await asyncio.sleep(1)
            raise NotYetError("nobody ran it")
    assert isinstance(refused.value.__context__, NotYetError)

    async def cancelled() -> None:
        async with workers.worker({}):
            await asyncio.sleep(100)

    task = asyncio.create_task(cancelled())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), "a cancellation is not turned into another error"


@pytest.mark.anyio
@pytest.mark.parametrize("was_open", [False, True])
async def test_a_host_that_is_not_open_is_not_asked_for_ever(was_open: bool) -> None:
    host = ActorHost.open("memory:")
    if was_open:
        async with host:
            pass
    async with asyncio.timeout(10):
        with pytest.raises(SettingsError, match="open it first"):
            await Worker(host.scheduler("t"), {}).run()


def test_two_workers_of_one_process_and_of_one_name_are_told_apart() -> None:
    queue: Any = None

    async def main() -> set[str]:
        nonlocal queue
        queue = FakeQueue(VirtualClock())
        return {Worker(queue, {}, name="same").info.id for _ in range(10)}

    ids = asyncio.run(main())
    assert len(ids) == 10
    assert all(one.startswith(f"{os.getpid()}-") for one in ids)


# ---- Stopping ------------------------------------------------------------------------------------


@on_fake_queue
async def test_stop_ends_claiming_at_once_and_lets_jobs_end(workers: WorkerFixture) -> None:
    worker = workers.worker({"work": sleeps}, wait="5m")
    running = asyncio.create_task(worker.run())
    workers.queue.put("work", 10)
    await asyncio.sleep(1)
    worker.stop()
    workers.queue.put("work", 0)
    await worker.stop()
    assert workers.now == pytest.approx(1)
    assert worker.status == "stopping"

    await running
    assert workers.now == pytest.approx(10, abs=0.1)
    assert worker.status == "stopped"
    assert [one.id for one in workers.queue.settled] == ["job-1"]
    assert len(workers.queue.waiting) == 1


@on_fake_queue
async def test_a_drain_waits_for_all_that_run(workers: WorkerFixture) -> None:
    """No new claims from that instant, all settle, done when the last one is."""
    worker = workers.worker({"work": sleeps})
    worker.start()
    for _ in range(3):
        workers.queue.put("work", 4)
    await asyncio.sleep(0.1)
    workers.queue.put("work", 0)
    workers.queue.waiting.clear()

    assert await worker.stop_and_drain("20s") == 0
    assert workers.now == pytest.approx(4, abs=0.2)
    assert [one.said["ok"] for one in workers.queue.settled][:3] == [True] * 3


@on_fake_queue
async def test_what_is_left_after_the_drain_is_cancelled_and_given_back_uncharged(workers: WorkerFixture) -> None:
    cleaned: list[str] = []

    async def work(args: Any) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            cleaned.append("up")

    worker = workers.worker({"work": work})
    worker.start()
    workers.queue.put("work")
    await asyncio.sleep(1)

    assert await worker.stop_and_drain(5) == 1
    [settled] = workers.queue.settled
    assert settled.said == {
        "ok": False, "error": "interrupted by shutdown", "retryable": True, "delay": 0, "charge": False,
    }  # fmt: skip
    assert cleaned == ["up"]
    assert workers.now == pytest.approx(6, abs=0.1)


@on_fake_queue
async def test_a_second_shorter_drain_overtakes_a_longer_one(workers: WorkerFixture) -> None:
    worker = workers.worker({"work": sleeps})
    worker.start()
    workers.queue.put("work", 1_000)
    await asyncio.sleep(1)
    patient = asyncio.create_task(worker.stop_and_drain())
    await asyncio.sleep(1)

    assert await worker.stop_and_drain(0) == 1
    assert await patient == 0
    assert workers.now < 3


@pytest.mark.parametrize("after", [0.0, 0.05, 1.0, 1.01, 1.02])
def test_a_run_that_is_cancelled_twice_leaves_no_lease_without_owner(after: float) -> None:

    @on_fake_queue
    async def test(workers: WorkerFixture) -> None:
        worker = workers.worker({"work": sleeps})
        running = asyncio.create_task(worker.run())
        workers.queue.put("work", 1)
        workers.queue.put("work", 1_000)
        workers.queue.slow_s = 0.5
        await asyncio.sleep(after)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await workers.until(lambda: worker.status in ("stopped", "idle"))
        await asyncio.sleep(1)
        assert workers.queue.leases == {}
        assert workers.now < 10

    test()


@on_fake_queue
async def test_a_worker_stopped_before_it_started_claims_nothing(workers: WorkerFixture) -> None:
    worker = workers.worker({"work": sleeps})
    worker.stop()
    await worker.run()
    assert workers.queue.claims == []
    with pytest.raises(SettingsError, match="started already"):
        worker.start()


@on_fake_queue
async def test_a_handler_stops_its_worker_but_may_not_wait_for_it(workers: WorkerFixture) -> None:
    async def work(args: Any) -> None:
        with pytest.raises(SettingsError, match="own worker"):
            await worker.stop_and_drain()
        worker.stop()

    worker = workers.worker({"work": work})
    workers.queue.put("work")
    await worker.run()
    assert [one.said["ok"] for one in workers.queue.settled] == [True]


# ---- Presence and hooks --------------------------------------------------------------------------


@on_fake_queue
async def test_presence_is_told_every_ten_seconds_and_at_each_change(workers: WorkerFixture) -> None:
    heard: list[WorkerSnapshot] = []
    async with workers.worker({"work": sleeps}, name="mailer", on_heartbeat=heard.append):
        await asyncio.sleep(25)
        assert [snapshot.status for snapshot in heard] == ["idle"] * 3
        workers.queue.put("work", 5)
        await asyncio.sleep(10)
        assert [(one.status, [job.id for job in one.jobs]) for one in heard[3:]] == [("busy", ["job-1"]), ("idle", [])]

    assert heard[-1].status == "stopped"
    assert heard == workers.queue.snapshots
    assert (heard[0].name, heard[0].pid, heard[0].concurrency, heard[0].queues) == ("mailer", os.getpid(), 8, "*")


@on_fake_queue
async def test_changes_within_a_tenth_of_a_second_are_told_together(workers: WorkerFixture) -> None:
    heard: list[tuple[float, str]] = []

    def hears(snapshot: WorkerSnapshot) -> None:
        heard.append((round(workers.now - began, 2), snapshot.status))

    began = workers.now
    async with workers.worker({"work": sleeps}, on_heartbeat=hears):
        await asyncio.sleep(1)
        workers.queue.put("work", 0.05)
        await asyncio.sleep(1)
        workers.queue.put("work", 0.5)
        await asyncio.sleep(1)
        assert heard == [(0.0, "idle"), (1.1, "idle"), (2.1, "busy"), (2.6, "idle")]


@on_fake_queue
async def test_an_observer_that_fails_or_hangs_disturbs_no_job(workers: WorkerFixture) -> None:
    calls: list[str] = []

    async def hangs(snapshot: WorkerSnapshot) -> None:
        calls.append(snapshot.status)
        if len(calls) % 3 == 1:
            raise OSError("no disk")
        if len(calls) % 3 == 2:
            raise asyncio.CancelledError
        await asyncio.sleep(10_000)

    async def deaf(snapshot: WorkerSnapshot) -> None:
        raise RuntimeError("no presence here")

    workers.queue.announce = deaf  # type: ignore[method-assign]
    async with workers.worker({"work": sleeps}, on_heartbeat=hangs):
        for n in range(3):
            workers.queue.put("work", 1)
            began = workers.now
            await workers.queue.all_settled(n + 1)
            assert workers.now - began < 1.1
            await asyncio.sleep(20)

    assert len(calls) > 5


@on_fake_queue
async def test_hooks_hear_of_what_is_booked_and_what_they_raise_changes_nothing(workers: WorkerFixture) -> None:
    heard: list[Any] = []

    async def on_retry(job: Any, error: BaseException, next_attempt_at: int | None) -> None:
        assert len(workers.queue.settled) > len(heard)
        heard.append((job.id, str(error), next_attempt_at))
        raise RuntimeError("a hook of no good")

    def on_final_failure(job: Any, error: BaseException, reason: str | None) -> None:
        heard.append((job.id, str(error), reason))
        raise RuntimeError("another")

    async def fails(args: Any) -> None:
        raise ValueError(args)

    worker = workers.worker({"work": fails}, on_retry=on_retry, on_final_failure=on_final_failure, concurrency=1)
    async with worker:
        workers.queue.put("work", "first")
        workers.queue.put("work", "last", attempts=5)
        workers.queue.put("other")
        await workers.queue.all_settled(3)

    first, last, unknown = heard
    assert (first[:2], last) == (("job-1", "first"), ("job-2", "last", "exhausted"))
    assert first[2] > workers.queue.clock.now_ms()
    assert "no handler" in unknown[1]
    assert (worker.tally.retrying, worker.tally.dead, worker.tally.hook_failures) == (2, 1, 3)


# ---- Options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"concurrency": 0}, "concurrency must be 1..1000, not 0"),
        ({"concurrency": True}, "concurrency must be a whole number"),
        ({"lease_ms": 5}, "lease_ms must be 1000..3600000, not 5"),
        ({"wait": 0}, "wait must be 1000..300000 ms, not 0 ms"),
        ({"wait": "10m"}, "wait must be"),
        ({"drain": "soon"}, "drain must look like"),
        ({"queues": []}, "queues must be a name"),
        ({"queues": ["a b"]}, "queues: a name must match"),
        ({"queues": 5}, "queues must be"),
        ({"queues": ["a"], "exclude": ["b"]}, 'exclude is for queues="\\*"'),
        ({"name": "my worker"}, "name must match"),
        ({"handlers": 5}, "handlers must be a Handlers or a mapping"),
        ({"handlers": {"p": 5}}, "must be a function"),
        ({"jobs": "http://127.0.0.1:8321"}, "give Client\\(url, token=...\\)"),
        ({"jobs": ActorHost.open("memory:")}, "host.scheduler\\(name\\) or .*, and an ActorHost has no claim"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_by_name(options: dict[str, Any], why: str) -> None:
    jobs: Any = options.pop("jobs", FakeQueue(VirtualClock()))
    with pytest.raises(SettingsError, match=why):
        Worker(jobs, options.pop("handlers", {}), random=Random(1), **options)
