"""`GET /metrics`: for callers that may read, of the whole host."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.endpoint import Endpoint
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.metrics.collector import written
from tocsin.actors.http.metrics.traffic import Traffic
from tocsin.actors.http.operations import READ
from tocsin.actors.http.query import Query
from tocsin.actors.http.responses import HEADERS, Reply
from tocsin.actors.http.served import ServedHost
from tocsin.errors import ForbiddenError

ACTION: Final = "metrics"
WHOLE_HOST: Final = ""
"""The instance that an app's own rule is given; none has this name."""


class MetricsEndpoint(Endpoint):
    """Writes what this process did, and how it stands, in the format that is asked for."""

    def __init__(self, gate: Gate, host: ServedHost, traffic: Traffic) -> None:
        super().__init__(["GET"], gate)
        self._host, self._traffic = host, traffic

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        if visit.refusal is not None:
            raise visit.refusal
        token = visit.token
        self._gate.check_scope(token, READ, ACTION)
        if token is not None and token.instances is not None:
            raise ForbiddenError(f"token {token.name!r} is for some instances, and metrics are of the whole host")
        await self._gate.ask(visit.caller, ACTION, WHOLE_HOST, None)
        Query(request, ())
        accept = ",".join(request.all(b"accept"))
        text, content_type = written(await self._host.measures(), self._traffic, accept)
        headers = {**HEADERS, "content-type": content_type, "content-length": str(len(text))}
        return Reply(200, [(name.encode(), value.encode("latin-1")) for name, value in headers.items()], text)
