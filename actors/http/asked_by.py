"""Name who asks for a change, for the audit log: by the token, and by the user that the embedding app knows."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.access import Visit
from tocsin.actors.scheduler.model.asked_by import AskedBy

HTTP: Final = "http"
DASHBOARD: Final = "dashboard"
OF_PEOPLE: Final = frozenset({"cancel", "reschedule"})
"""Actions that are noted if a person asks. Apps ask all day: their users are not asked for a text that nobody keeps."""


def asked_by(visit: Visit, via: str = HTTP) -> AskedBy:
    """Return who asks. Whoever uses the dashboard is a person, and so is who has a token that may operate and not
    schedule: apps have tokens that may schedule."""
    name, user = visit.caller.identity
    return AskedBy(via, name, user, via == DASHBOARD or _operates_only(visit))


def is_noted(action: str, visit: Visit) -> bool:
    """Return whether the audit log notes who asked for this over HTTP."""
    return action not in OF_PEOPLE or _operates_only(visit)


def _operates_only(visit: Visit) -> bool:
    return visit.token is not None and "schedule" not in visit.token.scopes
