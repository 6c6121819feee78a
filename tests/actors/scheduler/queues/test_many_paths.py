"""Chains of many function paths: each path is a row, so turns over many such jobs stop before their commit is too
large, and go on in the next."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.actors.scheduler.stage import Stage, staged
from tocsin.actors.scheduler.client.chain_requests import Job
from tocsin.actors.scheduler.model.rows import JobRow, decode, encode
from tocsin.actors.scheduler.state import path_counts as paths
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import PayloadTooLargeError
from tocsin.storage.api import MAX_BATCH_KEYS

JOBS = MAX_BATCH_KEYS // 100 + 10
"""Each with a hundred paths of its own: more than the rows of a commit."""


def chain(name: str) -> list[Job]:
    """A hundred jobs of as many paths."""
    return [
        Job(path=f"{name}.{n}", options={"queue": "x", "then": [Job(path=f"{name}.{n}.{k}") for k in range(4)]})
        for n in range(20)
    ]


async def submit(stage: Stage, **options: object) -> None:
    for start in range(0, JOBS, 15):
        jobs = [Job(path="w:r", after=10, options={**options, "then": chain(f"p{start + n}")}) for n in range(15)]
        assert all(hasattr(one, "id") for one in await stage.jobs.submit_many(jobs))


@staged()
async def test_all_expire_at_one_instant(stage: Stage) -> None:
    await submit(stage, queue="q", expires_at=stage.now + 60_000)
    await stage.sleep(61)

    assert (await stage.jobs.status()).backlog == 0 and not (await stage.jobs.pending()).pending


@staged()
async def test_all_have_expired_before_a_worker_asks(stage: Stage) -> None:
    """The host was not there when they did."""
    await submit(stage, queue="q", expires_at=stage.now + 60_000)
    await stage.crash()
    await stage.sleep(120)
    waiting = asyncio.create_task(stage.jobs.claim("q", wait=1)) if await stage.open() else None
    assert waiting is not None and await waiting == []
    await stage.sleep(1)

    assert (await stage.jobs.status()).backlog == 0 and not (await stage.jobs.pending()).pending


@staged(lanes=256)
async def test_all_callbacks_die_together(stage: Stage) -> None:
    stage.reply = lambda delivery: Answer(400, {}, b"no")
    await submit(stage, retry=Retry(max_retries=0))
    await stage.sleep(20)

    status = await stage.jobs.status()
    assert (status.backlog, status.in_flight, status.dead) == (0, 0, JOBS)
    assert not (await stage.jobs.pending()).pending


@staged(lanes=256)
async def test_all_are_found_damaged_together(stage: Stage) -> None:
    """When they are claimed: each goes to the dead with what was to follow it."""
    await submit(stage)
    rows = stage.disk.maps["scheduler/t"]
    for key, value in rows.range(b"job/", b"job0", 1_000, False):
        job = decode(JobRow, key, value)
        rows.apply({key: encode(msgspec.structs.replace(job, args=b"x" + job.args[1:]))})
    await stage.sleep(20)
    status = await stage.jobs.status()
    assert (status.backlog, status.in_flight, status.dead) == (0, 0, JOBS) and not stage.deliveries
    for letter in (await stage.jobs.dead(limit=1_000)).records:
        await stage.jobs.dead_cancel(letter.id)


@staged()
async def test_all_are_lost_five_times_and_retried_from_the_dead_and_cancelled(stage: Stage) -> None:
    await submit(stage, queue="q")
    await stage.sleep(10)
    for _ in range(5):
        for _ in range(JOBS):
            await stage.jobs.claim("q", max=100, lease_ms=20_000, wait=0)
        await stage.sleep(21)
    assert (await stage.jobs.status()).dead == JOBS

    await stage.jobs.dead_retry_all(all=True, rate_per_second=1_000)
    await stage.sleep(10)
    assert (await stage.jobs.pending()).count == JOBS * 101

    assert (await stage.jobs.cancel_all(all=True)).cancelled == JOBS
    assert not (await stage.jobs.pending()).pending


@staged()
async def test_what_a_claim_gives_back_expires_meanwhile(stage: Stage) -> None:
    """Given up while the commit of its leases is on its way, when all are over."""
    await submit(stage, queue="q", expires_at=stage.now + 60_000)
    await stage.sleep(11)
    got = [one for _ in range(3) for one in await stage.jobs.claim("q", max=100, lease_ms=600_000)]
    await stage.sleep(60)
    stage.jobs.unsent(got)
    await stage.sleep(1)

    status = await stage.jobs.status()
    assert (status.backlog, status.in_flight) == (0, 0) and len(got) == JOBS


@staged()
async def test_schedules_that_are_due_together(stage: Stage) -> None:
    for n in range(JOBS):
        await stage.jobs.schedules.put(f"s{n}", "w:r", every="1m", queue="q", then=chain(f"p{n}"))
    await stage.sleep(61)

    assert (await stage.jobs.status()).backlog == JOBS


@staged()
async def test_a_batch_of_too_many_paths_is_refused_in_words(stage: Stage) -> None:
    jobs = [Job(path="w:r", after=10, options={"queue": "q", "then": chain(f"p{n}")}) for n in range(JOBS)]
    with pytest.raises(PayloadTooLargeError, match=f"{JOBS * 100 + 1} different function paths, at most 2000"):
        await stage.jobs.submit_many(jobs)


# ---- Counts that are made anew -------------------------------------------------------------------


async def as_layout_1(stage: Stage) -> None:
    """The store, as the version before counts by path left it; nobody has opened this scheduler since."""
    await stage.crash()
    rows = stage.disk.maps["scheduler/t"]
    rows.apply({key: None for key, _ in rows.range(b"paths/", b"paths0", 100_000, False)} | {b"meta/layout": b"1"})
    await stage.open()


async def submit_paths(stage: Stage, count: int) -> None:
    for start in range(0, count, 1_000):
        jobs = [Job(path=f"p{start + n}", after="1d", options={"queue": "q"}) for n in range(min(count - start, 1_000))]
        await stage.jobs.submit_many(jobs)


@staged()
async def test_what_pends_in_an_older_store_is_counted_before_it_is_told(stage: Stage) -> None:
    await submit_paths(stage, 10)
    await as_layout_1(stage)

    assert (await stage.jobs.pending()).count == 10
    assert (await stage.jobs.pending("p3")).count == 1 and (await stage.jobs.pending("z")).count == 0


@staged()
async def test_an_older_store_of_more_paths_than_a_commit_holds_can_be_opened(stage: Stage) -> None:
    await submit_paths(stage, MAX_BATCH_KEYS + 500)
    await as_layout_1(stage)
    await stage.jobs.run_after(0, "p0", queue="q")
    [one] = await stage.jobs.claim("q")
    assert await stage.jobs.complete(one.id, one.lease)

    assert (await stage.jobs.pending()).count == MAX_BATCH_KEYS + 500
    assert await stage.faults() == []


@staged()
async def test_counting_goes_on_by_itself_and_after_a_crash_while_jobs_come_and_go(
    stage: Stage,
) -> None:
    await submit_paths(stage, 2_000)
    await as_layout_1(stage)
    await stage.jobs.run_after("1d", "p0", queue="q", id="more")
    await stage.jobs.run_after("1d", "p1999", queue="q")
    await stage.crash()
    await stage.open()
    assert (await stage.jobs.cancel("more")).cancelled
    await stage.sleep(0.1)

    counts = stage.disk.maps["scheduler/t"].range(b"paths/", b"paths0", 10_000, False)
    assert len(counts) == 2_000 > 3 * paths.WRITTEN_AT_ONCE and sum(int(value) for _, value in counts) == 2_001
    assert stage.disk.maps["scheduler/t"].get(b"meta/recount") is None
