"""Calls that are made wherever what they are for is: brought home over any gap, or their caller is told what is not
known of them. How the place is found is for those who make a caller of this."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, Final, Protocol

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.sharing.link import Gone, Moved
from tocsin.actors.sharing.operations import OPERATIONS, Again, Operation
from tocsin.errors import HolderLostError, HostClosedError, OverloadedError, StoreError, StoreUnavailable

GAP_S: Final = 5.0
"""So long a call waits for somebody who can answer it. A take-over takes less than two seconds."""
CROWD_S: Final = 0.02, 0.2
"""Before a call that had waited at the last holder is made again at the next one, which had no room for it at once."""
NOT_WATCHED: Final = "the host is stopping: watch another one, or this one when it is back"
ASKED_AGAIN_S: Final = 0.5
"""Apart are the questions of who waits for an end where nobody may wait any more: another one has it soon."""
GIVEN_BACK_S: Final = 1.0
"""A process that stops waits so long for answers that nobody hears any more, to give back what is in them."""


class Unanswered(Exception):
    """A call that is to be looked up was sent, and not answered."""


class Home(Protocol):
    """This process, where a call may have to be made by the time that it is."""

    def port(self, instance: str) -> Any:
        """Return the parts of one scheduler's port, and of the host's as `host`."""
        ...


class Way(Protocol):
    """A way to another process."""

    ended: asyncio.Event
    """Set when no further call can be made this way."""

    async def call(
        self, operation: Operation, instance: str, arguments: bytes, who: AskedBy | None = None, op: str = ""
    ) -> bytes:
        """Make a call and return its answer. Raises the error that it met, Moved, or Gone."""
        ...


@dataclass(slots=True)
class Trip:
    """One call under way."""

    operation: Operation
    instance: str
    values: Sequence[Any]
    until: float
    """The instant until which a place for it is looked for, by the monotonic clock."""
    op: str = ""
    """Its operation id, if it is noted where it is done; of what is looked up, if it was sent before."""
    moved: int = 0
    """How often it came to a place where its subject was no longer."""
    in_doubt: bool = False
    """True once it was sent and not answered, and may change something: it may have been done."""


class Caller(ABC):
    """Makes the calls of this process wherever they are to be made."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        random: Random,
        start_soon: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._home, self._clock, self._random, self._start_soon = home, clock, random, start_soon
        self._numbers = count(1)
        self._closed: str | None = None
        self._nobody_waits = asyncio.Event()
        self._series = ""
        self._under_way = 0
        self._quiet: asyncio.Event | None = None
        self._given_back: set[asyncio.Task[Any]] = set()

    # ---- Where a call is made --------------------------------------------------------------------

    @abstractmethod
    async def reach(self, trip: Trip) -> Way | None:
        """Return the way to where a call is to be made, or None if that is this process. Waits for one for some time,
        then raises StoreUnavailable."""

    @abstractmethod
    async def has_moved(self, trip: Trip, way: Way | None) -> None:
        """Note that a call was not done where it was made, because its subject is elsewhere by now."""

    @abstractmethod
    async def until_answered(self) -> None:
        """Wait for answers that are still to come, of calls whose callers have gone away."""

    def is_elsewhere(self, error: StoreError) -> bool:
        """Return whether a call in this process was not done because its subject is elsewhere by now."""
        return False

    def operation_id(self, operation: Operation, again: bool) -> str:
        """Make the id by which an operation is noted where it is done; empty if it is not. `again`: it was sent before,
        was not done when that was looked up, and may be done yet."""
        return ""

    async def run_here(self, trip: Trip, who: AskedBy | None, values: Sequence[Any]) -> Any:
        """Make a call in this process."""
        return await trip.operation.run(self._port(trip, who), values)

    # ---- Life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin anew."""
        self._closed = None
        self._nobody_waits = asyncio.Event()
        self._under_way, self._quiet = 0, None
        self._series = f"{self._random.getrandbits(64):016x}"

    def next_incarnation(self) -> str:
        """Make an incarnation, of the shape that turns make, for a job that is on its way to another process."""
        return f"{self._series}-{next(self._numbers)}"

    def close(self, why: str) -> None:
        """Refuse all calls from now on, and say why."""
        self._closed = why

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
                await self.until_answered()
                if self._given_back:
                    await asyncio.wait(self._given_back)

    # ---- Calls -----------------------------------------------------------------------------------

    async def ask(
        self, name: str, instance: str, values: Sequence[Any], who: AskedBy | None = None, *, again: bool = False
    ) -> Any:
        """Have an operation done, wherever that is, and return its answer. `again`: it was sent before, and had not
        been done when that was looked up.

        Raises the errors of the operation; StoreUnavailable if nobody is found who can do it; HolderLostError if
        whoever was to do it went away and it is not known whether it was done; Unanswered in its place, where that can
        be looked up.
        """
        operation = OPERATIONS[name]
        self._under_way += 1
        try:
            if operation.may_wait:
                return await self._wait(operation, instance, values)
            return await self._ask(operation, instance, values, who, again)
        finally:
            self._under_way -= 1
            if not self._under_way and self._quiet is not None:
                self._quiet.set()

    async def _ask(
        self,
        operation: Operation,
        instance: str,
        values: Sequence[Any],
        who: AskedBy | None = None,
        again: bool = False,
    ) -> Any:
        op = self.operation_id(operation, again)
        trip = Trip(operation, instance, values, self._clock.monotonic() + GAP_S, op)
        try:
            return await self._go(trip, who)
        except (OverloadedError, StoreUnavailable) as error:
            if trip.in_doubt:  # these say that nothing was done, and tell of the last try only
                raise _unknown(operation) from error
            raise

    async def _go(self, trip: Trip, who: AskedBy | None) -> Any:
        began, operation, instance, values = self._clock.monotonic(), trip.operation, trip.instance, trip.values
        body = operation.encode(values)
        left, waited = values, False
        while True:
            way = await self.reach(trip)
            try:
                if way is None:
                    return await self.run_here(trip, who, left)
                return operation.decode_answer(await way.call(operation, instance, body, who, trip.op))
            except OverloadedError:
                if not waited:
                    raise
                await self._clock.sleep(self._random.uniform(*CROWD_S))  # all who waited came at once
            except Moved:
                await self.has_moved(trip, way)
            except StoreError as error:
                if way is not None or not self.is_elsewhere(error):
                    raise
                await self.has_moved(trip, None)
            except HostClosedError:
                if way is None:
                    raise
                if way.ended.is_set():  # it was not done: the holder is about to go, or has gone
                    if operation.again is Again.LOOKED_UP:
                        raise Unanswered from None  # a look costs little, and its batch may have been on its way
                elif operation.awaits_end:  # the holder lets nobody wait any more: the next one does
                    left_s = operation.wait_s(values) - (self._clock.monotonic() - began)
                    if left_s <= 0:
                        raise
                    await self._ends(way, min(left_s, ASKED_AGAIN_S))
                elif not operation.is_claim:
                    raise  # a user's own actor raised it
                elif not await self._ends(way, operation.wait_s(values) - (self._clock.monotonic() - began)):
                    return []  # the holder lets nobody wait any more, and has not gone in time
            except Gone as gone:
                if gone.sent and not _may_repeat(trip):
                    raise _unknown(operation) from None
                trip.in_doubt |= gone.sent and bool(trip.op)
            trip.until = self._clock.monotonic() + GAP_S  # somebody was there until now
            if operation.may_wait:
                left, waited = operation.waiting_less(values, self._clock.monotonic() - began), True
                body = operation.encode(left)

    def _port(self, trip: Trip, who: AskedBy | None) -> Any:
        """Return the port of this process on which a call is made."""
        home = self._home.port(trip.instance)
        if trip.op:
            home = home.once(trip.op)
        return home if who is None else home.asked_by(who)

    async def _ends(self, way: Way, seconds: float) -> bool:
        """Wait until the holder goes, for at most so long; return whether it does."""
        try:
            async with asyncio.timeout(seconds):
                return await way.ended.wait()
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


def _may_repeat(trip: Trip) -> bool:
    """Return whether a call that may have been done may be made again: its second time changes nothing more."""
    return trip.operation.again is Again.REPEATED or (bool(trip.op) and trip.operation.again is not Again.LOOKED_UP)


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
