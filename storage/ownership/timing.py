"""How long a host of a shared store counts as alive, and how often it says that it is."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tocsin.errors import SettingsError

LEAST_S: Final = 0.05
MOST_S: Final = 3_600.0
USUAL_TTL_S: Final = 10.0
BEATS_OF_TTL: Final = 0.3
MARGIN_OF_TTL: Final = 0.2
LEAST_ANSWER_S: Final = 0.25


def slept_s() -> float:
    """Return for how long this machine was suspended since it started, to a tenth, where that can be told. The event
    loop's clock stands still meanwhile, and the lease in the store runs on."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC), 1)


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one host. `ttl_s` after its last sign of life others may take what it has; it gives one every `beat_s`,
    and stops to trust its own memory `margin_s` before the others may."""

    ttl_s: float = USUAL_TTL_S
    beat_s: float = 3.0
    margin_s: float = 2.0
    look_s: float = 0.5
    """So often it looks at the other hosts."""
    second_look_s: float = 0.25
    """A host whose session is gone is looked at again after so long, before it is declared dead."""
    leave_s: float = 5.0
    """So long a hand-over waits for turns and commits that are under way."""
    step: int = 64
    """Number of slots that are handed over at a time while all goes on."""

    def __post_init__(self) -> None:
        for name in ("ttl_s", "beat_s", "margin_s", "look_s", "second_look_s", "leave_s"):
            value = getattr(self, name)
            if not LEAST_S <= value <= MOST_S:
                raise SettingsError(f"{name} is {value:g} s: give {LEAST_S:g} to {MOST_S:g} s")
        if self.beat_s + self.margin_s > self.ttl_s * 0.75:
            raise SettingsError(
                f"beat_s ({self.beat_s:g}) and margin_s ({self.margin_s:g}) together are over 3/4 of ttl_s "
                f"({self.ttl_s:g}): a host that misses one beat would stop. Give a longer ttl_s, or less of them"
            )
        if self.step < 1:
            raise SettingsError(f"step is {self.step}: at least one slot is handed over at a time")

    @property
    def answer_s(self) -> float:
        """A sign of life that is not answered for so long has failed: it leaves time for another one while the lease
        runs."""
        return max((self.ttl_s - self.margin_s) / 2, LEAST_ANSWER_S)

    @classmethod
    def of(cls, ttl_s: float) -> Timing:
        """Return times that go well with a ttl: a beat of 3/10 of it, a margin of 2/10."""
        return cls(
            ttl_s,
            beat_s=max(ttl_s * BEATS_OF_TTL, LEAST_S),
            margin_s=max(ttl_s * MARGIN_OF_TTL, LEAST_S),
            look_s=min(max(ttl_s / 20, LEAST_S), 0.5),
            second_look_s=min(max(ttl_s / 40, LEAST_S), 0.25),
            leave_s=max(ttl_s / 2, LEAST_S),
        )

    @classmethod
    def from_texts(cls, parameters: Mapping[str, str]) -> Timing:
        """Read `ttl`, `beat` and `margin` in seconds, as they stand in a URL. What is left out follows from the ttl."""
        given = {name: _seconds(name, parameters[name]) for name in ("ttl", "beat", "margin") if name in parameters}
        usual = cls.of(given.get("ttl", USUAL_TTL_S))
        return cls(
            usual.ttl_s,
            given.get("beat", usual.beat_s),
            given.get("margin", usual.margin_s),
            usual.look_s,
            usual.second_look_s,
            usual.leave_s,
        )


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not LEAST_S <= value <= MOST_S:
        raise SettingsError(f"{name}={text[:20]!r} of the store's URL: give {LEAST_S:g} to {MOST_S:g} seconds")
    return value
