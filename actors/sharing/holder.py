"""The holder's end of links: lets followers in, carries out their calls, and sends them on when it goes."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from tocsin.actors.scheduler.model.records import HealthReason
from tocsin.actors.sharing import failures
from tocsin.actors.sharing.frames import MAX_FRAME, MAX_HELLO, VERSION, BrokenLink, Kind
from tocsin.actors.sharing.greeting import Hello, Vitals, Welcome
from tocsin.actors.sharing.operations import MOST_CALLS, OPERATIONS, Asked, Operation, asked_decoder
from tocsin.actors.sharing.wire import Wire
from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.errors import InvalidInputError, OverloadedError, TocsinError

log = logging.getLogger("tocsin.sharing")

GREETING_S: Final = 10.0
"""So long whoever has opened a link may take to say who it is: each link has a descriptor of this process."""
_hello: Final = msgspec.json.Decoder(Hello)


class Served(Protocol):
    """A host of this process that has the store."""

    def port(self, instance: str) -> Any:
        """Return the parts of one scheduler's port, and of the host's as `host`."""
        ...

    def health(self) -> Sequence[HealthReason]: ...
    def trouble(self) -> TocsinError | None: ...
    def has_origin(self) -> bool: ...


class Holder:
    """Serves the followers of one store. `pid` is this process, `token` what followers must have read."""

    def __init__(self, served: Served, token: str, settings: Mapping[str, str], pid: int) -> None:
        self.served, self.settings, self.pid = served, settings, pid
        self.leaving = False
        self.links: set[HolderEnd] = set()
        self._token = token.encode()
        self._calls: set[asyncio.Task[None]] = set()  # of followers: the host's own work is not held up by them

    def accept(self, may_enter: Callable[[asyncio.BaseTransport], bool]) -> HolderEnd:
        """Make the end of a link that somebody has just opened."""
        return HolderEnd(self, may_enter)

    def knows(self, token: str) -> bool:
        """Return whether this is the token, in a time that does not tell how much of it is right."""
        return bool(self._token) and hmac.compare_digest(self._token, token.encode("utf-8", "replace"))

    def leave(self) -> None:
        """Tell followers that this process goes: they wait for the next holder, and calls that wait for something are
        sent there. What has begun is still answered."""
        self.leaving = True
        for link in list(self.links):
            link.leave()

    def start_call(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Carry out a call of a follower."""
        task = asyncio.get_running_loop().create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def close(self, seconds: float) -> None:
        """Let calls under way be answered, for at most so long; then end all links."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=seconds)
        for link in list(self.links):
            link.close()

    def abort(self) -> None:
        """End all links as the death of this process does."""
        for link in list(self.links):
            link.abort()


class HolderEnd(Wire):
    """One follower's link, as the holder sees it."""

    def __init__(self, holder: Holder, may_enter: Callable[[asyncio.BaseTransport], bool]) -> None:
        super().__init__()
        self._holder, self._may_enter = holder, may_enter
        self._known = self._turned_away = False
        self._greeting: asyncio.TimerHandle | None = None
        self._calls: dict[int, tuple[Operation, asyncio.Task[None]]] = {}
        self._unwanted: set[int] = set()  # calls whose caller has gone away
        self.frames.most = MAX_HELLO

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._may_enter(transport):
            self._holder.links.add(self)
            self._greeting = asyncio.get_running_loop().call_later(GREETING_S, self.abort)
        else:
            log.warning("a process of another user tried to reach the store: it was turned away")
            self.abort()

    def received(self, kind: int, number: int, body: bytes) -> None:
        if self._turned_away:
            return  # what it had sent before it heard of that
        if not self._known:
            self._greet(kind, body)
        elif kind == Kind.CALL:
            self._begin(number, body)
        elif kind == Kind.CANCEL:
            if (found := self._calls.get(number)) is not None:
                self._unwanted.add(number)
                found[1].cancel()
        elif kind == Kind.PING:
            self.send(Kind.PONG, 0, self._vitals())
        else:
            raise BrokenLink(f"a follower sent a frame of kind {kind}")

    def lost(self) -> None:
        self._end_greeting()
        self._holder.links.discard(self)
        for _, task in list(self._calls.values()):
            task.cancel()

    def pause_writing(self) -> None:
        """Take no more calls from a follower that does not read their answers."""
        super().pause_writing()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._transport is not None and not self.is_lost:
            self._transport.resume_reading()

    # ---- Greeting --------------------------------------------------------------------------------

    def _greet(self, kind: int, body: bytes) -> None:
        try:
            hello = _hello.decode(body) if kind == Kind.HELLO else None
        except msgspec.MsgspecError:
            hello = None
        if hello is None:
            raise BrokenLink("a stranger did not say who it is")
        if hello.version != VERSION:
            return self._turn_away(
                f"the process that holds the store ({self._holder.pid}) speaks version {VERSION} of what processes of "
                f"one store say to each other, and this one version {hello.version}: run one version of tocsin in all"
            )
        if not self._holder.knows(hello.token):
            return self._turn_away("the token is not that of the lock file: it may have changed hands just now")
        self._end_greeting()
        self._known, self.frames.most = True, MAX_FRAME
        mine, theirs = self._holder.settings, hello.settings
        differing = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        self.send(Kind.WELCOME, 0, msgspec.json.encode(Welcome(self._holder.pid, differing)))
        self.send(Kind.PONG, 0, self._vitals())
        if self._holder.leaving:
            self.leave()

    def _end_greeting(self) -> None:
        if self._greeting is not None:
            self._greeting.cancel()
            self._greeting = None

    def _turn_away(self, why: str) -> None:
        self._turned_away = True
        self.send(Kind.TURNED_AWAY, 0, why.encode())
        self.close()

    def _vitals(self) -> bytes:
        trouble = self._holder.served.trouble()
        said = None if trouble is None else failures.refusal_of(trouble, "the store")
        return msgspec.json.encode(Vitals(self._holder.served.health(), said, self._holder.served.has_origin()))

    def leave(self) -> None:
        """Say that this process goes; what waits for something is to wait at the next holder."""
        self.send(Kind.LEAVING)
        for operation, task in list(self._calls.values()):
            if operation.may_wait:
                task.cancel()

    # ---- Calls -----------------------------------------------------------------------------------

    def _begin(self, number: int, body: bytes) -> None:
        if self._holder.leaving:
            self.send(Kind.FAILURE, number)  # an empty one: it was not done, and the next holder may do it
            return
        try:
            asked = asked_decoder.decode(body)
            operation = OPERATIONS[asked.operation]
        except (msgspec.MsgspecError, KeyError) as error:
            raise BrokenLink(f"a follower sent a call that cannot be read: {error}") from error
        if len(self._calls) >= MOST_CALLS:
            return self._fail(number, OverloadedError("too many calls of one process are under way"), operation)
        token = SPEAKS_JSON.set(asked.json)
        try:
            task = self._holder.start_call(self._run(number, operation, asked))
        finally:
            SPEAKS_JSON.reset(token)
        if not task.done():  # where the app's event loop starts tasks eagerly, it may have ended
            self._calls[number] = operation, task

    async def _run(self, number: int, operation: Operation, asked: Asked) -> None:
        """Carry out a call, and answer it. The port answers what is durable, so this does."""
        try:
            arguments = self._arguments(operation, asked.arguments)
            answer = await self._do(operation, asked, arguments)
            if self.is_lost and operation.undo is not None:
                undone_by, values = operation.undo(answer)
                await OPERATIONS[undone_by].run(self._holder.served.port(asked.instance), values)
            else:
                self.send(Kind.ANSWER, number, operation.encode_answer(answer))
        except asyncio.CancelledError:
            if operation.may_wait or number in self._unwanted:
                self.send(Kind.FAILURE, number)  # an empty one: it was not done
            raise  # else this process stops, and nobody can say whether it was done
        except Exception as error:  # whatever it is, whoever called gets it as the answer
            if self.has_moved(error):
                self.send(Kind.FAILURE, number)
            else:
                self._fail(number, error, operation)
        finally:
            self._calls.pop(number, None)
            self._unwanted.discard(number)

    async def _do(self, operation: Operation, asked: Asked, arguments: Sequence[Any]) -> Any:
        return await operation.run(self._port(operation, asked, arguments), arguments)

    def _port(self, operation: Operation, asked: Asked, arguments: Sequence[Any]) -> Any:
        """Return the port on which a call is made."""
        port = self._holder.served.port(asked.instance)
        return port if asked.who is None else port.asked_by(asked.who)

    def has_moved(self, error: Exception) -> bool:
        """Return whether an error says that nothing was done, because what was asked for is elsewhere by now."""
        return False

    def _arguments(self, operation: Operation, arguments: msgspec.Raw) -> Sequence[Any]:
        try:
            return operation.decode(arguments)
        except msgspec.MsgspecError as error:
            raise InvalidInputError(f"{operation.name}: an argument cannot be read: {error}") from error

    def _fail(self, number: int, error: Exception, operation: Operation) -> None:
        self.send(Kind.FAILURE, number, failures.encode(failures.refusal_of(error, operation.name)))
