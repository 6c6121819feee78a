"""The receiver of the simulation, and the network in between: it works, fails, accepts, stalls and answers twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.promises import Run, Wish
from tocsin.actors.testing import Process
from tocsin.dispatch.testing import SimNetwork
from tocsin.dispatch.transport import Answer, NeverConnected
from tocsin.errors import ActorError, StaleLeaseError, StoreError

if TYPE_CHECKING:
    from tests.simulation.world import World

ACCEPTED_MS = 30_000
UNHEARD = (ActorError, StoreError)


class Origin:
    """Another process: it goes on when the caller is gone."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        task = asyncio.ensure_future(self._receive(headers, body))
        self.world.receiving.add(task)
        task.add_done_callback(self.world.receiving.discard)
        return await asyncio.shield(task)

    async def _receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        # Signed with the host's clock; after a step of it the receiver would rightly refuse, so it follows.
        self.world.signer.verify(headers, body, now_s=int(headers["webhook-timestamp"]))
        with self.world.promises.watching():
            run = self.world.promises.arrived(headers, body)
        try:
            answer = await self._work(headers, body, run)
            run.answered = True
            return answer
        finally:
            run.running -= 1

    def _accept(self, headers: Mapping[str, str], job_id: str, wish: Wish, run: Run) -> Answer:
        """Work goes on after the answer; it is completed later, twice, before its answer is there, or never."""
        run.running += 1
        run.accepted = True
        run.ends = self.world.clock.now_ms() + ACCEPTED_MS
        worker = asyncio.ensure_future(self._complete_later(headers["tocsin-lease"], job_id, wish, run))
        self.world.receiving.add(worker)
        worker.add_done_callback(self.world.receiving.discard)
        return Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": str(ACCEPTED_MS)}, b"")

    async def _complete_later(self, lease: str, job_id: str, wish: Wish, run: Run) -> None:
        try:
            await asyncio.sleep(self.world.random.choice((0, 0, 0.5, 5, 15)))
            if self.world.storm_now and self.world.random.random() < 0.3:
                return  # silent: the lease lapses
            for _ in range(self.world.random.choice((1, 1, 2))):
                await self._complete(lease, job_id, wish)
        finally:
            run.running -= 1

    async def _complete(self, lease: str, job_id: str, wish: Wish) -> None:
        result = self.world.random.choice((None, {"of": job_id}))
        for _ in range(5):
            try:
                self.world.disk.pulled.says(lease, True, result)
                await self.world.current.scheduler("sim").complete(job_id, lease, result=result)
            except StaleLeaseError:
                with self.world.promises.watching():
                    assert self.world.storm, f"good weather, and the lease of {wish.n} was lost"
                return
            except UNHEARD:
                await asyncio.sleep(1)
            else:
                if lease not in self.world.completed:
                    self.world.completed.add(lease)
                    self.world.promises.delivered[wish.n] += 1
                    self.world.note(f"completed {wish.n}")
                return

    async def _work(self, headers: Mapping[str, str], body: bytes, run: Run) -> Answer:
        content = msgspec.json.decode(body)
        if "schedule" in content:
            return await self._work_planned(content)
        n = int(body.partition(b'"n":')[2].partition(b"}")[0])
        wish = self.world.promises.wishes[n]
        dice = self.world.random.random() if self.world.weather.fault else 1.0
        if dice < 0.06:
            await asyncio.sleep(self.world.random.choice((2, 8, 40)))  # beyond the deadline, even beyond the lease
        if dice < 0.12:
            return Answer(500, {}, b"broken")
        if dice < 0.16:
            return Answer(409, {"tocsin-declined": "1"}, b"")
        if dice < 0.20:
            return Answer(429, {"retry-after": "7"}, b"")
        if dice < 0.24 and wish.mortal:
            return Answer(410, {}, b"gone")
        if self.world.random.random() < 0.25:
            return self._accept(headers, content["id"], wish, run)
        await asyncio.sleep(self.world.random.choice((0, 0.05, 1)))
        self.world.promises.delivered[n] += 1
        self.world.note(f"delivered {n} attempt {headers['tocsin-attempt']}")
        result = self.world.random.choice((None, {"by": headers["tocsin-attempt"]}))
        self.world.disk.pulled.says(headers["tocsin-lease"], True, result)
        if result is None:
            return Answer(200, {}, b"ok")
        return Answer(200, {"content-type": "application/json"}, msgspec.json.encode(result))

    async def _work_planned(self, content: Mapping[str, Any]) -> Answer:
        dice = self.world.random.random() if self.world.weather.fault else 1.0
        if dice < 0.05:
            await asyncio.sleep(self.world.random.choice((2, 8, 40)))
        if dice < 0.10:
            return Answer(500, {}, b"broken")
        if dice < 0.13:
            return Answer(410, {}, b"gone")
        await asyncio.sleep(self.world.random.choice((0, 0.05, 1, 5)))
        self.world.disk.schedules.delivered(content)
        self.world.note(f"came {content['schedule']['name']} {content['schedule']['slot']}")
        return Answer(200, {}, b"ok")


class WatchedNetwork(SimNetwork):
    """Shows every callback to the promises before it leaves."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world.origin.receive, world.random, alive=process.is_alive, fault=world.weather.now)
        self._world, self._process = world, process

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        if self._process.alive:
            with self._world.promises.watching():
                self._world.promises.sent(headers, body)
        if self._world.down:
            raise NeverConnected("the origin is away, as the simulation wanted")
        return await super().post(url, headers, body, **bounds)
