"""One route as an ASGI app: method, origin, token, instance, then the operation, and every failure in an envelope."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.asked_by import asked_by, is_noted
from tocsin.actors.http.crowd import Crowd
from tocsin.actors.http.errors import MethodNotAllowedError, refusal
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.methods import counted
from tocsin.actors.http.operations import ADMIN, OPERATE, Operation
from tocsin.actors.http.request import SCHEDULING, Call
from tocsin.actors.http.responses import Reply, allowing, answer, unheard
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.client.source import SOURCE, Source
from tocsin.dispatch.words import SPEAKS_JSON

log = logging.getLogger("tocsin.http")

DEFAULT_INSTANCE: Final = "default"
FROM_STORE: Final = {"tocsin-source": "store"}
"""The header of a read that a host answered from the store: another one has the scheduler in memory."""
OPERATING: Final = OPERATE | ADMIN
"""Scopes of the actions that the audit log may note."""


class Endpoint(ABC):
    """Answers one method (HEAD like GET, without the body), and OPTIONS with the methods there are."""

    def __init__(self, methods: Sequence[str], gate: Gate) -> None:
        self._methods = tuple(methods)
        self._gate = gate
        allowed = [name for method in methods for name in (("GET", "HEAD") if method == "GET" else (method,))]
        self._allow = ", ".join([*allowed, "OPTIONS"])
        self.answered: dict[tuple[str, int], int] = {}
        """How many requests were answered, by method and status."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Incoming(scope, receive)
        try:
            token = SPEAKS_JSON.set(True)
            try:
                response = await self._answer(request)
            finally:
                SPEAKS_JSON.reset(token)
        except ClientDisconnect:
            response = unheard()  # nothing was done
        except Exception as error:  # every failure becomes an answer; unforeseen ones are logged there
            response = await self.refuse(error, request)
        if (ended := (request.method, response.status)) not in self.answered:
            ended = counted(request.method), response.status
        self.answered[ended] = self.answered.get(ended, 0) + 1
        # The headers of an answer to HEAD still tell the length that GET would have.
        body = b"" if request.method == "HEAD" else response.body
        try:
            await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
            await send({"type": "http.response.body", "body": body})
        except OSError:  # how a server may say that the caller has left
            log.info("%s %s: the caller left before its answer", request.method, request.path)

    async def refuse(self, error: Exception, request: Incoming) -> Reply:
        """Make the answer to a request that failed."""
        return refusal(error, request, {"allow": self._allow} if isinstance(error, MethodNotAllowedError) else None)

    async def _answer(self, request: Incoming) -> Reply:
        visit = self._gate.enter(request)
        if request.method == "OPTIONS":
            return allowing(self._allow)
        if ("GET" if request.method == "HEAD" else request.method) not in self._methods:
            raise MethodNotAllowedError(f"{request.path} takes {self._allow}, not {request.method[:20]}")
        return await self.answer(request, visit)

    @abstractmethod
    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        """Answer a request of the right method."""


class OperationEndpoint(Endpoint):
    """The operations of one path, by method, on the instance in the path, behind the gate."""

    def __init__(
        self, operations: Sequence[Operation], gate: Gate, ports: Callable[[str], SchedulerPort], crowd: Crowd
    ) -> None:
        super().__init__([one.method for one in operations], gate)
        self._crowd = crowd
        self._operations = {one.method: one for one in operations}
        self._noted = {one.method for one in operations if not one.scopes.isdisjoint(OPERATING)}
        """Methods whose callers the audit log may name."""
        self._ports = ports

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        operation = self._operations["GET" if request.method == "HEAD" else request.method]
        if operation.scopes and visit.refusal is not None:
            raise visit.refusal
        port = self._ports(request.path_params.get("instance", DEFAULT_INSTANCE))
        if operation.scopes and visit.token is not None:
            self._gate.check_token(visit.token, operation.scopes, operation.action, port.name)
        if operation.method in self._noted and is_noted(operation.action, visit):
            port = port.asked_by(asked_by(visit))
        # Only what schedules, and what is noted, asks an app's user for its text: that may be slow, or fail.
        initiator = visit.caller.identity if operation.action in SCHEDULING else ("", "")
        call = Call(request, port, self._gate, self._crowd, visit, operation.action, initiator)
        if operation.method == "GET":  # reads only: what a caller has left is read no further
            return await self._read(call, operation)
        return answer(await operation.run(call))

    async def _read(self, call: Call, operation: Operation) -> Reply:
        """Answer a read, and say if that was from the store, by a host that has not got the scheduler."""
        token = SOURCE.set(source := Source())
        try:
            found = await call.while_connected(operation.run(call))
        finally:
            SOURCE.reset(token)
        return answer(found, headers=FROM_STORE if source.from_store else None)
