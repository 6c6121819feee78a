"""`Origin`: a further place that callbacks go to, with secrets of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.dispatch.target import DEFAULT_PATH
from tocsin.dispatch.words import kind_of
from tocsin.errors import SettingsError

ORIGIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
URL: Final = "url"
"""Stands in the place of an origin's name in the rows of jobs with a URL of their own, which share its lanes."""
RESERVED: Final = frozenset({URL})
"""Names that no origin may have."""
MOST: Final = 1_000
"""Origins of one host."""
MAX_IN_FLIGHT: Final = (1, 10_000)


def lacking(name: str) -> str:
    """Say that a host has not what rows name, and how it gets it."""
    if name == URL:
        return "this host calls no URLs of jobs: open it with allow_urls=[...] (a server: TOCSIN_ALLOW_URLS)"
    return (
        f"this host has no origin {name!r}: open it with origins={{...}} (a server: [origins.{name}] in its settings)"
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Origin:
    """A named place that callbacks go to: `origins={"billing": Origin(url="https://billing.example", secrets=[...])}`.

    `url` and `secrets` may be callables, as those of `ActorHost.open`, and the same is checked of them; callbacks
    without secrets go to loopback only, if the host allows that. The secrets of one origin sign nothing that goes to
    another one. `max_in_flight` (1 to 10,000) is how many callbacks may be in flight to it, whatever goes to others;
    left out, as many as to the host's own origin.
    """

    url: str | Callable[[], str | None]
    secrets: Sequence[str | bytes] | Callable[[], Sequence[str | bytes]] = ()
    callback_path: str = DEFAULT_PATH
    max_in_flight: int | None = None

    def __repr__(self) -> str:
        url = self.url if isinstance(self.url, str) else "..."
        return f"Origin(url={url!r}, secrets=..., callback_path={self.callback_path!r})"


def check_origins(origins: object, name: str = "origins") -> dict[str, Origin]:
    """Check the names of origins, and that each is one. SettingsError says which is wrong."""
    if not isinstance(origins, Mapping):
        raise SettingsError(f'{name} must be a dict like {{"billing": Origin(url=...)}}, not {kind_of(origins)}')
    if len(origins) > MOST:
        raise SettingsError(f"{name}: {len(origins)} given, at most {MOST} allowed")
    for one, origin in origins.items():
        check_origin_name(one, name)
        if not isinstance(origin, Origin):
            raise SettingsError(f"{name}[{one!r}] must be an Origin, not {kind_of(origin)}")
        most = origin.max_in_flight
        least, limit = MAX_IN_FLIGHT
        if most is not None and (type(most) is not int or not least <= most <= limit):
            raise SettingsError(f"{name}[{one!r}]: max_in_flight must be a whole number {least}..{limit}, not {most!r}")
    return dict(origins)


def check_origin_name(given: object, name: str) -> str:
    """Return the name of an origin. SettingsError if none may be called so."""
    if not isinstance(given, str) or not ORIGIN_NAME.fullmatch(given):
        raise SettingsError(f"{name}: a name must match {ORIGIN_NAME.pattern}, not {given!r}")
    if given in RESERVED:
        raise SettingsError(f"{name}: the name {given!r} is the system's: choose another one")
    return given
