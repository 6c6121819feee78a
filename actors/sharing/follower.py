"""The calls of a process that does not hold the store: they are sent to the holder. Over the gap between two holders
each is brought home, or its caller is told what is not known of it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, Final, Protocol
from weakref import WeakSet

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.sharing.link import Gone, Link, Moved
from tocsin.actors.sharing.operations import OPERATIONS, Again, Operation
from tocsin.errors import HolderLostError, HostClosedError, OverloadedError, StoreUnavailable

log = logging.getLogger("tocsin.sharing")

GAP_S: Final = 5.0
"""So long a call waits for a holder. A take-over takes less than two seconds."""
CROWD_S: Final = 0.02, 0.2
"""Before a call that had waited at the last holder is made again at the next one, which had no room for it at once."""
NOT_WATCHED: Final = "the host is stopping: watch another one, or this one when it is back"
GIVEN_BACK_S: Final = 1.0
"""A process that stops waits so long for answers that nobody hears any more, to give back what is in them."""


class Unanswered(Exception):
    """A call that is to be looked up was sent, and not answered."""


class Home(Protocol):
    """This process, which may hold the store by the time that a call is to be made."""

    def port(self, instance: str) -> Any:
        """Return the parts of one scheduler's port, and of the host's as `host`."""
        ...


class Follower:
    """Sends the calls of this process wherever the store is: over the link of the moment, or to this process itself."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        random: Random,
        start_soon: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._home, self._clock, self._random, self._start_soon = home, clock, random, start_soon
        self._numbers = count(1)
        self._link: Link | None = None
        self._is_home = False
        self._closed: str | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._nobody_waits = asyncio.Event()
        self._series = ""
        self._under_way = 0
        self._quiet: asyncio.Event | None = None
        self._given_back: set[asyncio.Task[Any]] = set()
        _all.add(self)

    # ---- Where the store is ----------------------------------------------------------------------

    @property
    def link(self) -> Link | None:
        """The link to the holder, if it takes calls."""
        return self._link if self._link is not None and not self._link.ended.is_set() else None

    def holder_has_origin(self) -> bool | None:
        """Return whether the holder's callbacks have somewhere to go; None where no holder is reached."""
        link = self.link
        return None if link is None else link.vitals.has_origin

    def start(self) -> None:
        """Begin anew: it is not known where the store is."""
        self._link, self._is_home, self._closed = None, False, None
        self._nobody_waits = asyncio.Event()
        self._under_way, self._quiet = 0, None
        self._series = f"{self._random.getrandbits(64):016x}"

    def next_incarnation(self) -> str:
        """Make an incarnation, of the shape that turns make, for a job that is on its way to the holder."""
        return f"{self._series}-{next(self._numbers)}"

    def follow(self, link: Link) -> None:
        """Send calls over this link from now on."""
        self._link = link
        self._wake()

    def be_home(self) -> None:
        """Make calls in this process from now on: it holds the store."""
        self._link, self._is_home = None, True
        self._wake()

    def forked(self) -> None:
        """Refuse all calls in a forked process: the link is the parent's."""
        if self._link is not None or self._is_home:
            self._link, self._is_home = None, False
            self._closed = "this process was forked from one whose host was open: open a host after the fork"

    def close(self, why: str) -> None:
        """Refuse all calls from now on, and say why."""
        self._closed = why
        self._wake()
        if self._link is not None:
            self._link.close()

    def _wake(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()

    def stop_waiting(self) -> None:
        """Answer all who wait for jobs of queues or for the end of a job."""
        self._nobody_waits.set()

    async def drain(self, seconds: float) -> None:
        """Wait until no call is under way, for at most so long."""
        if self._under_way:
            self._quiet = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._quiet.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, GIVEN_BACK_S)):
                if self._link is not None:
                    await self._link.until_answered()
                if self._given_back:
                    await asyncio.wait(self._given_back)

    async def _reach(self, until: float) -> Link | None:
        """Return the link to the holder, or None if this process is it. Waits for one until that instant."""
        while self._closed is None:
            if self._is_home:
                return None
            if (link := self.link) is not None:
                return link
            if (left := until - self._clock.monotonic()) <= 0:
                raise StoreUnavailable(
                    f"no process holds the store, and none has taken it over within {GAP_S:g} s: try again; the log of "
                    "each process of this store says why it does not",
                    retryAfterMs=1000,
                )
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                async with asyncio.timeout(left):
                    await waiter
            except TimeoutError:
                continue
            finally:
                self._waiting.discard(waiter)
        raise HostClosedError(self._closed)

    # ---- Calls -----------------------------------------------------------------------------------

    async def ask(self, name: str, instance: str, values: Sequence[Any], who: AskedBy | None = None) -> Any:
        """Have an operation done, wherever the store is, and return its answer.

        Raises the errors of the operation; StoreUnavailable if no holder is found; HolderLostError if the holder went
        away and it is not known whether it was done; Unanswered in its place, where that can be looked up.
        """
        operation = OPERATIONS[name]
        self._under_way += 1
        try:
            if operation.may_wait:
                return await self._wait(operation, instance, values)
            return await self._ask(operation, instance, values, who)
        finally:
            self._under_way -= 1
            if not self._under_way and self._quiet is not None:
                self._quiet.set()

    async def _ask(self, operation: Operation, instance: str, values: Sequence[Any], who: AskedBy | None = None) -> Any:
        began = self._clock.monotonic()
        body, until = operation.encode(values), began + GAP_S
        left, waited = values, False
        while True:
            link = await self._reach(until)
            try:
                if link is None:
                    home = self._home.port(instance)
                    return await operation.run(home if who is None else home.asked_by(who), left)
                return operation.decode_answer(await link.call(operation, instance, body, who))
            except OverloadedError:
                if not waited:
                    raise
                await self._clock.sleep(self._random.uniform(*CROWD_S))  # all who waited came at once
            except Moved:
                assert link is not None
                link.ended.set()
            except HostClosedError:
                if link is None:
                    raise
                if link.ended.is_set():  # it was not done: the holder is about to go, or has gone
                    if operation.again is Again.LOOKED_UP:
                        raise Unanswered from None  # a look costs little, and its batch may have been on its way
                elif not operation.is_claim:
                    raise  # a user's own actor raised it
                elif not await self._ends(link, operation.wait_s(values) - (self._clock.monotonic() - began)):
                    return []  # the holder lets nobody wait any more, and has not gone in time
            except Gone as gone:
                if gone.sent and operation.again is not Again.REPEATED:
                    raise _unknown(operation) from None
            until = self._clock.monotonic() + GAP_S  # a holder was there until now
            if operation.may_wait:
                left, waited = operation.waiting_less(values, self._clock.monotonic() - began), True
                body = operation.encode(left)

    async def _ends(self, link: Link, seconds: float) -> bool:
        """Wait until the holder goes, for at most so long; return whether it does."""
        try:
            async with asyncio.timeout(seconds):
                return await link.ended.wait()
        except TimeoutError:
            return False

    async def _wait(self, operation: Operation, instance: str, values: Sequence[Any]) -> Any:
        """Ask what may take long; let nobody wait once this process stops."""
        if self._nobody_waits.is_set():
            if operation.is_claim:
                raise HostClosedError("the host is stopping: claim from another one, or again when it is back")
            if operation.is_asked_on and operation.wait_s(values):
                raise HostClosedError(NOT_WATCHED)
            return await self._ask(operation, instance, operation.without_wait(values))
        asked = asyncio.ensure_future(self._ask(operation, instance, values))
        told = asyncio.ensure_future(self._nobody_waits.wait())
        try:
            await asyncio.wait([asked, told], return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            asked.cancel()
            if operation.is_asked_on:
                raise HostClosedError(NOT_WATCHED)
            return [] if operation.is_claim else await self._ask(operation, instance, operation.without_wait(values))
        except asyncio.CancelledError:
            if not asked.cancel() and not asked.cancelled() and asked.exception() is None:
                self._give_back(operation, instance, asked.result())
            raise
        finally:
            told.cancel()

    def undo(self, operation: Operation, answer: bytes) -> None:
        """Give back an answer whose caller has gone away."""
        decoded = operation.decode_answer(answer)
        if decoded:
            self._give_back(operation, decoded[0].instance_name, decoded)

    def _give_back(self, operation: Operation, instance: str, answer: Any) -> None:
        if operation.undo is not None and answer:
            name, values = operation.undo(answer)
            task = self._start_soon(self._ask(OPERATIONS[name], instance, values))
            self._given_back.add(task)
            task.add_done_callback(self._given_back.discard)


_all: WeakSet[Follower] = WeakSet()


def _forked() -> None:
    for each in list(_all):
        each.forked()


os.register_at_fork(after_in_child=_forked)


def _unknown(operation: Operation) -> Exception:
    if operation.again is Again.LOOKED_UP:
        return Unanswered()
    may_repeat = operation.again is Again.MAY_BE
    if may_repeat:
        advice = "it may be repeated, for a second time changes nothing more"
    else:
        advice = "look whether it was, before you repeat it"
    return HolderLostError(
        f"the process that held the store ended before {operation.name} was answered, "
        f"which may have been done: {advice}",
        mayRepeat=may_repeat,
    )
