"""Settings of a pool, checked at the call; and what they make of its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict

import msgspec

from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.flow_rows import PoolFlow
from tocsin.actors.scheduler.model.rows import PoolRow
from tocsin.dispatch.instants import show
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.words import camel, meant, member, word
from tocsin.errors import InvalidInputError

NO_RATE: Final = "none"
TAKEN_AWAY: Final = "off"
"""Says in `PoolFlow.rate_by` that an operator has taken the rate away: no job brings it back."""
COOLS: Final = ("none", "pool", "origin")
WEIGHT: Final = (1, 1_000)
MAX_WEIGHTS: Final = 1_000
PER_KEY: Final = (0, 10_000)
"""Of a shard key: 0 is no cap."""
WIDE: Final = 10_000
"""The cap of a pool that was made by a rate: that alone holds its jobs back."""


class PoolOptions(TypedDict, total=False):
    """Settings of a pool; what is left out, or None, stays as it is."""

    max_concurrency: int | None
    paused: bool | None
    rate: Rate | Literal["none"] | None
    cool_on_retry_after: Literal["none", "pool", "origin"] | None
    cooling: Literal[False] | None
    fair: bool | None
    weights: Mapping[str, int] | None
    max_per_key: int | None


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Checked settings of a pool. None: it stays as it is."""

    max_concurrency: int | None = None
    paused: bool | None = None
    rate: Rate | Literal["none"] | None = None
    """`none` takes the rate away."""
    cool_on_retry_after: str | None = None
    cooling: bool | None = None
    """False: the pool cools no longer."""
    fair: bool | None = None
    weights: dict[str, int] | None = None
    """Instead of all that there were."""
    max_per_key: int | None = None
    """0: no cap."""

    def said(self) -> dict[str, str | int | bool]:
        """Return what was set, for the audit log."""
        return said_of(self)

    def flow_after(self, old: PoolFlow | None) -> PoolFlow | None:
        """Return the pool's flow once this is set; None if it has nothing of its own."""
        before = PoolFlow() if old is None else old
        rate, by = before.rate, before.rate_by
        if self.rate is not None:
            rate, by = (None, TAKEN_AWAY if rate else by) if isinstance(self.rate, str) else (self.rate.stored, "put")
        flow = PoolFlow(
            rate=rate,
            rate_by=by,
            cool=self.cool_on_retry_after or before.cool,
            fair=before.fair if self.fair is None else self.fair,
            weights=before.weights if self.weights is None else self.weights or None,
            per_key=before.per_key if self.max_per_key is None else self.max_per_key or None,
        )
        return None if flow == PoolFlow() else flow

    def cap_after(self, old: PoolRow | None) -> tuple[int, str]:
        """Return the cap once this is set, and who has set it."""
        if self.max_concurrency is not None:
            return self.max_concurrency, "put"
        if isinstance(self.rate, Rate) and old is None:
            return WIDE, "rate"
        if self.rate == NO_RATE and old is not None and old.set_by == "rate":
            return 1, "job"  # as if it had never had one
        return (1, "job") if old is None else (old.cap, old.set_by)


def said_of(settings: msgspec.Struct) -> dict[str, str | int | bool]:
    """Return what is set by settings, for people."""
    said = {camel(name): value for name, value in msgspec.structs.asdict(settings).items() if value is not None}
    return {name: value if isinstance(value, (str, int)) else _words(value) for name, value in said.items()}


def _words(value: Rate | Mapping[str, int]) -> str:
    if isinstance(value, Rate):
        return str(value)
    shown = ", ".join(f"{key} {weight}" for key, weight in list(value.items())[:20])
    return f"{shown} and {len(value) - 20} more" if len(value) > 20 else shown or "none"


def pool_settings(given: Mapping[str, Any]) -> PoolSettings:
    """Check settings as callers give them, by their names in Python."""
    return PoolSettings(**checked("pool", given, _CHECKS))


def checked(kind: str, given: Mapping[str, Any], checks: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given of the settings of a pool, or a queue, if each is one that it has and can be so."""
    if not given.keys() <= checks.keys():
        unknown = min(map(str, given.keys() - checks.keys()))
        raise InvalidInputError(
            f"a {kind} has no {show(unknown)}{meant(unknown, checks)}: choose from {', '.join(map(member, checks))}"
        )
    settings = {name: checks[name](value, name) for name, value in given.items() if value is not None}
    if not settings:
        raise InvalidInputError(f"give at least one of {', '.join(map(member, checks))}")
    return settings


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{word(name)} must be true or false, not {show(value)}")
    return value


def _rate(value: object, name: str) -> Rate | str:
    if isinstance(value, Rate) or value == NO_RATE:
        return value
    how = '{"limit": 100, "per": "1m"}' if word("max_concurrency") == "maxConcurrency" else 'Rate(100, per="1m")'
    raise InvalidInputError(f"{name} must be as {how}, or {NO_RATE!r}, not {show(value)}")


def _cools(value: object, name: str) -> str:
    if value not in COOLS:
        raise InvalidInputError(f"{word(name)} must be one of {', '.join(COOLS)}, not {show(value)}")
    return str(value)


def _cooling(value: object, name: str) -> bool:
    if value is not False:
        raise InvalidInputError(f"{name} must be false, which ends the cooling of the pool, not {show(value)}")
    return value


def _weights(value: object, name: str) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{name} must be numbers by shard key, not {show(value)}")
    if len(value) > MAX_WEIGHTS:
        raise InvalidInputError(f"{name}: {len(value)} given, at most {MAX_WEIGHTS} allowed")
    return {
        arguments.target(key, f"a shard key in {name}"): arguments.integer(weight, f"{name}[{show(key)}]", *WEIGHT)
        for key, weight in value.items()
    }


OF_SHARING: Final[Mapping[str, Any]] = {
    "fair": _flag,
    "weights": _weights,
    "max_per_key": lambda value, name: arguments.integer(value, name, *PER_KEY),
}
"""Checks of the settings that pools and queues have."""
_CHECKS: Final[Mapping[str, Any]] = {
    "max_concurrency": lambda value, name: arguments.integer(value, name, *arguments.CAP),
    "paused": _flag,
    "rate": _rate,
    "cool_on_retry_after": _cools,
    "cooling": _cooling,
    **OF_SHARING,
}
