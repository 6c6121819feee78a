"""What comes after a store is lost: a host on one that is made anew, or restored from a backup, whose users go on with
the ids and names of before. Its receiver is the one of before, and remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.simulation.origin import Callback, Memory
from tests.simulation.planner import NAMES
from tests.simulation.record import RecordedDisk
from tests.simulation.tally import Tally
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.testing import VirtualClock
from tocsin.dispatch.receiver.received import fence_of
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.testing import SimNetwork
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, DuplicateScheduleIdError
from tocsin.storage.testing import FaultyProvider

IDS = 6
PLANNED_S = 20
PATIENCE_S = 900


@dataclass
class Sequel:
    """In good weather, and without workers: what waits for one is left."""

    disk: RecordedDisk
    memory: Memory
    instances: Sequence[str]
    clock: VirtualClock
    random: Random
    secret: str

    def __post_init__(self) -> None:
        self.before = dict(self.disk.record.fences)
        """Of the store that is lost: whoever has stored one refuses what comes with a lower one."""

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        Signer([self.secret]).verify(headers, body, now_s=int(headers["webhook-timestamp"]))
        one = Callback(headers, body)

        instance = one.content["instanceName"]
        if fence_of(one.lease) <= self.before.get(instance, (0, 0)):
            self.disk.record.broken.append(f"{one.lease} of {instance} comes after {self.before[instance]}")

        async def work() -> Answer:
            self.disk.record.runs(one.content)
            await self.memory.finish(one, None)
            return Answer(200, {}, b"ok")

        return await self.memory.once(one, work, lambda _: Answer(200, {}, b"ok"))

    async def run(self, numbers: int) -> int:
        """The number of the last job."""
        provider = FaultyProvider(self.disk, self.random)
        async with ActorHost.open(
            provider, origin="https://receiver.example", secrets=[self.secret], clock=self.clock, random=self.random,
            transport=SimNetwork(self.receive, self.random), actors=[Tally],
        ) as host:  # fmt: skip
            made: list[tuple[str, str, int]] = []
            for name in self.instances:
                await self.plan(host.scheduler(name))
                for n in range(IDS):
                    numbers += 1
                    if await self.schedule(host.scheduler(name), f"job{n + 1}", numbers):
                        made.append((name, f"job{n + 1}", numbers))
            await asyncio.sleep(PLANNED_S)
            await self.are_done(made)
        return numbers

    async def plan(self, jobs: Scheduler) -> None:
        name = self.random.choice(NAMES)
        try:
            await jobs.schedules.put(name, every=3, path="sim:planned", args={"v": 0})
        except ConflictError:
            return  # somebody's of before

    async def schedule(self, jobs: Scheduler, job_id: str, n: int) -> bool:
        try:
            await jobs.run_after(0, "sim:run", {"n": n}, id=job_id)
        except DuplicateScheduleIdError:
            return False  # it stood in the backup
        return True

    async def are_done(self, made: Sequence[tuple[str, str, int]]) -> None:
        waited = 0
        while left := [key for key in made if key not in self.disk.record.booked]:
            assert waited < PATIENCE_S, f"these have not ended: {left}"
            await asyncio.sleep(30)
            waited += 30
