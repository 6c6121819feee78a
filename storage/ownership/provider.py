"""A `SharedProvider` on any engine that several hosts share: it joins the parts of this room to a store."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from math import ceil
from random import Random, SystemRandom
from typing import Any, Final

from tocsin.errors import StoreClosed, StoreError, StoreFull, StoreLocked, StoreUnavailable
from tocsin.storage import api
from tocsin.storage.combiner import ActorWrites, Combiner, Committing, Handle, Handles
from tocsin.storage.notes import NOTES, check_not_moved, read_notes
from tocsin.storage.ownership.commits import FencedCommits
from tocsin.storage.ownership.engine import HostState, SharedEngine, slot_of
from tocsin.storage.ownership.facts import facts_of, release_from_all
from tocsin.storage.ownership.keeper import Keeper, Parts
from tocsin.storage.ownership.mailbox import Hints, OwnedMailbox, Post
from tocsin.storage.ownership.membership import Announced, Membership
from tocsin.storage.ownership.slots import Slots, Tenure
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.ownership.whereabouts import Whereabouts
from tocsin.storage.shared import Located, SharedCounts, StoreFacts
from tocsin.storage.tasks import begin_soon

log = logging.getLogger("tocsin.storage")

LANES: Final = 2
"""Commits of different slots under way at a time. One waits for the disk while the other is made ready."""
FULL_S: Final = 5.0
"""A store without space is tried again after so long."""


class OwnedView(api.StoreView):
    """Committed state of one actor, whoever owns it."""

    def __init__(self, engine: SharedEngine, name: str) -> None:
        self.name, self._engine = name, engine

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._engine.get(self.name, keys)

    async def scan_many(
        self, ranges: Sequence[api.Range], *, max_bytes: int = api.MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[api.Row]]:
        return await self._engine.scan_many(self.name, ranges, max_bytes, reverse)


class OwnedStore(OwnedView, Committing):
    """The writing handle of one actor, good for one tenure of its slot."""

    def __init__(self, provider: OwnedProvider, handle: Handle, tenure: Tenure, wake_at: int | None) -> None:
        OwnedView.__init__(self, provider.engine, handle.name)
        Committing.__init__(self, provider.lane(tenure.slot), provider.handles, handle)
        self.grant = api.Grant(tenure.owner, tenure.epoch)
        self.wake_at = wake_at
        self._kept = provider.slots.handles.setdefault(tenure, {})
        self._kept[handle.name] = handle

    async def close(self) -> None:
        await Committing.close(self)
        if self._kept.get(self.name) is self._handle:
            del self._kept[self.name]


class OwnedProvider:
    """One host of a store that several hosts share."""

    def __init__(
        self,
        engine: SharedEngine,
        *,
        timing: Timing | None = None,
        random: Random | None = None,
        durable: bool = True,
        lanes: int = LANES,
    ) -> None:
        self.engine, self.timing = engine, timing or Timing()
        self.capabilities = api.Capabilities(durable=durable, shared=True)
        self.handles = Handles()
        self.counts = SharedCounts()
        self.slots = Slots(engine.wakes, self.counts)
        self._membership = Membership(
            engine, self.timing, random or SystemRandom(), self.counts,
            died=self._died, changed=self._changed, check_again=self._check_not_moved,
        )  # fmt: skip
        self._membership.announced = Announced(f"{socket.gethostname()}:{os.getpid()}")
        self._where = Whereabouts(self.slots, self._membership, self._look)
        self._commits = FencedCommits(engine, self.slots, self.counts, lambda: self._membership.lease_runs, self._lost)
        self._lanes = [Combiner(self._write, self.capabilities) for _ in range(lanes)]
        self._hints = Hints(engine)
        self._keeper = Keeper(
            Parts(
                engine, self.timing, self._membership, self.slots, self._where, self._hints, self.counts,
                self._settled, self._commits.give_up,
            )
        )  # fmt: skip
        self.mailbox = OwnedMailbox(
            engine,
            Post(lambda: self._membership.host, self._where.owner_of, self._with_mail, lambda: self._membership.sure),
            self._hints,
            self.counts,
            again_s=self.timing.ttl_s,
        )
        self.owner = ""
        self._secret = b""
        self._full_until = float("-inf")
        self._why_full: StoreFull | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False

    # ---- What is known ---------------------------------------------------------------------------

    @property
    def place(self) -> str:
        return self.engine.place

    @property
    def lease_good(self) -> bool:
        return self._started and self._membership.sure

    @property
    def full(self) -> bool:
        return self._why_full is not None and asyncio.get_running_loop().time() < self._full_until

    @property
    def trouble(self) -> StoreError | None:
        if self.full:
            return StoreFull(str(self._why_full))
        if self._started and not self._membership.sure:
            return StoreUnavailable(
                f"{self.place} has not answered this host for {self._membership.beat_ms / 1000:.1f} s: other hosts may "
                "have taken over what it had"
            )
        return None

    @property
    def store_ms(self) -> int | None:
        return self._membership.store_ms

    @property
    def clocks_differ_ms(self) -> int:
        return ceil(self.timing.answer_s * 1000)  # each is off by half of its way there and back at most

    @property
    def secret(self) -> bytes:
        return self._secret

    def announce(self, url: str | None, weight: int = 1) -> None:
        self._membership.announced = Announced(self._membership.announced.name, url, weight)

    def announce_rules(self, rules: str) -> None:
        said = self._membership.announced
        self._membership.announced = Announced(f"{said.name.partition(' ')[0]} {rules}", said.url, said.weight)

    def lane(self, slot: int) -> Combiner:
        return self._lanes[slot % len(self._lanes)]

    # ---- Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Enter this host, and take what is its share and free."""
        self._full_until, self._why_full = float("-inf"), None
        self._membership.start()
        self.slots.start()
        self._where.start()
        self._keeper.start()
        self._commits.start()
        self.mailbox.start()
        await self.engine.open()
        try:
            self._secret = await self.engine.secret()
            await self._membership.enter()
            self.owner = self._membership.host
            self.handles.open_all()
            self._started = True
            with suppress(StoreUnavailable):  # the keeper looks again
                await self._keeper.look()
        except BaseException:
            self._started = False
            self._membership.end()
            await self.engine.close()
            raise
        self._hints.send()
        self._tasks = [
            begin_soon(self._go_on(self._membership.beat_for_ever)),
            begin_soon(self._go_on(self._keeper.run)),
            begin_soon(self._go_on(self._follow_hints)),
        ]

    async def stop(self) -> None:
        """Finish commits in flight, leave all slots to others, and go. A store that does not answer is waited for no
        longer than a ttl: by then others have taken over."""
        if not self._started:
            return
        self._membership.draining = True
        self._keeper.end()
        self._commits.stop()
        try:
            async with asyncio.timeout(self.timing.ttl_s):
                await asyncio.gather(*(lane.drain() for lane in self._lanes))
                await asyncio.wait([self._tasks[1]])
        except TimeoutError:
            log.error("%s does not answer: commits under way may or may not be in it", self.place)
        for lane in self._lanes:
            await lane.give_up()
        self.handles.close_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._go()
        self._started = False
        self._membership.end()
        self.slots.end()
        self.mailbox.stop()
        self._where.moved()
        await self._hints.flush()
        await self.engine.close()

    async def abandon(self) -> None:
        """End like a process that is killed: nothing is released, and what was under way is not waited for."""
        self._started = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(lane.give_up() for lane in self._lanes), return_exceptions=True)
        self.handles.close_all()
        self.slots.end()
        self.mailbox.stop()

    async def _go(self) -> None:
        """Leave the slots without an owner, and tell the others."""
        host = self._membership.host
        held, tenures = sorted(self.slots.held), [*self.slots.held.values()]
        for tenure in tenures:
            tenure.leaving = True  # others may have them before the answer is here
        try:
            async with asyncio.timeout(self.timing.ttl_s):
                if held:
                    await self._keeper.release(held, host, tenures)
                await self.engine.forget(host)
        except (StoreError, TimeoutError) as error:
            log.error("%s: this host could not leave, so others wait until its lease ends: %r", self.place, error)
        self.slots.released(tenures, StoreClosed("the store is not open"))
        self._hints.send()

    async def _go_on(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Keep a part at work whatever happens to it: without it this host would lose what it owns."""
        while True:
            try:
                return await work()
            except Exception:
                log.exception("a part of the ownership of this host failed, and goes on")
                self._membership.interrupted()
                await asyncio.sleep(self.timing.look_s)

    async def _follow_hints(self) -> None:
        while True:
            try:
                async for _ in self.engine.hints():
                    if not self._membership.sure:
                        self._membership.hurry()  # others may have declared this host dead while its session was gone
                    self.mailbox.hinted()
                    self._keeper.hinted()
            except StoreError as error:
                log.warning("%s: no hints come, which costs some time: %s", self.place, error)
            await asyncio.sleep(self.timing.beat_s)

    def _died(self, host: str) -> None:
        """End everything that the host of this id had."""
        tenures = [tenure for tenure in self.slots.held.values() if tenure.owner == host]
        self.slots.lose(tenures, StoreLocked("this host was declared dead, and what it owned is others' by now"))
        self._where.moved()

    async def _check_not_moved(self) -> None:
        """Refuse to go on with a store that was moved while this host was dead, and nobody waited for it."""
        check_not_moved(await read_notes(self.view(NOTES)), f"the store {self.place}")

    def _changed(self) -> None:
        self.owner = self._membership.host or self.owner
        self._keeper.read_map()
        self._hints.send()

    def _lost(self, tenures: Sequence[Tenure]) -> None:
        self._where.note([tenure.slot for tenure in tenures], None)
        self._keeper.read_map()

    def _look(self) -> None:
        self._keeper.hurry()

    # ---- Rows ------------------------------------------------------------------------------------

    async def _write(self, writes: Sequence[ActorWrites]) -> None:
        try:
            await self._commits.write(writes)
        except StoreFull as error:
            if not self.full:
                log.error("%s has no space: no new work is accepted until it has. %s", self.place, error)
            self._why_full, self._full_until = error, asyncio.get_running_loop().time() + FULL_S
            raise
        self._why_full = None

    def _settled(self, tenures: Sequence[Tenure]) -> bool:
        handles = self.slots.handles
        return not any(handle.pending for tenure in tenures for handle in handles.get(tenure, {}).values())

    def _with_mail(self) -> dict[int, int]:
        return {slot: tenure.epoch for slot, tenure in self.slots.held.items() if not tenure.leaving}

    def _mine(self, name: str) -> Tenure:
        if not self._started:
            raise StoreClosed("the store is not open")
        tenure = self.slots.held.get(slot_of(name))
        if tenure is not None and not tenure.leaving:
            if self._membership.sure:
                return tenure
            raise StoreUnavailable(f"{name}: {self.trouble or self.place}")
        found = self._where.locate(name)
        if found.host is not None:
            raise StoreLocked(f"{name} is with host {found.host}")
        raise StoreLocked(f"{name} is not here, and this host does not know where it is: its owner changes just now")

    async def open(self, name: str, *, create: bool = True) -> api.OrderedStore:
        tenure = self._mine(name)
        async with self.handles.renew(name) as handle:
            exists, wake_at = await self.engine.stored(name)
            if not create and not exists:
                raise KeyError(name)
            if self._mine(name) is not tenure:
                raise StoreLocked(f"{name} changed its owner just now")
        return OwnedStore(self, handle, tenure, wake_at)

    def view(self, name: str) -> api.StoreView:
        return OwnedView(self.engine, name)

    async def exists(self, name: str) -> bool:
        return (await self.engine.stored(name))[0]

    async def events(self) -> AsyncIterator[api.Event]:
        if not self._started:
            raise StoreClosed("the store is not open")
        async for event in self.slots.events():
            yield event

    async def names(self, start: str, limit: int) -> list[str]:
        return await self.engine.names(start, limit)

    def stats(self) -> api.StoreStats:
        return api.summed([lane.stats() for lane in self._lanes])

    # ---- The cluster -----------------------------------------------------------------------------

    def locate(self, name: str) -> Located:
        return self._where.locate(name)

    def is_host(self, host: str) -> bool:
        row = self._where.hosts.get(host)
        if row is None:
            self._keeper.hurry()  # it may have come just now
        return row is not None and row.state is not HostState.DEAD

    @property
    def has_others(self) -> bool:
        me = self._membership.host
        return any(row.state is HostState.UP for row in self._where.hosts.values() if row.host != me)

    async def relocated(self, name: str, since: Located, wait_s: float) -> Located:
        return await self._where.relocated(name, since, wait_s)

    async def facts(self) -> StoreFacts:
        return await facts_of(self.engine, self._membership.host, self._membership.beat_ms)

    async def hand_over(self) -> None:
        if not self._started:
            raise StoreClosed("the store is not open")
        self._membership.draining = True
        await self._keeper.tell_and_hand_over(self.engine.drain(self._membership.host))
        await self.slots.until_none()

    async def drain_host(self, host: str) -> bool:
        drained = await self.engine.drain(host)
        if drained and host == self._membership.host:
            self._membership.draining = True
            self._keeper.hurry()
        elif drained:
            self._hints.send([host])
        return drained

    async def release_slots(self, slots: Sequence[int]) -> Sequence[int]:
        released = await release_from_all(self.engine, slots)
        self._keeper.read_map()
        self._hints.send()
        return released
