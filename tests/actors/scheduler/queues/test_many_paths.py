"""Chains of many function paths: each path is a row, so turns over many such jobs stop before their commit is too
large, and go on in the next."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.job_checks import Job
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


async def submit(sim: SimulatedHost, **options: object) -> None:
    for start in range(0, JOBS, 15):
        jobs = [Job(path="w:r", after=10, options={**options, "then": chain(f"p{start + n}")}) for n in range(15)]
        assert all(hasattr(one, "id") for one in await sim.jobs.submit_many(jobs))


@on_simulated_host()
async def test_all_expire_at_one_instant(sim: SimulatedHost) -> None:
    await submit(sim, queue="q", expires_at=sim.now + 60_000)
    await sim.sleep(61)

    assert (await sim.jobs.status()).backlog == 0 and not (await sim.jobs.pending()).pending


@on_simulated_host()
async def test_all_have_expired_before_a_worker_asks(sim: SimulatedHost) -> None:
    """The host was not there when they did."""
    await submit(sim, queue="q", expires_at=sim.now + 60_000)
    await sim.crash()
    await sim.sleep(120)
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=1)) if await sim.open() else None
    assert waiting is not None and await waiting == []
    await sim.sleep(1)

    assert (await sim.jobs.status()).backlog == 0 and not (await sim.jobs.pending()).pending


@on_simulated_host(lanes=256)
async def test_all_callbacks_die_together(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: Answer(400, {}, b"no")
    await submit(sim, retry=Retry(max_retries=0))
    await sim.sleep(20)

    status = await sim.jobs.status()
    assert (status.backlog, status.in_flight, status.dead) == (0, 0, JOBS)
    assert not (await sim.jobs.pending()).pending


@on_simulated_host(lanes=256)
async def test_all_are_found_damaged_together(sim: SimulatedHost) -> None:
    """When they are claimed: each goes to the dead with what was to follow it."""
    await submit(sim)
    rows = sim.disk.maps["scheduler/t"]
    for key, value in rows.range(b"job/", b"job0", 1_000, False):
        job = decode(JobRow, key, value)
        rows.apply({key: encode(msgspec.structs.replace(job, args=b"x" + job.args[1:]))})
    await sim.host.runtime.evict()  # the first jobs are in memory as well
    await sim.sleep(20)
    status = await sim.jobs.status()
    assert (status.backlog, status.in_flight, status.dead) == (0, 0, JOBS) and not sim.deliveries
    for letter in (await sim.jobs.dead(limit=1_000)).records:
        await sim.jobs.dead_cancel(letter.id)


@on_simulated_host()
async def test_all_are_lost_five_times_and_retried_from_the_dead_and_cancelled(sim: SimulatedHost) -> None:
    await submit(sim, queue="q")
    await sim.sleep(10)
    for _ in range(5):
        for _ in range(JOBS):
            await sim.jobs.claim("q", max=100, lease_ms=20_000, wait=0)
        await sim.sleep(21)
    assert (await sim.jobs.status()).dead == JOBS

    await sim.jobs.dead_retry_all(all=True, rate_per_second=1_000)
    await sim.sleep(10)
    assert (await sim.jobs.pending()).count == JOBS * 101

    assert (await sim.jobs.cancel_all(all=True)).cancelled == JOBS
    assert not (await sim.jobs.pending()).pending


@on_simulated_host()
async def test_what_a_claim_gives_back_expires_meanwhile(sim: SimulatedHost) -> None:
    """Given up while the commit of its leases is on its way, when all are over."""
    await submit(sim, queue="q", expires_at=sim.now + 60_000)
    await sim.sleep(11)
    got = [one for _ in range(3) for one in await sim.jobs.claim("q", max=100, lease_ms=600_000)]
    await sim.sleep(60)
    await sim.port.queues.give_back([(one.id, one.lease) for one in got])
    await sim.sleep(1)

    status = await sim.jobs.status()
    assert (status.backlog, status.in_flight) == (0, 0) and len(got) == JOBS


@on_simulated_host()
async def test_schedules_that_are_due_together(sim: SimulatedHost) -> None:
    for n in range(JOBS):
        await sim.jobs.schedules.put(f"s{n}", "w:r", every="1m", queue="q", then=chain(f"p{n}"))
    await sim.sleep(61)

    assert (await sim.jobs.status()).backlog == JOBS


@on_simulated_host()
async def test_a_batch_of_too_many_paths_is_refused_in_words(sim: SimulatedHost) -> None:
    jobs = [Job(path="w:r", after=10, options={"queue": "q", "then": chain(f"p{n}")}) for n in range(JOBS)]
    with pytest.raises(PayloadTooLargeError, match=f"{JOBS * 100 + 1} different function paths, at most 2000"):
        await sim.jobs.submit_many(jobs)


# ---- Counts that are made anew -------------------------------------------------------------------


async def as_layout_1(sim: SimulatedHost) -> None:
    """The store, as the version before counts by path left it; nobody has opened this scheduler since."""
    await sim.crash()
    rows = sim.disk.maps["scheduler/t"]
    rows.apply({key: None for key, _ in rows.range(b"paths/", b"paths0", 100_000, False)} | {b"meta/layout": b"1"})
    await sim.open()


async def submit_paths(sim: SimulatedHost, count: int) -> None:
    for start in range(0, count, 1_000):
        jobs = [Job(path=f"p{start + n}", after="1d", options={"queue": "q"}) for n in range(min(count - start, 1_000))]
        await sim.jobs.submit_many(jobs)


@on_simulated_host()
async def test_what_pends_in_an_older_store_is_counted_before_it_is_told(sim: SimulatedHost) -> None:
    await submit_paths(sim, 10)
    await as_layout_1(sim)

    assert (await sim.jobs.pending()).count == 10
    assert (await sim.jobs.pending("p3")).count == 1 and (await sim.jobs.pending("z")).count == 0


@on_simulated_host()
async def test_an_older_store_of_more_paths_than_a_commit_holds_can_be_opened(sim: SimulatedHost) -> None:
    await submit_paths(sim, MAX_BATCH_KEYS + 500)
    await as_layout_1(sim)
    await sim.jobs.run_after(0, "p0", queue="q")
    [one] = await sim.jobs.claim("q")
    assert await sim.jobs.complete(one.id, one.lease)

    assert (await sim.jobs.pending()).count == MAX_BATCH_KEYS + 500
    assert await sim.faults() == []


@on_simulated_host()
async def test_counting_goes_on_by_itself_and_after_a_crash_while_jobs_come_and_go(
    sim: SimulatedHost,
) -> None:
    await submit_paths(sim, 2_000)
    await as_layout_1(sim)
    await sim.jobs.run_after("1d", "p0", queue="q", id="more")
    await sim.jobs.run_after("1d", "p1999", queue="q")
    await sim.crash()
    await sim.open()
    assert (await sim.jobs.cancel("more")).cancelled
    await sim.sleep(0.1)

    counts = sim.disk.maps["scheduler/t"].range(b"paths/", b"paths0", 10_000, False)
    assert len(counts) == 2_000 > 3 * paths.WRITTEN_AT_ONCE and sum(int(value) for _, value in counts) == 2_001
    assert sim.disk.maps["scheduler/t"].get(b"meta/recount") is None
