"""Who may watch: asked when a watcher comes, and again while it stays."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.operations import READ

ACTION: Final = "changes"


class Rights:
    """The rights of one watcher of one instance, by the request that it came with."""

    def __init__(self, gate: Gate, request: Incoming, instance: str) -> None:
        self._gate, self._request, self._instance = gate, request, instance

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
        return self._gate.enter(self._request)
