"""One request on its way to a scheduler: what operations may ask of it."""

from __future__ import annotations

from typing import TypeVar

from starlette.requests import Request

from tocsin.actors.http import body, wire
from tocsin.actors.http.access import Caller, Gate
from tocsin.actors.http.query import Query
from tocsin.actors.scheduler.handle import Scheduler
from tocsin.errors import InvalidInputError

B = TypeVar("B", bound=wire.Request)


class Call:
    """A request whose token has passed. Before an operation does anything it must `admit` what it touches."""

    def __init__(self, request: Request, scheduler: Scheduler, gate: Gate, caller: Caller, action: str) -> None:
        self.scheduler = scheduler
        self._request, self._gate, self._caller, self._action = request, gate, caller, action

    async def admit(self, resource: str | None) -> None:
        """ForbiddenError if the embedding app's rule says no."""
        await self._gate.ask(self._caller, self._action, self.scheduler.name, resource)

    def check_replay(self) -> None:
        """A replay that is asked for and not given would be a second job: refused until there are replays."""
        if "idempotency-key" in self._request.headers:
            raise InvalidInputError(
                "Idempotency-Key is not in this version of tocsin yet: leave it out, and give id with onConflict "
                "keep to make a job at most once"
            )

    def query(self, *known: str) -> Query:
        return Query(self._request, known)

    async def body(self, kind: type[B], limit: int) -> B:
        """The request in the body; it takes no query parameters beside it."""
        Query(self._request, ())
        parsed = body.parse_text(await body.read_json(self._request, limit), kind)
        parsed.check_instance(self.scheduler.name)
        return parsed
