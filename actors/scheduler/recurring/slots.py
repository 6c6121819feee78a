"""What a schedule owes at an instant: which slots have come, and what becomes of each. Pure: no rows, no turn.

A slot follows from the slot before it, never from the clock (contract, section 6). No look goes further than its pace
allows: those of a long backlog are counted first, look after look, then the newest of them are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, Protocol

import msgspec

from tocsin.actors.cron.rule import Rule
from tocsin.actors.scheduler.recurring.rows import CursorRow, DefinitionRow, Piece
from tocsin.actors.scheduler.rows import DAY_MS, LARGEST_MS

COUNTED: Final = 50_000
"""Missed slots are counted up to so many; of more it is only known that there are."""

RULES: Final = 4_096
"""So many are kept in memory: reading one takes ten times as long as a step of it."""

NEXTS: Final = 8_192

Next = Callable[[int], int | None]
"""The first slot strictly after an instant."""


class Pace(Protocol):
    """How far one look may go."""

    @property
    def most(self) -> int:
        """How many slots it may decide."""
        ...

    def step(self) -> bool:
        """A slot was computed; whether there is time for another one."""
        ...


# ---- Rules ---------------------------------------------------------------------------------------


def next_of(row: DefinitionRow) -> Next:
    """InvalidCronError or UnknownTimezoneError if the stored rule means nothing here (any more)."""
    if row.cron is not None:
        return partial(_next, rule_of(row.cron, row.timezone))
    if row.every_ms is not None:
        return _every(row.anchor, row.every_ms)
    assert row.at is not None
    return _once(row.at)


def rule_of(cron: object, timezone: object) -> Rule:
    """The rule; read once if the two come again soon."""
    if isinstance(cron, str) and isinstance(timezone, str):
        return _rule(cron, timezone)
    return Rule(cron, timezone)  # type: ignore[arg-type]  # it says what is wrong


@lru_cache(RULES)
def _rule(cron: str, timezone: str) -> Rule:
    return Rule(cron, timezone)


@lru_cache(NEXTS)
def _next(rule: Rule, after: int) -> int | None:
    """Many schedules have the same rule, and come to the same instants together."""
    return rule.next_ms(after)


def _every(anchor: int, every: int) -> Next:
    """anchor + k·every. Its first look is from the anchor on, so only a clock that was wrong meets a k below 1."""

    def following(after: int) -> int | None:
        slot = anchor + ((after - anchor) // every + 1) * every
        return slot if slot <= LARGEST_MS else None

    return following


def _once(at: int) -> Next:
    return lambda after: at if after < at else None


def unused(following: Next, used: Collection[int]) -> Next:
    """Without slots that have their rows already."""

    def fresh(after: int) -> int | None:
        slot = following(after)
        while slot is not None and slot in used:
            slot = following(slot)
        return slot

    return fresh if used else following


def before(following: Next, at: int, guess: int = 1_000) -> int:
    """The newest slot before `at`; the caller knows that there is one. `guess`: how far back it may be."""
    width = max(guess, 1)
    while (slot := following(max(at - width - 1, 0))) is None or slot >= at:
        if width > at:
            raise ValueError(f"there is no slot before {at}")
        width *= 2
    low, high = slot, at - 1  # no slot lies between `high` and `at`
    while (later := following(low)) is not None and later < at:
        low = later
        middle = (low + high) // 2
        jump = following(middle)
        if jump is not None and jump < at:
            low = jump
        else:
            high = middle
    return low


# ---- What is owed --------------------------------------------------------------------------------


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
    pieces: tuple[Piece, ...] = ()
    """Those slots, if they have no row yet: it comes with the job, since they are coalesced only if there is one."""
    catch_up: bool = False
    """One of them, or it, was missed (`misfire: one`): an overlap holds it back, whatever the policy."""
    joins: bool = False
    """No slot lies between the one held back and the first of these."""

    def stand_for(self, pieces: tuple[Piece, ...]) -> None:
        """Earlier slots, which have no row yet."""
        some = [piece for piece in pieces if piece[2] != 0]
        counts = [count for _, _, count in some]
        self.pieces, self.first_slot = pieces, some[0][0] if some else None
        self.coalesced = None if None in counts else sum(count for count in counts if count is not None)


@dataclass(slots=True)
class Owed:
    """What becomes of slots, in order; and the cursor after that."""

    cursor: CursorRow
    more: bool = False
    """Whether there is more to decide at this instant, in another look."""
    runs: list[Run] = field(default_factory=list)
    fires: list[Fire] = field(default_factory=list)


@dataclass(slots=True)
class Walk:
    """Slots one after another."""

    slots: list[int]
    next: int | None
    reached: bool
    """Whether they are all up to the horizon; if not, `next` is the first of the rest."""


def walk(following: Next, last: int, horizon: int, pace: Pace) -> Walk:
    """The slots in (last, horizon], at least one of them if there is one, and no more than the pace allows."""
    slots: list[int] = []
    slot = following(last)
    while slot is not None and slot <= horizon:
        if slots and (len(slots) >= pace.most or not pace.step()):
            return Walk(slots, slot, False)
        slots.append(slot)
        slot = following(slot)
    return Walk(slots, slot, True)


def owed(row: DefinitionRow, cursor: CursorRow, following: Next, now: int, pace: Pace) -> Owed:
    """At `now`, from which the jitter has been taken. A slot is late when it is older than the grace."""
    if cursor.skip_to is not None:
        return _passed(cursor, following, now, cursor.skip_to, pace)
    if row.misfire == "one":
        return _one(row, cursor, following, now, pace)
    if row.misfire == "all":
        if cursor.aim is not None:
            return _aim(row, cursor, following, cursor.aim, pace)
        if row.catch_up_limit is None or cursor.fire_to is not None:
            return _each(row, cursor, following, now, pace)
        return _newest(row, cursor, following, now, row.catch_up_limit, pace)
    return _skip(row, cursor, following, now, pace)


def _moved(cursor: CursorRow, last: int, next_slot: int | None, **changes: object) -> CursorRow:
    return msgspec.structs.replace(cursor, last=last, next_slot=next_slot, error=None, **changes)


def _counting(cursor: CursorRow, found: Walk) -> Owed:
    """Nothing is decided yet; go on."""
    return Owed(
        _moved(
            cursor,
            found.slots[-1],
            found.next,
            missed_from=_first(cursor, found.slots),
            missed=_count(cursor, found.slots),
        ),
        more=True,
    )


def _first(cursor: CursorRow, slots: Sequence[int]) -> int:
    return slots[0] if cursor.missed_from is None else cursor.missed_from


def _count(cursor: CursorRow, slots: Sequence[int]) -> int | None:
    return None if cursor.missed is None else cursor.missed + len(slots)


def _too_many(cursor: CursorRow, found: Walk) -> bool:
    count = _count(cursor, found.slots)
    return count is None or count >= COUNTED


def _pending(cursor: CursorRow, slots: Sequence[int], state: str, reason: str | None) -> list[Run]:
    """What was counted so far, and these, as one run."""
    if cursor.missed_from is None and not slots:
        return []
    last = slots[-1] if slots else cursor.last
    return [Run(_first(cursor, slots), last, _count(cursor, slots), state, reason)]


_COUNTED: Final[dict[str, int | None]] = {"missed_from": None, "missed": 0}


def _passed(cursor: CursorRow, following: Next, now: int, skip_to: int, pace: Pace) -> Owed:
    """Those that passed while it was paused. A clock that was far ahead when it was resumed is not waited for."""
    skip_to = now if skip_to > now + DAY_MS else skip_to
    horizon = min(now, skip_to)
    found = walk(following, cursor.last, horizon, pace)
    runs = _pending(cursor, found.slots, "skipped", "paused")
    if not found.reached:
        if not _too_many(cursor, found):
            return _counting(cursor, found)
        last = before(following, horizon + 1)
        runs = [Run(_first(cursor, found.slots), last, None, "skipped", "paused")]
        found = Walk([last], following(last), True)
    last = max([cursor.last, *found.slots[-1:]])
    done = now >= skip_to or found.next is None or found.next > skip_to
    after = _moved(cursor, last, found.next, skip_to=None if done else skip_to, **_COUNTED)
    return Owed(after, found.next is not None and found.next <= now, runs)


def _one(row: DefinitionRow, cursor: CursorRow, following: Next, now: int, pace: Pace) -> Owed:
    """At most one job, for the newest slot; the others are folded into it."""
    found = walk(following, cursor.last, now, pace)
    if not found.reached:
        if not _too_many(cursor, found):
            return _counting(cursor, found)
        newest = before(following, now + 1)
        piece = (_first(cursor, found.slots), before(following, newest), None)
        fire = _folded(row, cursor, newest, (piece,), now)
        return Owed(_moved(cursor, newest, following(newest), **_COUNTED), fires=[fire])
    if not found.slots:  # also when the clock has stepped back while they were counted: it will come again
        return Owed(_moved(cursor, cursor.last, found.next))
    *older, newest = found.slots
    pieces = tuple((run.first, run.last, run.count) for run in _pending(cursor, older, "coalesced", None))
    fire = _folded(row, cursor, newest, pieces, now)
    return Owed(_moved(cursor, newest, found.next, **_COUNTED), fires=[fire])


def _folded(row: DefinitionRow, cursor: CursorRow, newest: int, pieces: tuple[Piece, ...], now: int) -> Fire:
    late_before = now - row.grace_ms
    fire = Fire(newest, newest < late_before, catch_up=(pieces[0][0] if pieces else newest) < late_before)
    fire.stand_for(pieces)
    fire.joins = cursor.missed_from is None and cursor.last == cursor.queued
    return fire


def _skip(row: DefinitionRow, cursor: CursorRow, following: Next, now: int, pace: Pace) -> Owed:
    found = walk(following, cursor.last, now, pace)
    late, on_time = _parted(found.slots, now - row.grace_ms)
    if not found.reached and not on_time:
        if not _too_many(cursor, found):
            return _counting(cursor, found)
        last = before(following, now - row.grace_ms)
        run = Run(_first(cursor, found.slots), last, None, "skipped", "misfire")
        return Owed(_moved(cursor, last, following(last), **_COUNTED), True, [run])
    if not found.slots:
        return Owed(_moved(cursor, cursor.last, found.next))
    runs = _pending(cursor, late, "skipped", "misfire")
    after = _moved(cursor, found.slots[-1], found.next, **_COUNTED)
    return Owed(after, not found.reached, runs, [Fire(slot, False) for slot in on_time])


def _each(row: DefinitionRow, cursor: CursorRow, following: Next, now: int, pace: Pace) -> Owed:
    """All of them, or those that were found to be the newest of a backlog."""
    horizon = now if cursor.fire_to is None else min(now, cursor.fire_to)
    found = walk(following, cursor.last, horizon, pace)
    last = found.slots[-1] if found.slots else cursor.last
    done = found.reached and horizon == cursor.fire_to
    after = _moved(cursor, last, found.next, fire_to=None if done else cursor.fire_to)
    fires = [Fire(slot, slot < now - row.grace_ms) for slot in found.slots]
    return Owed(after, found.next is not None and found.next <= now, fires=fires)


def _newest(row: DefinitionRow, cursor: CursorRow, following: Next, now: int, limit: int, pace: Pace) -> Owed:
    """Of those that are late the newest `limit`, and all that are on time."""
    on_time_from = now - row.grace_ms
    found = walk(following, cursor.last, now, pace)
    late, on_time = _parted(found.slots, on_time_from)
    if not found.reached and not on_time:
        if not _too_many(cursor, found):
            return _counting(cursor, found)
        top = before(following, on_time_from)
        return _begin_aim(cursor, following, _first(cursor, found.slots), top, None, limit)
    if not found.slots:
        return Owed(_moved(cursor, cursor.last, found.next))
    if cursor.missed_from is None:
        dropped, kept = late[: max(len(late) - limit, 0)], late[max(len(late) - limit, 0) :]
        fires = [Fire(slot, True) for slot in kept] + [Fire(slot, False) for slot in on_time]
        after = _moved(cursor, found.slots[-1], found.next)
        return Owed(after, not found.reached, _pending(cursor, dropped, "skipped", "catch_up"), fires)
    top = late[-1] if late else cursor.last
    count = _count(cursor, late)
    return _begin_aim(cursor, following, cursor.missed_from, top, count, limit)


def _begin_aim(cursor: CursorRow, following: Next, first: int, top: int, count: int | None, limit: int) -> Owed:
    if count is not None and count <= limit:
        after = _moved(cursor, first - 1, first, fire_to=top, **_COUNTED)
    else:
        after = _moved(cursor, top, following(top), missed_from=first, missed=count, aim=(top, limit - 1), fire_to=top)
    return Owed(after, True)


def _aim(row: DefinitionRow, cursor: CursorRow, following: Next, aim: tuple[int, int], pace: Pace) -> Owed:
    """Step back from the newest late slot, until as many are found as are to fire."""
    at, wanted = aim
    gap, going = 1_000, True
    while wanted and going:
        earlier = before(following, at, gap)
        gap, at, wanted = at - earlier, earlier, wanted - 1
        going = pace.step() and pace.step() and pace.step()  # so many it takes if they come evenly
    if wanted or not going:
        return Owed(msgspec.structs.replace(cursor, aim=(at, wanted)), True)
    assert cursor.missed_from is not None and row.catch_up_limit is not None
    count = None if cursor.missed is None else cursor.missed - row.catch_up_limit
    run = Run(cursor.missed_from, before(following, at, gap), count, "skipped", "catch_up")
    return Owed(_moved(cursor, at - 1, at, aim=None, **_COUNTED), True, [run])


def _parted(slots: list[int], on_time_from: int) -> tuple[list[int], list[int]]:
    late = [slot for slot in slots if slot < on_time_from]
    return late, slots[len(late) :]
