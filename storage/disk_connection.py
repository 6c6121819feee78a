"""A connection of one host to a `SharedDisk`, which is slow, breaks, and leaves its statements behind.

A statement travels to the server, runs there, and its answer travels back. The host may stop, be cancelled or be cut
off at any of these points: what has left it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any, TypeVar

from tocsin.errors import StoreClosed, StoreUnavailable
from tocsin.storage.shared_disk import SharedDisk

T = TypeVar("T")


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


class DiskConnection:
    """The connections of a host to a `SharedDisk`. Without `faults` all is well, and a statement takes two rounds.

    `cut` and `die` may be called from outside: the network between this host and the disk, and the end of the host.
    """

    def __init__(self, disk: SharedDisk, faults: Faults | None = None) -> None:
        self.disk, self.place, self.host = disk, disk.place, ""
        self.faults = faults or Faults(Random(0), latencies_s=(0.0,), late_s=(0.0,), notice_s=(0.0,))
        self.session_lost_at: float | None = None
        self.session_held_at = float("-inf")
        self.session = 0
        self.is_open = self._cut = self._dead = self._buried = False
        self.hint_came: asyncio.Event | None = None
        self._waiting: dict[asyncio.Future[Any], Callable[[], Exception]] = {}
        """Answers that are to come, and how each fails if the connection breaks."""

    async def open(self) -> None:
        self.hint_came = asyncio.Event()
        self.is_open = True
        self.disk.connections[self] = None
        try:
            await self.ask(partial(self.disk.stored, ""))
        except BaseException:
            self._let_go()
            raise

    async def close(self) -> None:
        self._let_go()
        await asyncio.sleep(0)

    def _let_go(self) -> None:
        self.is_open = False
        self.disk.connections.pop(self, None)
        self.unlock()
        if self.hint_came is not None:
            self.hint_came.set()

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
                self.unlock()

        asyncio.get_running_loop().call_later(keepalive_s, notice, context=self.disk.context)
        self._break()

    def mend(self) -> None:
        """End the cut: the host connects again, and takes its session lock again."""
        self._cut = False
        self.lock()

    def lose_session(self, seconds: float) -> None:
        """Break the connection that holds the session lock; the host takes the lock again after so long."""
        self.unlock()
        self._session_breaks()
        asyncio.get_running_loop().call_later(seconds, self.lock, context=self.disk.context)

    def _session_breaks(self) -> None:
        """Note that the session's connection is broken, once the host notices."""

        def notice() -> None:
            if self.session and self.is_open and self.disk.sessions.get(self.session) is not self:
                self.session_lost_at = loop.time()

        loop = asyncio.get_running_loop()
        loop.call_later(self.faults.random.choice(self.faults.notice_s), notice, context=self.disk.context)

    def die(self) -> None:
        """End the host at this instant, as `kill -9` does: no call returns any more; what has left the host goes on."""
        self._dead = True
        self._let_go()

    def bury(self) -> None:
        """Let what is left of a dead host end: calls raise StoreClosed from now on."""
        self._buried = True

    def broken_off(self) -> None:
        self._break()

    def reachable(self) -> None:
        delay = self.faults.random.choice(self.faults.notice_s)
        asyncio.get_running_loop().call_later(delay, self.lock, context=self.disk.context)

    def hinted(self) -> None:
        if self.hint_came is not None and not self._cut and not self.disk.away:
            self.hint_came.set()

    def lock(self) -> None:
        if self.session and self.is_open and not self._cut and not self.disk.away:
            if self.disk.sessions.get(self.session) is not self:
                self.session_held_at = asyncio.get_running_loop().time()
            self.disk.sessions.setdefault(self.session, self)
            self.session_lost_at = None
            if self.hint_came is not None:
                self.hint_came.set()  # some may have been missed

    def unlock(self) -> None:
        if self.disk.sessions.get(self.session) is self:
            del self.disk.sessions[self.session]

    def _break(self) -> None:
        """Fail what waits for an answer, once the host notices."""
        self._session_breaks()
        loop = asyncio.get_running_loop()
        for answer, error in list(self._waiting.items()):
            delay = self.faults.random.choice(self.faults.notice_s)
            loop.call_later(delay, self._answer, answer, None, error(), context=self.disk.context)
        self._waiting.clear()

    # ---- A statement -------------------------------------------------------------------------------

    async def ask(
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
        if self._dead and not self._buried:
            await loop.create_future()
        if not self.is_open:
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
