"""Five walks of one job, each with the rows it leaves on the disk. Read this file first.

A job waits in its line (`line/`), is claimed by exchanging that place for a lease (`lease/`), is called back or pulled,
and is settled: then its rows are gone, and `hist/` says how it ended. docs/rows.md has every kind of row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from tocsin import ActorHost, Retry, Scheduler
from tocsin.dispatch.transport import Answer
from tocsin.testing import Delivery, FakeReceiver, FaultyProvider, MemoryDisk, SimNetwork, VirtualClock, simulate

SECRET = "whsec_" + "b25lIGpvYiBmcm9tIHN1Ym1pdCB0byBkb25l"
OF_A_JOB = ("job", "line", "at", "lease", "dead")


class World:
    """A host on a disk in memory, its receiver, and a clock that jumps from one timer to the next."""

    def __init__(self, random: Random) -> None:
        self.random, self.clock, self.disk = random, VirtualClock(), MemoryDisk()
        self.answer = Answer(200, {}, b'{"paid": true}')
        self.receiver = FakeReceiver([SECRET], now_ms=self.clock.now_ms, answer=self._answered)
        self.seen_at_receiver: list[list[str]] = []

    def _answered(self, delivery: Delivery) -> Answer:
        self.seen_at_receiver.append(self.rows())
        return self.answer

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[Scheduler]:
        """Open a host, and give the scheduler `walks` on it."""
        async with ActorHost.open(
            FaultyProvider(self.disk, self.random),
            origin="https://app.example",
            secrets=[SECRET],
            transport=SimNetwork(self.receiver, self.random),
            clock=self.clock,
            random=self.random,
        ) as host:
            yield host.scheduler("walks")

    def rows(self) -> list[str]:
        """Return which kinds of rows of jobs are durable now."""
        keys = (key for key, _ in self.disk.maps["scheduler/walks"].range(b"\x01", b"\xff", 1_000, False))
        return sorted({kind for key in keys if (kind := key.split(b"/")[0].decode()) in OF_A_JOB})


def walk(scenario: Callable[[World, Scheduler], Coroutine[Any, Any, None]]) -> None:
    """Run a story in virtual time."""

    async def main(random: Random) -> None:
        world = World(random)
        async with world.scheduler() as jobs:
            await scenario(world, jobs)

    simulate(1, main)


def test_a_job_is_on_disk_before_its_submission_is_answered() -> None:
    async def scenario(world: World, jobs: Scheduler) -> None:
        job_id = await jobs.run_after("1h", "invoices:send", {"invoice": 42})

        assert world.rows() == ["job", "line"]
        record = await jobs.get(job_id)
        assert record is not None and (record.state, record.args) == ("pending", {"invoice": 42})

    walk(scenario)


def test_a_due_job_is_leased_then_called_back_then_gone() -> None:
    async def scenario(world: World, jobs: Scheduler) -> None:
        due = world.clock.now_ms() + 3_600_000
        job_id = await jobs.run_at(due, "invoices:send", {"invoice": 42})
        await world.clock.sleep(3_610)

        [delivery] = world.receiver.deliveries
        assert delivery.body["args"] == {"invoice": 42} and delivery.body["scheduledFor"] == due
        assert world.seen_at_receiver == [["job", "lease"]]  # its claim was durable before it was sent
        assert world.rows() == []
        [attempt] = await jobs.history(job_id)
        assert (attempt.outcome, attempt.status) == ("done", 200)

    walk(scenario)


def test_a_job_that_fails_waits_again_dies_and_is_retried_by_hand() -> None:
    async def scenario(world: World, jobs: Scheduler) -> None:
        world.answer = Answer(500, {}, b"no paper")
        job_id = await jobs.run_after(0, "invoices:send", retry=Retry(max_retries=1, base_ms=30_000))
        await world.clock.sleep(10)
        assert world.rows() == ["at", "job", "line"]  # back in its line; `at/` says why, and when it is next
        await world.clock.sleep(30)
        assert world.rows() == ["dead", "job"]

        world.answer = Answer(200, {}, b"ok")
        assert (await jobs.dead_retry(job_id)).retried
        await world.clock.sleep(10)
        assert world.rows() == []
        assert [attempt.outcome for attempt in await jobs.history(job_id)] == ["failed", "failed", "done"]
        assert len({delivery.webhook_id for delivery in world.receiver.deliveries}) == 1

    walk(scenario)


def test_a_slot_of_a_schedule_becomes_a_job_and_is_accounted_for() -> None:
    async def scenario(world: World, jobs: Scheduler) -> None:
        await jobs.schedules.put("report", "reports:send", every="1h")
        await world.clock.sleep(3_610)

        [delivery] = world.receiver.deliveries
        [occurrence] = (await jobs.schedules.occurrences("report")).occurrences
        assert (occurrence.state, occurrence.slot) == ("fired", delivery.body["schedule"]["slot"])
        assert world.rows() == []

    walk(scenario)


def test_a_job_of_a_queue_is_pulled_and_settled_by_its_lease() -> None:
    async def scenario(world: World, jobs: Scheduler) -> None:
        waiting = asyncio.ensure_future(jobs.claim("mail", wait="1m"))
        await world.clock.sleep(1)  # it waits at the host: nobody polls
        job_id = await jobs.run_after(0, "mail:send", {"to": "ada"}, queue="mail", keep_result="1h")

        [claimed] = await waiting
        assert (claimed.id, claimed.args) == (job_id, {"to": "ada"})
        assert world.rows() == ["job", "lease"]
        assert await jobs.complete(job_id, claimed.lease, result={"sent": True})
        assert world.rows() == []
        assert await jobs.result(job_id) == {"sent": True}
        assert world.receiver.deliveries == []

    walk(scenario)
