"""A job whose answer did not come through has its result all the same, and so has what follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any, Final

import httpx
import pytest

from tests.dispatch.receiver.signed_callbacks import SECRET
from tocsin import Accepted, ActorHost, Job, LeaseClient, Received, Receiver
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed
from tocsin.errors import UnreachableError
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.testing import VirtualClock, simulate

TIMEOUT_MS: Final = 10_000
WAYS: Final = ("late", "lost", "declined", "accepted")


class Network:
    """Loses the first answer: the receiver has all of the request, and works on whatever happens here."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver, self._tasks = receiver, set[asyncio.Task[Answer]]()
        self.statuses: list[int] = []

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *,
        connect_timeout: float, timeout: float, max_body: int,
    ) -> Answer:  # fmt: skip
        task = asyncio.create_task(self._receiver.handle(headers, body))
        self._tasks.add(task)
        first = len(self._tasks) == 1
        done, _ = await asyncio.wait([task], timeout=timeout)
        if not done:
            raise DeadlinePassed("none in time")
        self.statuses.append(task.result().status)
        if first:
            raise BrokenExchange("reset before the answer came")
        return task.result()

    async def aclose(self) -> None:
        """Nothing is held."""


async def run(way: str, random: Random) -> tuple[Any, Any, int, list[int]]:
    """The result, what the follower was told of it, how often the handler ran, what was answered."""
    clock = VirtualClock()
    receiver, told, runs = Receiver([SECRET], clock=clock), list[Any](), list[str]()
    network, later = Network(receiver), set[asyncio.Task[None]]()

    @receiver.handler("sum")
    async def add(args: Any, job: Received) -> Any:
        runs.append(job.lease)
        if way == "accepted":
            later.add(asyncio.create_task(complete_late(job)))
            return Accepted(lease_ms=600_000)
        await asyncio.sleep({"late": 12, "lost": 1, "declined": 100}[way])
        return {"total": 42}

    async def complete_late(job: Received) -> None:
        await asyncio.sleep(40)
        with suppress(UnreachableError):  # so only its own record knows
            await leases.complete(job, result={"total": 42})

    @receiver.handler("tell")
    async def tell(args: Any, job: Received) -> None:
        told.append(job.parent and job.parent.result)

    async with ActorHost.open(
        MemoryProvider(MemoryDisk()), origin="https://receiver.example", secrets=[SECRET],
        transport=network, clock=clock, random=random,
    ) as host:  # fmt: skip
        down = httpx.MockTransport(lambda _: httpx.Response(502))
        async with LeaseClient("http://127.0.0.1", dedup=receiver.dedup, transport=down, clock=clock) as leases:
            jobs = host.scheduler("default")
            job_id = await jobs.run_after(0, "sum", timeout_ms=TIMEOUT_MS, keep_result="1h", then=[Job(path="tell")])
            await clock.sleep(600)
            result = await jobs.result(job_id)
        await receiver.aclose(0)
    assert result is not None
    return result, told, len(runs), network.statuses


@pytest.mark.parametrize("way", WAYS)
def test_a_lost_answer_loses_no_result(way: str) -> None:
    result, told, runs, statuses = simulate(1, lambda random: run(way, random))

    assert (result, told, runs) == ({"total": 42}, [{"total": 42}], 1)
    assert statuses[-2:] == [200, 200], "the sum, at last, and what follows it"
    assert (409 in statuses) == (way in ("declined", "accepted"))
