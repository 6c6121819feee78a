"""`GET /instances`: every instance that the caller may see, by name, with counts."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.access import Caller, Gate, Visit
from tocsin.actors.http.endpoint import Endpoint
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.operations import ADMIN
from tocsin.actors.http.operations_reading import DEFAULT_LIMIT
from tocsin.actors.http.parameters import PAGED, names
from tocsin.actors.http.query import Query
from tocsin.actors.http.responses import Reply, answer
from tocsin.actors.http.served import ServedHost
from tocsin.actors.http.tokens import Token
from tocsin.errors import ForbiddenError

ACTION: Final = "instances"


class Instances(Endpoint):
    """A page of instances. Those that the token's pattern or the app's own rule does not let pass are left out."""

    def __init__(self, gate: Gate, host: ServedHost) -> None:
        super().__init__(["GET"], gate)
        self._host = host

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        if visit.refusal is not None:
            raise visit.refusal
        caller, token = visit.caller, visit.token
        self._gate.check_scope(token, ADMIN, ACTION)
        query = Query(request, names(PAGED))
        limit = query.whole("limit")

        async def shown(name: str) -> bool:
            return await may_see(self._gate, caller, token, name)

        page = await self._host.instances(
            cursor=query.text("cursor") or None, limit=DEFAULT_LIMIT if limit is None else limit, shown=shown
        )
        return answer(page)


async def may_see(gate: Gate, caller: Caller, token: Token | None, name: str) -> bool:
    """Return whether a list of instances shows this one to the caller."""
    if token is not None and not token.reaches(name):
        return False
    try:
        await gate.ask(caller, ACTION, name, None)
    except ForbiddenError:
        return False
    return True
