"""Records of the named origins of a host, for callers."""

from __future__ import annotations

from tocsin.actors.scheduler.model.outcomes import Value


class OriginStatus(Value, frozen=True, rename="camel", omit_defaults=True):
    """A named origin, as the host that answers sees it. `state`: `ready`; `away` while its circuit is open, `since`
    then; `cooling` until the instant `until`. `in_flight`: callbacks of this instance that are on their way to it, of
    at most `limit`; `message` says what is wrong."""

    name: str
    state: str
    in_flight: int
    limit: int
    message: str | None = None
    since: int | None = None
    until: int | None = None
