"""Who may watch: asked when a watcher comes, and again while it stays."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.access import Caller, Gate, Visit
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.operations import READ
from tocsin.errors import UnauthenticatedError

ACTION: Final = "changes"


class Rights:
    """The rights of one watcher of one instance, by the request that it came with; or (`digest`) by the token whose
    pass it had."""

    def __init__(self, gate: Gate, request: Incoming, instance: str, digest: str = "") -> None:
        self._gate, self._request, self._instance, self._digest = gate, request, instance, digest

    async def check(self) -> None:
        """Raise UnauthenticatedError or ForbiddenError if this caller may not watch now."""
        visit = self._visit()
        if visit.refusal is not None:
            raise visit.refusal
        if visit.token is not None:
            self._gate.check_token(visit.token, READ, ACTION, self._instance)
        if self._gate.has_rule:
            await self._gate.ask(visit.caller, ACTION, self._instance, None)

    def _visit(self) -> Visit:
        if not self._digest:
            return self._gate.enter(self._request)
        for token in self._gate.tokens:
            if token.digest.hex() == self._digest:
                return Visit(Caller(token.name, self._request.scope.get("user"), self._request.headers), token)
        raise UnauthenticatedError("the token that this one was given for is not known any more")
