"""`/export`, `/import`, `/seal`: whole instances as files that stream, and the seal of one that moves.

They reach the host, not only a port: what streams is neither read whole nor answered whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from tocsin.actors.http import body as bodies
from tocsin.actors.http import crowd as crowds
from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.asked_by import asked_by
from tocsin.actors.http.crowd import too_slow
from tocsin.actors.http.endpoint import DEFAULT_INSTANCE, Endpoint
from tocsin.actors.http.errors import UnsupportedMediaTypeError, refusal
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.operations import ADMIN
from tocsin.actors.http.parameters import IMPORTED, UNSEALED, names
from tocsin.actors.http.query import Query
from tocsin.actors.http.response_models import Stays
from tocsin.actors.http.responses import HEADERS, Reply, answer
from tocsin.actors.http.served import ServedHost
from tocsin.actors.http.wire import SealRequest
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.actors.scheduler.transfer.manifest import MEDIA
from tocsin.errors import TocsinError

log = logging.getLogger("tocsin.http")

MOST_TOGETHER: Final = 2
"""Exports that are made at once; each holds a copy of its instance on the disk."""


PASSED_OVER_S: Final = 10.0
"""For so long the rest of a body is read whose import was refused."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """An answer whose pieces come while it is sent."""

    headers: list[tuple[bytes, bytes]]
    pieces: AsyncIterator[bytes]


class _OfInstances(Endpoint):
    """A route that only admins of an instance may ask."""

    action: str

    def __init__(self, methods: list[str], gate: Gate, host: ServedHost) -> None:
        super().__init__(methods, gate)
        self._host = host

    async def _admit(self, request: Incoming, visit: Visit) -> str:
        """Return the name of the instance; raise what keeps the caller out."""
        if visit.refusal is not None:
            raise visit.refusal
        name = instance_name(request.path_params.get("instance", DEFAULT_INSTANCE))
        self._gate.check_token(visit.token, ADMIN, self.action, name)
        await self._gate.ask(visit.caller, self.action, name, None)
        return name


class Export(_OfInstances):
    """Streams an instance as of one instant. Whoever reads slowly holds nothing but a file."""

    action = "export"

    def __init__(self, gate: Gate, host: ServedHost) -> None:
        super().__init__(["GET"], gate, host)
        self._under_way = asyncio.Semaphore(MOST_TOGETHER)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            return await super().__call__(scope, receive, send)
        request = Incoming(scope, receive)
        async with self._under_way:
            try:
                begun = await self._begin(request, self._gate.enter(request))
            except Exception as error:  # every failure becomes an answer; unforeseen ones are logged there
                await refusal(error, request, None)(scope, receive, send)
                return None
            await _stream(begun, request, send)

    async def _begin(self, request: Incoming, visit: Visit) -> _Begun:
        name = await self._admit(request, visit)
        Query(request, ())
        manifest, pieces = await self._host.exported(name)
        file = f"{name.replace(':', '_')}-{manifest.at}.jsonl"
        headers = {**HEADERS, "content-type": MEDIA, "content-disposition": f'attachment; filename="{file}"'}
        return _Begun([(key.encode(), value.encode()) for key, value in headers.items()], pieces)

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        """Answer HEAD: whether there would be an export."""
        await self._admit(request, visit)
        return Reply(200, [(b"content-type", MEDIA.encode())], b"")


async def _stream(begun: _Begun, request: Incoming, send: Send) -> None:
    """Send the pieces. What fails now cannot be answered: without its last line the file is known not to be whole."""
    async with aclosing(begun.pieces) as pieces:  # type: ignore[type-var]  # it is a generator
        try:
            await send({"type": "http.response.start", "status": 200, "headers": begun.headers})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except OSError:  # how a server may say that the caller has left
            log.info("%s %s: the caller left before its answer", request.method, request.path)
            return
        except TocsinError as error:
            log.error("an export ended before its last line: %s", error)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Import(_OfInstances):
    """Makes an instance of a body that streams; says how the instance stands in an import or a move."""

    action = "import"

    def __init__(self, gate: Gate, host: ServedHost) -> None:
        super().__init__(["GET", "POST"], gate, host)

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        name = await self._admit(request, visit)
        if request.method != "POST":
            Query(request, ())
            return answer(await self._host.transfers(name, asked_by(visit)).state())
        query = Query(request, names(IMPORTED))
        said = {one: query.flag(one) if query.text(one) is not None else None for one in names(IMPORTED)}
        kinds = request.named.get(b"content-type", [b""])
        if kinds[0].split(b";")[0].strip().lower() != MEDIA.encode():
            shown = repr(kinds[0][:80].decode("latin-1")) if kinds[0] else "missing"
            raise UnsupportedMediaTypeError(f"content-type must be {MEDIA}, and is {shown}")
        pieces = _pieces(request)
        try:
            return answer(
                await self._host.load(
                    name, pieces, same_jobs=said["sameJobs"], paused=said["paused"], who=asked_by(visit)
                )
            )
        except TocsinError:
            await _pass_over(pieces)
            raise


async def _pieces(request: Incoming) -> AsyncIterator[bytes]:
    """Yield the body as it comes. ClientDisconnect if it ends before its end."""
    while True:
        try:
            async with asyncio.timeout(crowds.BODY_S):
                message: Any = await request.receive()
        except TimeoutError:
            raise too_slow() from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if piece := message.get("body", b""):
            yield piece
        if not message.get("more_body", False):
            return


async def _pass_over(pieces: AsyncIterator[bytes]) -> None:
    """Read on for a while: many clients look for an answer only when they have sent everything."""
    with suppress(TimeoutError, TocsinError):
        async with asyncio.timeout(PASSED_OVER_S):
            async for _ in pieces:
                pass


class Seal(_OfInstances):
    """Seals an instance that moves, or lets it stay."""

    action = "seal"

    def __init__(self, gate: Gate, host: ServedHost) -> None:
        super().__init__(["PUT", "DELETE"], gate, host)

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        name = await self._admit(request, visit)
        transfer = self._host.transfers(name, asked_by(visit))
        if request.method == "DELETE":
            move = Query(request, names(UNSEALED)).required("move")
            return answer(Stays(await transfer.unseal(move)))
        Query(request, ())
        said = bodies.parse_text(await bodies.read_body(request, bodies.SMALL_BODY, None), SealRequest)
        said.check_instance(name)
        return answer(await transfer.seal(said.move, said.to, bool(said.closed)))
