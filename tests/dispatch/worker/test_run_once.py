"""`run_once` and `tocsin worker --burst`: what is due is worked off, and then it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.dispatch.worker.claim_sources import REMOTE, host_and_source
from tests.dispatch.worker.fake_queue import WorkerFixture, on_fake_queue, sleeps
from tocsin import Job, Worker
from tocsin.dispatch.pulled import Claimed
from tocsin.errors import SettingsError, UnreachableError


@on_fake_queue
async def test_what_is_due_is_worked_off_with_all_room_there_is_and_then_it_ends(workers: WorkerFixture) -> None:
    for _ in range(7):
        workers.queue.put("work", 10)
    worker = workers.worker({"work": sleeps}, concurrency=3)
    began = workers.now
    assert await worker.run_once() == 7
    assert workers.now - began == pytest.approx(30, abs=1)
    assert len(workers.queue.settled) == 7
    assert worker.status == "idle"


@on_fake_queue
async def test_without_anything_due_it_ends_at_once_and_may_be_called_again(workers: WorkerFixture) -> None:
    worker = workers.worker({"work": sleeps})
    first, began = worker.info.id, workers.now
    assert await worker.run_once() == 0
    workers.queue.put("work", 0)
    assert await worker.run_once() == 1
    assert workers.now - began < 1
    assert worker.info.id != first, "each run is a start, with an id of its own"
    assert [one.status for one in workers.queue.snapshots][-1] == "stopped"


@on_fake_queue
async def test_jobs_that_become_due_while_others_run_are_claimed_too(workers: WorkerFixture) -> None:
    async def more(args: Any) -> None:
        await asyncio.sleep(1)
        if args:
            workers.queue.put("more", args - 1)

    workers.queue.put("more", 3)
    assert await workers.worker({"more": more}, concurrency=2).run_once() == 4


@on_fake_queue
async def test_a_host_that_cannot_be_asked_is_raised_after_what_runs_has_ended(workers: WorkerFixture) -> None:
    queue, asks = workers.queue, workers.queue.claim

    async def claim(*args: Any, **more: Any) -> list[Claimed]:
        if len(queue.settled) == 1:
            raise UnreachableError("nobody answers")
        return await asks(*args, **more)

    queue.claim = claim  # type: ignore[method-assign]
    queue.put("work", 1)
    queue.put("work", 5)
    worker, began = workers.worker({"work": sleeps}, concurrency=2), workers.now
    with pytest.raises(UnreachableError, match="nobody answers"):
        await worker.run_once()
    assert workers.now - began >= 5 and len(queue.settled) == 2
    queue.put("work", 0)
    assert await worker.run_once() == 1, "it may be tried again"


@on_fake_queue
async def test_a_stop_ends_it_and_the_worker_starts_no_more(workers: WorkerFixture) -> None:
    workers.queue.put("work", 5)
    workers.queue.put("work", 5)
    worker = workers.worker({"work": sleeps}, concurrency=1)
    running = asyncio.create_task(worker.run_once())
    await asyncio.sleep(1)
    assert worker.status == "busy"
    await worker.stop_and_drain()
    assert await running == 1
    assert len(workers.queue.waiting) == 1
    with pytest.raises(SettingsError, match="started already"):
        await worker.run_once()


@on_fake_queue
async def test_it_is_refused_beside_another_run_of_the_same_worker(workers: WorkerFixture) -> None:
    worker = workers.worker({"work": sleeps})
    async with worker:
        with pytest.raises(SettingsError, match="run_once"):
            await worker.run_once()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["here", *REMOTE])
async def test_on_a_real_host_it_takes_what_is_due_with_its_chain_and_leaves_what_is_later(kind: str) -> None:
    async with host_and_source(kind) as at:
        jobs, seen = at.jobs, list[Any]()
        await jobs.submit_many([Job("work", n, after=0, options={"queue": "mail"}) for n in range(20)])
        follows = Job("work", "then", options={"queue": "mail"})
        await jobs.run_after(0, "work", "first", queue="mail", then=[follows])
        await jobs.run_after(60, "work", "later", queue="mail")
        worker = Worker(at.source, {"work": seen.append}, concurrency=4)
        assert await worker.run_once() == 22
        assert sorted(map(str, seen)) == sorted([*map(str, range(20)), "first", "then"])
        assert (await jobs.status()).backlog == 1
        assert await worker.run_once() == 0
