"""Name who asks for a change, for the audit log: by the token, and by the user that the embedding app knows."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.access import Visit
from tocsin.actors.scheduler.model.asked_by import AskedBy

HTTP: Final = "http"
DASHBOARD: Final = "dashboard"


def asked_by(visit: Visit, via: str = HTTP) -> AskedBy:
    """Return who asks. Whoever uses the dashboard is a person, and so is who has a token that may operate and not
    schedule: apps have tokens that may schedule."""
    name, user = visit.caller.identity
    person = via == DASHBOARD or (visit.token is not None and "schedule" not in visit.token.scopes)
    return AskedBy(via, name, user, person)
