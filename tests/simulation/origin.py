"""The receiver of the simulation, and the network in between: it works, fails, accepts, stalls and answers twice.

There is one for all instances. In runs in which it remembers what it has done, it does so as the receiver kit does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.promises import Run, Wish
from tests.simulation.record import Record
from tests.simulation.traveller import NAME
from tocsin.dispatch.receiver.dedup import Claim, Dedup, Found, MemoryDedup
from tocsin.dispatch.testing import SimNetwork
from tocsin.dispatch.transport import Answer, NeverConnected
from tocsin.errors import ActorError, StaleLeaseError, StoreError

if TYPE_CHECKING:
    from tests.simulation.world import World

ACCEPTED_MS = 30_000
CLAIMED_MS = 25_000
"""Beyond the lease of a callback."""
UNHEARD = (ActorError, StoreError)
Content = Mapping[str, Any]


class Callback:
    """One delivery, verified."""

    def __init__(self, headers: Mapping[str, str], body: bytes) -> None:
        self.content: Content = msgspec.json.decode(body)
        self.webhook_id, self.lease = headers["webhook-id"], headers["tocsin-lease"]
        self.sent_ms = int(headers["webhook-timestamp"]) * 1000
        self.attempt = headers["tocsin-attempt"]


class Memory:
    """What was done, by `webhook-id`, and what it came to."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._dedup: Dedup = MemoryDedup()
        self._results: dict[str, object] = {}
        self.repeated = 0

    async def once(self, one: Callback, work: Callable[[], Awaitable[Answer]], done: Callable[[Any], Answer]) -> Answer:
        """Work it off, unless that was done before (`done` answers so) or is under way."""
        now = self._now_ms()
        found = await self._dedup.claim(Claim(one.webhook_id, one.lease, one.sent_ms, now + CLAIMED_MS), now_ms=now)
        if found is Found.DONE:
            self.repeated += 1
            return done(self._results[one.webhook_id])
        if found is not Found.NEW:
            return Answer(409, {"tocsin-declined": "1"}, b"")
        answer = await work()
        now = self._now_ms()
        if answer.status == 202:
            await self._dedup.hold(one.webhook_id, one.lease, until_ms=now + ACCEPTED_MS, now_ms=now)
        elif answer.status != 200:
            await self._dedup.release(one.webhook_id, one.lease, now_ms=now)
        return answer

    async def finish(self, one: Callback, result: object) -> None:
        self._results[one.webhook_id] = result
        await self._dedup.finish(one.webhook_id, one.lease, now_ms=self._now_ms())


class Origin:
    """Another process: it goes on when the caller is gone."""

    def __init__(self, world: World, record: Record, memory: Memory | None) -> None:
        self.world, self.record, self.memory = world, record, memory

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        task = self.world.apart(self._receive(headers, body))
        self.world.spare(task)
        return await asyncio.shield(task)

    async def _receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        # Signed with the host's clock; after a step of it the receiver would rightly refuse, so it follows.
        self.world.signer.verify(headers, body, now_s=int(headers["webhook-timestamp"]))
        one = Callback(headers, body)
        self.record.comes(one.content)
        if one.content["instanceName"] == NAME and self.world.traveller is not None:
            return await self.world.traveller.receive(one)
        promises = self.world.instance_of(one.content).promises
        with promises.watching():
            run = promises.arrived(one.webhook_id, one.content["id"], one.lease)
        try:
            answer = await self._once(one, run)
            run.answered = True
            return answer
        finally:
            run.running -= 1

    async def _once(self, one: Callback, run: Run) -> Answer:
        if self.memory is None:
            return await self._work(one, run)

        def repeated(result: object) -> Answer:
            promises = self.world.instance_of(one.content).promises
            with promises.watching():
                assert self.world.storm, f"in good weather {one.webhook_id} is called back twice"
            return self._says_done(one, result)

        return await self.memory.once(one, lambda: self._work(one, run), repeated)

    async def _done(self, one: Callback, result: object) -> None:
        """It has had its effect; that is remembered before anybody hears of it."""
        self.record.runs(one.content)
        if self.memory is not None:
            await self.memory.finish(one, result)

    def _says_done(self, one: Callback, result: object) -> Answer:
        if "schedule" not in one.content:
            self.world.instance_of(one.content).disk.pulled.says(one.lease, True, result)
        if result is None:
            return Answer(200, {}, b"ok")
        return Answer(200, {"content-type": "application/json"}, msgspec.json.encode(result))

    # ---- Accepted work ---------------------------------------------------------------------------

    def _accept(self, one: Callback, wish: Wish, run: Run) -> Answer:
        """Work goes on after the answer; it is completed later, twice, before its answer is there, or never."""
        run.running += 1
        run.accepted = True
        run.ends = self.world.clock.now_ms() + ACCEPTED_MS
        self.world.spare(self._complete_later(one, wish, run))
        return Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": str(ACCEPTED_MS)}, b"")

    async def _complete_later(self, one: Callback, wish: Wish, run: Run) -> None:
        try:
            await asyncio.sleep(self.world.random.choice((0, 0, 0.5, 5, 15)))
            if self.world.storm_now and self.world.random.random() < 0.3:
                return  # silent: the lease lapses
            for _ in range(self.world.random.choice((1, 1, 2))):
                await self._complete(one, wish)
        finally:
            run.running -= 1

    async def _complete(self, one: Callback, wish: Wish) -> None:
        instance = self.world.instance_of(one.content)
        result = self.world.random.choice((None, {"of": wish.id}))
        await self._done(one, result)
        for _ in range(5):
            try:
                instance.disk.pulled.says(one.lease, True, result)
                await instance.scheduler().complete(one.content["id"], one.lease, result=result)
            except StaleLeaseError:
                with instance.promises.watching():
                    assert self.world.storm, f"good weather, and the lease of {wish.n} was lost"
                return
            except UNHEARD:
                await asyncio.sleep(1)
            else:
                if one.lease not in self.world.completed:
                    self.world.completed.add(one.lease)
                    instance.promises.delivered[wish.n] += 1
                    self.world.note(f"completed {wish.n}")
                return

    # ---- Work ------------------------------------------------------------------------------------

    async def _work(self, one: Callback, run: Run) -> Answer:
        if "schedule" in one.content:
            return await self._work_planned(one)
        instance, n = self.world.instance_of(one.content), one.content["args"]["n"]
        wish = instance.promises.wishes[n]
        dice = self.world.random.random() if self.world.weather.fault else 1.0
        if dice < 0.06:
            await asyncio.sleep(self.world.random.choice((2, 8, 40)))  # beyond the deadline, even beyond the lease
        if dice < 0.12:
            return Answer(500, {}, b"broken")
        if dice < 0.16:
            return Answer(409, {"tocsin-declined": "1"}, b"")
        if dice < 0.20:
            return Answer(429, {"retry-after": "7"}, b"")
        if dice < 0.24 and wish.may_die:
            return Answer(410, {}, b"gone")
        if self.world.random.random() < 0.25:
            return self._accept(one, wish, run)
        await asyncio.sleep(self.world.random.choice((0, 0.05, 1)))
        instance.promises.delivered[n] += 1
        self.world.note(f"delivered {n} attempt {one.attempt}")
        result = self.world.random.choice((None, {"by": one.attempt}))
        await self._done(one, result)
        return self._says_done(one, result)

    async def _work_planned(self, one: Callback) -> Answer:
        dice = self.world.random.random() if self.world.weather.fault else 1.0
        if dice < 0.05:
            await asyncio.sleep(self.world.random.choice((2, 8, 40)))
        if dice < 0.10:
            return Answer(500, {}, b"broken")
        if dice < 0.13:
            return Answer(410, {}, b"gone")
        await asyncio.sleep(self.world.random.choice((0, 0.05, 1, 5)))
        instance = self.world.instance_of(one.content)
        instance.disk.schedules.delivered(one.content)
        self.world.note(f"came {one.content['schedule']['name']} {one.content['schedule']['slot']}")
        await self._done(one, None)
        return self._says_done(one, None)


class WatchedNetwork(SimNetwork):
    """Shows every callback to the promises of its instance before it leaves."""

    def __init__(self, world: World) -> None:
        super().__init__(world.origin.receive, world.random, fault=world.weather.now)
        self._world = world

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        content = msgspec.json.decode(body)
        if content["instanceName"] == NAME and self._world.traveller is not None:
            self._world.traveller.sent(content)
        else:
            promises = self._world.instance_of(content).promises
            with promises.watching():
                promises.sent(headers, content)
        if self._world.down:
            raise NeverConnected("the origin is away, as the simulation wanted")
        return await super().post(url, headers, body, **bounds)
