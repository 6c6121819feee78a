"""Does the calls that come by mail for actors of this host, those of one actor in their order, and answers them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from tocsin.actors.cluster.post import answer_of, failure_of
from tocsin.actors.cluster.routes import is_elsewhere
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.sharing.caller import Home
from tocsin.actors.sharing.operations import OPERATIONS, Again, Asked, Operation, asked_decoder
from tocsin.actors.sharing.remote_port import run_once
from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.errors import HostClosedError, InvalidInputError, OverloadedError, StoreError, StoreFull, StoreUnavailable
from tocsin.storage.shared import Arrived, Mailbox

log = logging.getLogger("tocsin.cluster")

AT_ONCE: Final = 32
"""Actors whose mail is done at the same time."""
AGAIN_S: Final = 1.0
"""After the mailbox could not be read."""
TOGETHER: Final = 100
SUBMISSION: Final = b'"jobs.submit'
HEAD: Final = 20
"""Bytes of a body in which the name of its operation begins."""
REMEMBERED: Final = 10_000
"""Calls done last, which may come again before the store has noted that they were done."""
REMEMBERED_BYTES: Final = 8 * 1024 * 1024
"""Of the answers to them: those that are left out are found by what their actors note."""


class NotNow(Exception):
    """A call cannot be done at present: it stays in the mail, and so do those behind it."""


class Stays(Exception):
    """Raised for a call of which nobody would hear that it failed: it stays in the mail, and those behind are done."""


def _together(line: Sequence[Arrived]) -> Sequence[Arrived]:
    """Return the calls at the head of a line that are begun at the same time: submissions, in their order, which then
    share turns; or one that is none."""
    n = next((n for n, arrived in enumerate(line[:TOGETHER]) if SUBMISSION not in arrived.body[:HEAD]), TOGETHER)
    return line[: max(n, 1)]


class Clerk:
    """Reads the mail of this host."""

    def __init__(
        self, mailbox: Mailbox, home: Home, clock: Clock, start_soon: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._mailbox, self._home, self._clock, self._start_soon = mailbox, home, clock, start_soon
        self._lines: dict[str, list[Arrived]] = {}
        self._known: set[str] = set()  # calls in a line, or just being done
        self._done: OrderedDict[str, bytes] = OrderedDict()
        self._done_bytes = 0
        self._staying: OrderedDict[str, None] = OrderedDict()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Do mail as it comes, until this is cancelled."""
        told = False
        while True:
            try:
                async for page in self._mailbox.arrivals():
                    told = False
                    self.take(page)
                return
            except StoreError as error:
                if not told:
                    log.warning("the mail of this host could not be read, again each %g s: %s", AGAIN_S, error)
                told = True
                await self._clock.sleep(AGAIN_S)

    def take(self, page: Sequence[Arrived]) -> None:
        """Put calls in line behind those of the same actor."""
        for arrived in page:
            if arrived.op in self._known:
                continue
            self._known.add(arrived.op)
            line = self._lines.get(arrived.actor)
            if line is None:
                self._lines[arrived.actor] = [arrived]
                self._start_soon(self._work(arrived.actor))
            else:
                line.append(arrived)

    async def _work(self, actor: str) -> None:
        line = self._lines[actor]
        try:
            async with self._room:
                while line:
                    group = _together(line)
                    answers = await asyncio.gather(*map(self._answer, group), return_exceptions=True)
                    pairs = list(zip(group, answers, strict=True))
                    await self._end([(arrived, answer) for arrived, answer in pairs if isinstance(answer, bytes)])
                    for arrived, answer in pairs:
                        if isinstance(answer, Stays):
                            self._tell_stays(arrived, answer)
                        elif isinstance(answer, NotNow):
                            return log.info("mail for %s waits: %s", actor, answer)
                        elif isinstance(answer, BaseException):
                            raise answer
                    del line[: len(group)]
                    self._known.difference_update(arrived.op for arrived in group)
        finally:
            del self._lines[actor]
            self._known.difference_update(arrived.op for arrived in line)

    async def _end(self, done: Sequence[tuple[Arrived, bytes]]) -> None:
        if not done:
            return
        try:
            await self._mailbox.end(done)
        except StoreError as error:
            log.info("%d calls by mail are done, and come again, for this could not be noted: %s", len(done), error)

    def _tell_stays(self, arrived: Arrived, why: Stays) -> None:
        """Log it once: it comes again and again."""
        if arrived.op not in self._staying:
            log.error("a call of an outbox for %s stays in the mail, and is tried again: %s", arrived.actor, why)
            self._staying[arrived.op] = None
            if len(self._staying) > REMEMBERED:
                self._staying.popitem(last=False)

    async def _answer(self, arrived: Arrived) -> bytes:
        """Do one call, or give the answer again that it has had."""
        if (known := self._done.get(arrived.op)) is not None:
            return known
        try:
            asked = asked_decoder.decode(arrived.body)
            operation = OPERATIONS[asked.operation]
            arguments = operation.decode(asked.arguments)
        except (msgspec.MsgspecError, KeyError) as error:
            if not arrived.sender:
                raise Stays(f"it cannot be read here: {error}") from error
            log.error("a call by mail for %s cannot be read, and is refused: %s", arrived.actor, error)
            return failure_of(InvalidInputError(f"this call cannot be read here: {error}"), "mail")
        token = SPEAKS_JSON.set(asked.json)
        try:
            answer = answer_of(operation, await self._do(operation, asked, arguments, arrived.op))
        except (OverloadedError, HostClosedError, StoreUnavailable) as error:
            raise NotNow(str(error)) from error
        except Exception as error:  # whatever it is, whoever sent it gets it as the answer
            if is_elsewhere(error) or (isinstance(error, StoreFull) and not arrived.sender):
                raise NotNow(str(error)) from error
            if not arrived.sender:
                raise Stays(f"{type(error).__name__}: {error}") from error
            answer = failure_of(error, operation.name)
        finally:
            SPEAKS_JSON.reset(token)
        self._note(arrived.op, answer)
        return answer

    def _note(self, op: str, answer: bytes) -> None:
        self._done[op] = answer
        self._done_bytes += len(answer)
        while len(self._done) > REMEMBERED or self._done_bytes > REMEMBERED_BYTES:
            self._done_bytes -= len(self._done.popitem(last=False)[1])

    async def _do(self, operation: Operation, asked: Asked, arguments: Sequence[Any], op: str) -> Any:
        port = self._home.port(asked.instance)
        if operation.again in (Again.MAY_BE, Again.MAY_NOT_BE):
            port = port.once(op)
        if asked.who is not None:
            port = port.asked_by(asked.who)
        return await run_once(operation, port, asked.instance, arguments, op)
