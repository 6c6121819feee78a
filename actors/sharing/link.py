"""A follower's end of a link: calls under way, their answers, and signs of life of the holder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.sharing import failures
from tocsin.actors.sharing.frames import BrokenLink, Kind
from tocsin.actors.sharing.greeting import Hello, Vitals, Welcome
from tocsin.actors.sharing.operations import MOST_CALLS, Asked, Operation
from tocsin.actors.sharing.wire import Wire
from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.errors import OverloadedError, StoreLocked


class Gone(Exception):
    """The link was lost. `sent`: the call had been sent, so it may have been done."""

    def __init__(self, sent: bool) -> None:
        super().__init__(sent)
        self.sent = sent


class Moved(Exception):
    """The holder is about to go, and has not done this call."""


T = TypeVar("T")
_vitals: Final = msgspec.json.Decoder(Vitals)
_welcome: Final = msgspec.json.Decoder(Welcome)
_call: Final = msgspec.json.Encoder()


class Link(Wire):
    """One link to the holder. `undo(operation, answer)` is told of answers whose caller has gone away."""

    def __init__(self, hello: Hello | None, undo: Callable[[Operation, bytes], None]) -> None:
        super().__init__()
        self.welcome: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        """Set when no further call can be sent: the link is lost, or the holder is about to go."""
        self.heard = 0
        """How many frames have come: it rises as long as the holder lives."""
        self.vitals = Vitals()
        self._undo = undo
        self._calls: dict[int, tuple[Operation, asyncio.Future[bytes]]] = {}
        self._numbers = 0
        self._room: list[asyncio.Future[None]] = []
        self._all_answered: asyncio.Future[None] | None = None
        if hello is not None:
            self.send(Kind.HELLO, 0, msgspec.json.encode(hello))

    # ---- Calling ---------------------------------------------------------------------------------

    async def call(
        self, operation: Operation, instance: str, arguments: bytes, who: AskedBy | None = None, op: str = ""
    ) -> bytes:
        """Send a call and return its answer. Raises the error that it met, Moved, or Gone."""
        if self.ended.is_set():
            raise Gone(sent=False)
        while self.is_full:
            await self._until_read()
        if len(self._calls) >= MOST_CALLS:
            raise OverloadedError(
                f"{MOST_CALLS} calls of this process to the one that holds the store are under way: try again",
                limit=MOST_CALLS,
            )
        self._numbers = number = (self._numbers + 1) & 0xFFFFFFFF
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asked = Asked(operation.name, instance, SPEAKS_JSON.get(), msgspec.Raw(arguments), who, op)
        self.send(Kind.CALL, number, _call.encode(asked))
        self._calls[number] = operation, answer
        try:
            return await answer
        except asyncio.CancelledError:
            if not answer.done():
                answer.cancel()
            if answer.cancelled():
                self.send(Kind.CANCEL, number)  # its answer may still come, and is undone then
            elif answer.exception() is None and operation.undo is not None:
                self._undo(operation, answer.result())
            raise

    async def until_answered(self) -> None:
        """Wait for the answers that are to come, also of calls whose callers have gone away."""
        if self._calls:
            self._all_answered = asyncio.get_running_loop().create_future()
            await self._all_answered

    def _check_all_answered(self) -> None:
        waiter = self._all_answered
        if not self._calls and waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _until_read(self) -> None:
        """Wait until the holder reads what was written to it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(waiter)
        await waiter
        if self.is_lost:
            raise Gone(sent=False)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._let_write()

    def _let_write(self) -> None:
        waiting, self._room = self._room, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.send(Kind.PING)

    # ---- Being answered --------------------------------------------------------------------------

    def received(self, kind: int, number: int, body: bytes) -> None:
        self.heard += 1
        if kind == Kind.PONG:
            self.vitals = _decoded(_vitals, body)
        elif kind in (Kind.ANSWER, Kind.FAILURE):
            self._answered(kind, number, body)
        elif kind == Kind.WELCOME:
            if not self.welcome.done():
                self.welcome.set_result(_decoded(_welcome, body))
        elif kind == Kind.TURNED_AWAY:
            if not self.welcome.done():
                self.welcome.set_exception(StoreLocked(body.decode("utf-8", "replace")))
        elif kind == Kind.LEAVING:
            self.ended.set()
        else:
            raise BrokenLink(f"the holder sent a frame of kind {kind}")

    def _answered(self, kind: int, number: int, body: bytes) -> None:
        found = self._calls.pop(number, None)
        if found is None:
            return
        operation, answer = found
        if kind == Kind.FAILURE:
            if not answer.done():
                answer.set_exception(failures.decode(body) if body else Moved())
        elif not answer.done():
            answer.set_result(body)
        elif operation.undo is not None:
            self._undo(operation, body)
        self._check_all_answered()

    def lost(self) -> None:
        self.ended.set()
        self._let_write()
        if not self.welcome.done():
            self.welcome.set_exception(Gone(sent=False))
        if not self.welcome.cancelled():
            self.welcome.exception()  # nobody may have waited for it
        calls, self._calls = self._calls, {}
        for _, answer in calls.values():
            if not answer.done():
                answer.set_exception(Gone(sent=True))
        self._check_all_answered()


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise BrokenLink(f"the holder sent what cannot be read: {error}") from error
