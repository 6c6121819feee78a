"""The engine of one host on a `SharedDisk`: a connection that is slow, breaks, and leaves its statements behind.

A statement travels to the server, runs there, and its answer travels back. The host may stop, be cancelled or be cut
off at any of these points: what has left it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any, TypeVar

from tocsin.errors import StoreClosed, StoreUnavailable
from tocsin.storage.api import Range, Row
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.ownership.engine import Beat, Held, HostRow, Mail, MailBacklog, SlotRow, Unsettled
from tocsin.storage.shared_disk import SharedDisk

T = TypeVar("T")
PAGE = 500
"""Actors in one page of `wakes`."""


class Fate(Enum):
    """The end that a statement meets. All but the first two break the connection under it."""

    DONE = 1
    REFUSED = 2
    """The server says no; nothing is done."""
    UNHEARD = 3
    """Done; the answer is lost."""
    VANISHED = 4
    """Lost on its way there."""
    HOLDING = 5
    """The server goes on with it, holds its slots for a while, and then does it."""
    LATE = 6
    """Kept in some buffer on the way, and begun after a while: until then nobody can know of it."""


BREAKS = (Fate.UNHEARD, Fate.VANISHED, Fate.HOLDING, Fate.LATE)


@dataclass
class Faults:
    """Trouble between a host and the disk. All may be changed at any time."""

    random: Random
    share: Callable[[], float] = lambda: 0.0
    """The share of statements that fail, at present: half of them are refused, the others break."""
    latencies_s: Sequence[float] = (0.0, 0.0005, 0.003, 0.05)
    late_s: Sequence[float] = (0.05, 0.2, 1.0, 3.0)
    """The time that statements go on after their connection broke."""
    notice_s: Sequence[float] = (0.0, 0.5, 3.0)
    """The time until a host notices that its connection broke."""
    breaks: Sequence[Fate] = BREAKS

    def fate(self) -> Fate:
        dice, share = self.random.random(), self.share()
        if dice >= share:
            return Fate.DONE
        return Fate.REFUSED if dice < share / 2 else self.random.choice(self.breaks)

    def latency(self) -> float:
        return self.random.choice(self.latencies_s)


class DiskEngine:
    """A `SharedEngine` on a `SharedDisk`. Without `faults` all is well, and each statement takes one round of the loop.

    `cut` and `die` may be called from outside: the network between this host and the disk, and the end of the host.
    """

    def __init__(self, disk: SharedDisk, faults: Faults | None = None) -> None:
        self.disk, self.place, self.host = disk, disk.place, ""
        self.faults = faults or Faults(Random(0), latencies_s=(0.0,), late_s=(0.0,), notice_s=(0.0,))
        self.session_lost_at: float | None = None
        self._session = 0
        self._open = self._cut = self._dead = False
        self._hint: asyncio.Event | None = None
        self._waiting: dict[asyncio.Future[Any], Callable[[], Exception]] = {}
        """Answers that are to come, and how each fails if the connection breaks."""
        self._committing: set[int] = set()

    async def open(self) -> None:
        self._hint = asyncio.Event()
        self._open = True
        self.disk.connections[self] = None
        try:
            await self._ask(partial(self.disk.stored, ""))
        except BaseException:
            self._let_go()
            raise

    async def close(self) -> None:
        self._let_go()
        await asyncio.sleep(0)

    def _let_go(self) -> None:
        self._open = False
        self.disk.connections.pop(self, None)
        self._unlock()
        if self._hint is not None:
            self._hint.set()

    async def secret(self) -> bytes:
        return await self._ask(lambda: self.disk.secret)

    # ---- From outside ------------------------------------------------------------------------------

    @property
    def is_cut(self) -> bool:
        return self._cut

    def cut(self, keepalive_s: float = 0.0) -> None:
        """Cut this host off from the disk. The server notices after so long, and frees the session lock."""
        self._cut = True
        life = self.disk.life

        def notice() -> None:
            if self._cut and life == self.disk.life:
                self._unlock()

        asyncio.get_running_loop().call_later(keepalive_s, notice, context=self.disk.context)
        self._break()

    def mend(self) -> None:
        """End the cut: the host connects again, and takes its session lock again."""
        self._cut = False
        self._lock()

    def lose_session(self, seconds: float) -> None:
        """Break the connection that holds the session lock; the host takes the lock again after so long."""
        self._unlock()
        self._session_breaks()
        asyncio.get_running_loop().call_later(seconds, self._lock, context=self.disk.context)

    def _session_breaks(self) -> None:
        """Note that the session's connection is broken, once the host notices."""

        def notice() -> None:
            if self._session and self._open and self.disk.sessions.get(self._session) is not self:
                self.session_lost_at = loop.time()

        loop = asyncio.get_running_loop()
        loop.call_later(self.faults.random.choice(self.faults.notice_s), notice, context=self.disk.context)

    def die(self) -> None:
        """End the host at this instant, as `kill -9` does: no call returns any more; what has left the host goes on."""
        self._dead = True
        self._let_go()

    def broken_off(self) -> None:
        self._break()

    def reachable(self) -> None:
        delay = self.faults.random.choice(self.faults.notice_s)
        asyncio.get_running_loop().call_later(delay, self._lock, context=self.disk.context)

    def hinted(self) -> None:
        if self._hint is not None and not self._cut and not self.disk.away:
            self._hint.set()

    def _lock(self) -> None:
        if self._session and self._open and not self._cut and not self.disk.away:
            self.disk.sessions.setdefault(self._session, self)
            self.session_lost_at = None
            if self._hint is not None:
                self._hint.set()  # some may have been missed

    def _unlock(self) -> None:
        if self.disk.sessions.get(self._session) is self:
            del self.disk.sessions[self._session]

    def _break(self) -> None:
        """Fail what waits for an answer, once the host notices."""
        self._session_breaks()
        loop = asyncio.get_running_loop()
        for answer, error in list(self._waiting.items()):
            delay = self.faults.random.choice(self.faults.notice_s)
            loop.call_later(delay, self._answer, answer, None, error(), context=self.disk.context)
        self._waiting.clear()

    # ---- A statement -------------------------------------------------------------------------------

    async def _ask(
        self,
        run: Callable[[], T],
        *,
        slots: Iterable[int] = (),
        unknown: Callable[[str], Exception] = StoreUnavailable,
        writes: bool = False,
    ) -> T:
        """Send a statement and return its answer. `slots` are those that it locks, `unknown` makes the error that says
        that nobody knows what became of it."""
        loop = asyncio.get_running_loop()
        if self._dead:
            await loop.create_future()
        if not self._open:
            raise StoreClosed("the store is not open")
        answer: asyncio.Future[T] = loop.create_future()
        self._waiting[answer] = lambda: unknown("the connection broke")
        fate = self.faults.fate()
        life, slots = self.disk.life, list(slots)
        if not writes and fate in (Fate.HOLDING, Fate.LATE):
            fate = Fate.VANISHED

        def begin() -> None:
            if life != self.disk.life:
                return
            if self._cut or self.disk.away:
                self._lost(answer, StoreUnavailable("the store cannot be reached"))
            elif fate is Fate.REFUSED:
                self._reply(answer, None, StoreUnavailable("the store refused, as the simulation wanted"))
            elif fate is Fate.VANISHED:
                self._lost(answer, unknown("the connection broke"))
            elif fate is Fate.LATE:
                self._lost(answer, unknown("the connection broke"))
                self._later(end)
            elif self.disk.when_free(slots, begin):
                if fate is Fate.HOLDING:
                    self._lost(answer, unknown("the connection broke"))
                    self._hold(slots, end)
                else:
                    end()

        def end() -> None:
            """Do it now, whoever still hears of it."""
            if life != self.disk.life or not self.disk.when_free(slots, end):
                return
            try:
                result = run()
            except Exception as error:
                self._reply(answer, None, error)
                return
            if fate is Fate.UNHEARD:
                self._lost(answer, unknown("the connection broke"))
            else:
                self._reply(answer, result, None)

        loop.call_later(self.faults.latency(), begin, context=self.disk.context)
        try:
            return await answer
        finally:
            self._waiting.pop(answer, None)

    def _later(self, end: Callable[[], None]) -> None:
        delay = self.faults.random.choice(self.faults.late_s)
        asyncio.get_running_loop().call_later(delay, end, context=self.disk.context)

    def _hold(self, slots: Sequence[int], end: Callable[[], None]) -> None:
        """Keep these slots locked for a while, then do it and free them."""
        loop = asyncio.get_running_loop()
        freed: asyncio.Future[None] = loop.create_future()
        for slot in slots:
            self.disk.locked[slot] = freed

        def free() -> None:
            if not freed.done():
                for slot in slots:
                    del self.disk.locked[slot]
                end()
                freed.set_result(None)

        self._later(free)

    def _reply(self, answer: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self.faults.latency(), self._arrive, answer, result, error, context=self.disk.context)

    def _arrive(self, answer: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
        if answer in self._waiting:  # else the connection broke while the answer travelled
            self._answer(answer, result, error)

    def _lost(self, answer: asyncio.Future[Any], error: Exception) -> None:
        self._waiting.pop(answer, None)
        delay = self.faults.random.choice(self.faults.notice_s)
        asyncio.get_running_loop().call_later(delay, self._answer, answer, None, error, context=self.disk.context)

    def _answer(self, answer: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
        self._waiting.pop(answer, None)
        if answer.done() or self._dead:
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]  # None only where T is
        else:
            answer.set_exception(error)

    # ---- Rows --------------------------------------------------------------------------------------

    async def commit(self, owner: str, held: Sequence[Held], writes: Sequence[ActorWrites]) -> set[int]:
        slots = [one.slot for one in held]
        if slots != sorted(set(slots)):
            raise ValueError(f"the slots of a commit are not in ascending order, once each: {slots}")
        if strange := {one.name for one in writes if self.disk.slot_of(one.name) not in slots}:
            raise ValueError(f"a commit of the slots {slots} writes actors of others: {sorted(strange)}")
        if both := self._committing.intersection(slots):
            raise ValueError(f"a commit of these slots is under way already: {sorted(both)}")
        self._committing.update(slots)
        copied = [ActorWrites(one.name, dict(one.rows), one.wake_at) for one in writes]
        try:
            return await self._ask(
                partial(self.disk.commit, owner, list(held), copied), slots=slots, unknown=Unsettled, writes=True
            )
        finally:
            self._committing.difference_update(slots)

    async def settle(self, slots: Sequence[int]) -> list[SlotRow]:
        return await self._ask(lambda: [self.disk.state.slots[slot] for slot in sorted(set(slots))], slots=slots)

    async def get(self, actor: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        def read() -> dict[bytes, bytes]:
            rows = self.disk.state.rows.maps.get(actor)
            return {} if rows is None else {key: value for key in keys if (value := rows.get(key)) is not None}

        return await self._ask(read)

    async def scan_many(self, actor: str, ranges: Sequence[Range], max_bytes: int, reverse: bool) -> list[list[Row]]:
        return await self._ask(lambda: self.disk.state.rows.scan_many(actor, ranges, max_bytes, reverse))

    async def stored(self, actor: str) -> tuple[bool, int | None]:
        return await self._ask(partial(self.disk.stored, actor))

    async def names(self, start: str, limit: int) -> list[str]:
        return await self._ask(partial(self.disk.names, start, limit))

    async def wakes(self, slots: Sequence[int]) -> AsyncIterator[Sequence[tuple[str, int | None]]]:
        start = ""
        while page := await self._ask(partial(self.disk.wakes, slots, start, PAGE)):
            yield page
            if len(page) < PAGE:
                return
            start = page[-1][0]

    # ---- Who owns what -----------------------------------------------------------------------------

    async def register(self, host: HostRow, ttl_s: float) -> None:
        def enter() -> None:
            self.disk.register(host, ttl_s)
            self.host, self._session = host.host, host.session
            self._lock()

        self._unlock()
        self.session_lost_at = None
        await self._ask(enter, writes=True)

    async def beat(self, host: str, ttl_s: float) -> Beat | None:
        return await self._ask(partial(self.disk.beat, host, ttl_s), writes=True)

    async def hosts(self) -> list[HostRow]:
        return await self._ask(self.disk.hosts)

    async def drain(self, host: str) -> bool:
        return await self._ask(partial(self.disk.drain, host), writes=True)

    async def reap(self) -> list[str]:
        return await self._ask(self.disk.reap, writes=True)

    async def reap_without_session(self, host: str) -> bool:
        return await self._ask(partial(self.disk.reap_without_session, host), writes=True)

    async def forget(self, host: str) -> None:
        await self._ask(partial(self.disk.forget, host), writes=True)

    async def slots(self) -> list[SlotRow]:
        return await self._ask(lambda: list(self.disk.state.slots))

    async def take(self, slots: Sequence[int], host: str) -> list[SlotRow]:
        return await self._ask(partial(self.disk.take, list(slots), host), writes=True)

    async def release(self, slots: Sequence[int], host: str) -> list[int]:
        return await self._ask(partial(self.disk.release, list(slots), host), slots=slots, writes=True)

    # ---- Mail and hints ----------------------------------------------------------------------------

    async def put_mail(self, mail: Sequence[Mail], most: int, oldest_ms: int) -> list[bool]:
        return await self._ask(partial(self.disk.put_mail, list(mail), most, oldest_ms), writes=True)

    async def take_mail(self, slots: Sequence[int], limit: int) -> list[Mail]:
        return await self._ask(partial(self.disk.take_mail, list(slots), limit))

    async def end_mail(self, host: str, done: Sequence[tuple[Mail, bytes]]) -> list[Mail]:
        return await self._ask(partial(self.disk.end_mail, host, list(done)), writes=True)

    async def answers(self, ops: Sequence[str]) -> dict[str, bytes]:
        return await self._ask(partial(self.disk.answers, list(ops)))

    async def backlogs(self) -> list[MailBacklog]:
        return await self._ask(self.disk.backlogs)

    async def hint(self, hosts: Sequence[str]) -> None:
        share, random = self.faults.share(), self.faults.random
        late = {
            connection: None if random.random() < 0.5 else random.choice(self.faults.late_s)
            for connection in self.disk.connections
            if share and random.random() < share
        }
        await self._ask(partial(self.disk.hint, list(hosts), late))

    async def hints(self) -> AsyncIterator[None]:
        assert self._hint is not None, "the engine was not opened"
        while True:
            await self._hint.wait()
            if not self._open:
                return
            self._hint.clear()
            yield
