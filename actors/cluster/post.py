"""Calls by mail: kept in the store until the owner of their actor has done them, whoever that is by then."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.sharing import failures
from tocsin.actors.sharing.operations import Asked, Operation
from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.errors import NotAnsweredYetError, TocsinError
from tocsin.storage.shared import Mailbox

ANSWERED: Final = b"a"
FAILED: Final = b"f"
ROUTE_WAIT_S: Final = 2.0
"""So long whoever asks over HTTP waits for the answer to mail, then hears that it was accepted."""
HANDLE_WAIT_S: Final = 30.0
"""So long code with a handle waits: longer than it takes to find out that a host is dead, and to take its slots."""
_encoder: Final = msgspec.json.Encoder()


class Post:
    """The way to an actor whose owner is not reached, for one call."""

    def __init__(self, mailbox: Mailbox, actor: str, op: str) -> None:
        self.ended = asyncio.Event()
        self._mailbox, self._actor, self._op = mailbox, actor, op

    async def call(
        self, operation: Operation, instance: str, arguments: bytes, who: AskedBy | None = None, op: str = ""
    ) -> bytes:
        """Send a call and wait for its answer for some time. NotAnsweredYetError: it is kept, and will be done."""
        op = op or self._op
        in_json = SPEAKS_JSON.get()
        body = _encoder.encode(Asked(operation.name, instance, in_json, msgspec.Raw(arguments), who, op))
        await self._mailbox.send(self._actor, op, body)
        answer = await self._mailbox.answer(op, ROUTE_WAIT_S if in_json else HANDLE_WAIT_S)
        if answer is None:
            raise NotAnsweredYetError(
                f"{operation.name} is accepted and will be done: no host that owns {self._actor} has answered yet",
                id=op,
            )
        if answer[:1] == ANSWERED:
            return answer[1:]
        raise failures.decode(answer[1:])


def answer_of(operation: Operation, answer: object) -> bytes:
    """Write the answer to a call that came by mail."""
    return ANSWERED + operation.encode_answer(answer)


def failure_of(error: TocsinError | Exception, what: str) -> bytes:
    """Write why a call that came by mail was refused."""
    return FAILED + failures.encode(failures.refusal_of(error, what))
