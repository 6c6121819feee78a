"""What a schedule owes at an instant: which slots have come, and what becomes of each. Pure: no rows, no turn.

A slot follows from the slot before it, never from the clock (contract, section 6). Slots are looked at in pages, so
that no backlog holds the loop for long; those of a page that does not reach the present are only counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tocsin.actors.cron.rule import Rule
from tocsin.actors.scheduler.recurring.rows import CursorRow, DefinitionRow
from tocsin.actors.scheduler.rows import LARGEST_MS

PAGE: Final = 500
"""Slots looked at in one turn: some 25 ms."""
COUNTED: Final = 50_000
"""Missed slots are counted up to so many; of more it is only known that there are."""

Next = Callable[[int], int | None]
"""The first slot strictly after an instant."""


def next_of(row: DefinitionRow) -> Next:
    """InvalidCronError or UnknownTimezoneError if the stored rule means nothing here (any more)."""
    if row.cron is not None:
        return _rule(row.cron, row.timezone).next_ms
    if row.every_ms is not None:
        return _every(row.anchor, row.every_ms)
    assert row.at is not None
    return _once(row.at)


@lru_cache(4096)
def _rule(cron: str, timezone: str) -> Rule:
    return Rule(cron, timezone)


def _every(anchor: int, every: int) -> Next:
    def following(after: int) -> int | None:
        slot = anchor + max((after - anchor) // every + 1, 1) * every
        return slot if slot <= LARGEST_MS else None

    return following


def _once(at: int) -> Next:
    return lambda after: at if after < at else None


@dataclass(slots=True)
class Come:
    """The slots that have come since the cursor."""

    slots: list[int]
    """Those to be decided now, in order: all of them, or the newest of a long run."""
    last: int
    """The cursor after this look."""
    reached: bool
    """Whether it reached the present; if not, the rest is looked at in a turn of its own."""
    missed_from: int | None = None
    missed: int | None = 0
    """A run of slots before `slots`, and how many; None: not counted."""


def come(following: Next, cursor: CursorRow, now: int, wanted: int | None) -> Come:
    """The slots in (cursor.last, now]; of a run longer than a page only the newest `wanted` are named (None: all)."""
    slots: list[int] = []
    last = cursor.last
    while len(slots) < PAGE:
        slot = following(last)
        if slot is None or slot > now:
            return _arrived(following, cursor, slots, last, now, wanted)
        slots.append(slot)
        last = slot
    if wanted is None:
        return Come(slots, last, False)
    missed = cursor.missed + len(slots)
    missed_from = cursor.missed_from if cursor.missed_from is not None else slots[0]
    if missed < COUNTED:
        return Come([], last, False, missed_from, missed)
    named = newest(following, missed_from, now, wanted)
    return Come(named, named[-1], True, missed_from, None)


def _arrived(following: Next, cursor: CursorRow, slots: list[int], last: int, now: int, wanted: int | None) -> Come:
    if cursor.missed_from is None:
        return Come(slots, last, True)
    assert wanted is not None
    named = newest(following, cursor.missed_from, now, wanted)
    return Come(named, last, True, cursor.missed_from, cursor.missed + len(slots) - len(named))


def newest(following: Next, first: int, now: int, wanted: int) -> list[int]:
    """The newest slots in [first, now], at most `wanted`, in order. Looks back in windows, so it never walks far."""
    low, high = first - 1, now  # more than enough after `low`, not enough after `high`
    width = 1_000
    found: list[int] = []
    while True:
        start = max(now - width, first - 1)
        got, whole = _after(following, start, now, wanted)
        if whole:
            found, high = got, start
            if len(got) == wanted or start == first - 1:
                return found
            width *= 4
        else:
            low = start
            break
    while high - low > 1:
        middle = (low + high) // 2
        got, whole = _after(following, middle, now, wanted)
        if not whole:
            low = middle
            continue
        found, high = got, middle
        if len(got) == wanted:
            break
    return found


def _after(following: Next, start: int, now: int, most: int) -> tuple[list[int], bool]:
    """The slots in (start, now], and whether they are no more than `most`."""
    found: list[int] = []
    at = start
    while (slot := following(at)) is not None and slot <= now:
        if len(found) == most:
            return found, False
        found.append(slot)
        at = slot
    return found, True


# ---- Deciding ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """Slots that end without a job: one, or a run of them."""

    first: int
    last: int
    count: int | None
    state: str
    reason: str | None = None


@dataclass(slots=True)
class Fire:
    """A slot that becomes a job, if no overlap or taken id is in its way."""

    slot: int
    late: bool
    first_slot: int | None = None
    coalesced: int | None = 0
    """How many earlier slots it stands for; None: not counted."""


@dataclass(slots=True)
class Plan:
    """What becomes of each slot, in order."""

    runs: list[Run] = field(default_factory=list)
    fires: list[Fire] = field(default_factory=list)


def wanted(row: DefinitionRow) -> int | None:
    """How many of the newest slots of a long run have to be named."""
    if row.misfire == "all":
        return row.catch_up_limit
    return 1 if row.misfire == "one" else PAGE


def decide(row: DefinitionRow, found: Come, now: int, jitter: int) -> Plan:
    """The misfire policy. A slot is late when it is older than the grace."""
    if row.misfire == "one":
        return _one(found, now - row.grace_ms - jitter)
    on_time_from = now - row.grace_ms - jitter
    slots = found.slots
    if row.misfire == "skip":
        late = [slot for slot in slots if slot < on_time_from]
        reason, kept = "misfire", slots[len(late) :]
    else:
        limit = len(slots) if row.catch_up_limit is None else row.catch_up_limit
        late = slots[: max(len(slots) - limit, 0)]
        reason, kept = "catch_up", slots[len(late) :]
    plan = Plan(fires=[Fire(slot, slot < on_time_from) for slot in kept])
    if (run := _run(found, late, "skipped", reason)) is not None:
        plan.runs.append(run)
    return plan


def _one(found: Come, on_time_from: int) -> Plan:
    """At most one job, for the newest slot; the others are folded into it."""
    if not found.slots:
        return Plan()
    *older, slot = found.slots
    run = _run(found, older, "coalesced", None)
    if run is None:
        return Plan(fires=[Fire(slot, slot < on_time_from)])
    return Plan([run], [Fire(slot, slot < on_time_from, run.first, run.count)])


def _run(found: Come, slots: list[int], state: str, reason: str | None) -> Run | None:
    """The run that was counted before, and those named slots that join it."""
    if found.missed_from is None or found.missed == 0:
        return Run(slots[0], slots[-1], len(slots), state, reason) if slots else None
    count = None if found.missed is None else found.missed + len(slots)
    last = slots[-1] if slots else (found.slots[0] - 1 if found.slots else found.last)
    return Run(found.missed_from, last, count, state, reason)
