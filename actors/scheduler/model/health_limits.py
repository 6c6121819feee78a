"""From when on a fact is named in health: the limits that differ from one user to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from tocsin.dispatch.words import meant
from tocsin.errors import SettingsError

MOST: Final = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """Limits of `status.health` and `/readyz`. Each is a whole number above 0."""

    late_s: int = 300
    """For how long a callback may be due that only waits its turn."""
    queue_late_s: int = 3_600
    """For how long a job of a queue may be due: workers may come once an hour."""
    deaths: int = 100
    """How many jobs of one scheduler may die within ten minutes."""
    losses: int = 100
    """How many attempts of a host may be lost within ten minutes."""
    dead_letters: int = 100_000
    """How many dead jobs one scheduler may keep."""
    loop_lag_ms: int = 1_000
    """How late the event loop may be, three times in a minute."""
    wal_mib: int = 256
    """How long the store's write-ahead log may be."""


NAMES: Final = tuple(each.name for each in fields(HealthLimits))


def health_limits(given: Mapping[str, Any] | None) -> HealthLimits:
    """Make the limits from those that differ from the defaults. SettingsError names what is wrong."""
    if given is None:
        return HealthLimits()
    if not isinstance(given, Mapping):
        raise SettingsError(f'health_limits must be a dict like {{"late_s": 600}}, not {type(given).__name__}')
    for name, value in given.items():
        if name not in NAMES:
            raise SettingsError(
                f"health_limits has no limit {name!r}{meant(str(name), set(NAMES))}: choose from {', '.join(NAMES)}"
            )
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST:
            raise SettingsError(f"health_limits: {name} must be a whole number 1..{MOST}, not {value!r}")
    return HealthLimits(**given)
