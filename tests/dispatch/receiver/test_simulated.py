"""A host and a receiver in virtual time, and a network that loses, delays and repeats: each job has its effect once,
and what it came to."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import httpx
import pytest

from tests.dispatch.receiver.signed_callbacks import SECRET
from tocsin import Accepted, ActorHost, LeaseClient, Received, Receiver, RetryLater
from tocsin.testing import FaultyProvider, MemoryDisk, SimNetwork, VirtualClock, simulate

JOBS = 25
STORM_S = 1_800


class Work:
    """Handlers that take their time, fail now and then, or accept; what had its effect is counted."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.leases: LeaseClient
        self.begun, self.effects = Counter[str](), Counter[str]()
        self.at_work: set[str] = set()
        self.overlaps: list[str] = []
        self._later: set[asyncio.Task[None]] = set()

    async def direct(self, args: Any, job: Received) -> dict[str, str]:
        await self._work(job)
        return {"done": job.id}

    async def accepted(self, args: Any, job: Received) -> Accepted:
        if self._random.random() < 0.2:
            raise RetryLater("1m")
        task = asyncio.get_running_loop().create_task(self._complete_later(job))
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return Accepted(lease_ms=600_000)

    async def _complete_later(self, job: Received) -> None:
        try:
            await self._work(job)
        except ValueError:
            await self._settle(job, False)
        else:
            await self._settle(job, True)

    async def _settle(self, job: Received, ok: bool) -> None:
        try:
            result = {"done": job.id} if ok else None
            await self.leases.complete(job, ok=ok, delay=None if ok else 5, result=result)
        except Exception as error:  # the lease may be over, if the answer that it was accepted got lost
            assert type(error).__name__ == "StaleLeaseError"

    async def _work(self, job: Received) -> None:
        if job.webhook_id in self.at_work:
            self.overlaps.append(job.webhook_id)
        self.at_work.add(job.webhook_id)
        self.begun[job.webhook_id] += 1
        try:
            await asyncio.sleep(self._random.choice((0.01, 2.0, 90.0)))
            if self._random.random() < 0.3:
                raise ValueError("as the simulation wanted")
            self.effects[job.webhook_id] += 1
        finally:
            self.at_work.discard(job.webhook_id)


async def run(random: Random) -> None:
    clock, work = VirtualClock(), Work(random)
    storm_ends = clock.monotonic() + STORM_S
    receiver = Receiver([SECRET], clock=clock)
    receiver.register({"direct": work.direct, "accepted": work.accepted})
    network = SimNetwork(receiver.handle, random, fault=lambda: 0.4 if clock.monotonic() < storm_ends else 0.0)
    async with ActorHost.open(
        FaultyProvider(MemoryDisk(), random), origin="https://receiver.example", secrets=[SECRET],
        transport=network, clock=clock, random=random,
    ) as host:  # fmt: skip
        app = httpx.ASGITransport(host.asgi(insecure=True))
        async with LeaseClient("http://127.0.0.1", dedup=receiver.dedup, transport=app, clock=clock) as leases:
            work.leases = leases
            jobs = host.scheduler("default")
            ids = [
                await jobs.run_after(n, ("direct", "accepted")[n % 2], timeout_ms=60_000, keep_result="7d")
                for n in range(JOBS)
            ]
            await clock.sleep(STORM_S)
            await jobs.dead_retry_all(all=True)
            await clock.sleep(20_000)
            for job_id in ids:
                if await jobs.get(job_id) is not None:
                    await jobs.dead_retry(job_id)
            await clock.sleep(20_000)
            left = [await jobs.get(job_id) for job_id in ids]
            results = {job_id: await jobs.result(job_id) for job_id, one in zip(ids, left, strict=True) if one is None}
        await receiver.aclose(0)

    assert work.overlaps == []
    assert results == {job_id: {"done": job_id} for job_id in results}, "whatever became of the answers"
    assert set(work.effects.values()) == {1} and len(work.effects) >= JOBS - sum(one is not None for one in left)
    assert sum(work.begun.values()) > JOBS, "nothing went wrong: no storm"


@pytest.mark.parametrize("seed", range(12))
def test_every_job_has_its_effect_once(seed: int) -> None:
    simulate(seed, run)
