"""Who asked for something, as records tell it."""

from __future__ import annotations

from tocsin.actors.scheduler.model.asked_by import AskedBy, Pause
from tocsin.actors.scheduler.model.outcomes import Value


class By(Value, frozen=True, rename="camel", omit_defaults=True):
    """Who asked for an action: `via` is the way it came (`python`, `http` or `dashboard`), `token` the name of the
    token that came with the request, `user` what the embedding app calls its user, or whom a Python caller named."""

    via: str
    token: str | None = None
    user: str | None = None


def by_of(who: AskedBy | None) -> By | None:
    return None if who is None else By(who.via, who.token or None, who.user or None)


def pause_of(pause: Pause | None) -> tuple[int | None, By | None]:
    return (None, None) if pause is None else (pause.at, by_of(pause.by))
