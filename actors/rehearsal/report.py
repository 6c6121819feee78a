"""The findings of a rehearsal, as plain structs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.dispatch.plain import Plain


class Value(Plain, msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Camel case in JSON. Instants are epoch ms, durations ms, shares 0 to 1."""


class Late(Value, frozen=True):
    """Lateness: how long after its due instant an attempt started: the median, the 99th percentile, the longest."""

    p50_ms: int = 0
    p99_ms: int = 0
    most_ms: int = 0

    @classmethod
    def of(cls, late: Sequence[int]) -> Late:
        if not late:
            return cls()
        ordered = sorted(late)
        last = len(ordered) - 1
        return cls(p50_ms=ordered[last // 2], p99_ms=ordered[-(-last * 99 // 100)], most_ms=ordered[last])


class HourOf(Value, frozen=True):
    """One hour of the clock, from `at`: how many attempts started, and how late."""

    at: int
    fires: int
    late: Late


class PoolHour(Value, frozen=True):
    """One hour of a pool: for which share of it the pool was full, and how many of its jobs started."""

    at: int
    full: float
    fires: int


class PoolFound(Value, frozen=True):
    """One pool. `full`: for which share of the time all slots were held; `rate_used`: which share of the starts that
    its rate allows in an hour the busiest hour had; `longest_wait_ms`: the longest time that one of its jobs waited
    after it was due; `waiting`: how many due jobs had not started at the end."""

    instance: str
    name: str
    max_concurrency: int
    paused: bool
    rate: str | None
    fires: int
    full: float
    rate_used: float | None
    longest_wait_ms: int
    late: Late
    waiting: int
    hours: Sequence[PoolHour]


class Slots(Value, frozen=True):
    """Slots of one schedule that nothing was fired for, in the state and for the reason that the occurrences say."""

    instance: str
    schedule: str
    state: str
    reason: str | None
    count: int


class ClockChange(Value, frozen=True):
    """A slot of a schedule that the clock of its time zone skips or shows twice."""

    instance: str
    schedule: str
    at: int
    timezone: str
    note: str


class Rehearsal(Value, frozen=True):
    """Everything that happened between `start` and `until`, if nothing new is scheduled.

    `attempts_known`: how many attempts of the history calls were drawn from. `outcomes`: how attempts and jobs ended;
    `deaths`: jobs that died, by reason. `waiting`: due jobs that had not started at the end, `running`: attempts that
    had not ended. `failed`: instances whose scheduler could not go on, and why.
    """

    start: int
    until: int
    seed: int
    instances: int
    jobs: int
    attempts_known: int
    call_ms: int
    fires: int
    late: Late
    outcomes: dict[str, int]
    deaths: dict[str, int]
    waiting: int
    running: int
    hours: Sequence[HourOf]
    pools: Sequence[PoolFound]
    missed: Sequence[Slots]
    clock_changes: Sequence[ClockChange]
    failed: dict[str, str]
