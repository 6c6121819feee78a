"""Turns of a test clock: it is made, it is advanced from one due instant to the next, it is frozen where it stands.

Time moves only in a turn of its own, in which all that is due at the new instant begins, and only when nothing is left
of the instant before it (`is_quiet`). So the row is where an advance goes on after a crash.
"""

from __future__ import annotations

import dataclasses

from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.rows import LARGEST_MS, META_COUNTERS, encode
from tocsin.actors.scheduler.state.job_queues import Outlook
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.dispatch.instants import SMALLEST_MS
from tocsin.errors import ConflictError, InvalidInputError

Refused = ConflictError | InvalidInputError


async def create(turn: Turn, at: int) -> ClockRow | Refused:
    """Give a new instance a clock that stands at this instant."""
    state = turn.state
    if state.clock is not None:
        if state.clock == ClockRow(at):
            return state.clock
        return ConflictError(
            f"this instance has a test clock already, which stands at {state.clock.at}: advance it, or remove the "
            "instance first"
        )
    rows = await state.storage.scan(b"\x01", b"\xff", limit=10)
    if any(key == META_COUNTERS or not key.startswith(b"meta/") for key, _ in rows):
        return ConflictError(
            "this instance exists already, on the live clock, and stays on it: a test clock is given to an instance "
            "that was never used; take another name, or remove this one first"
        )
    _put(turn, ClockRow(at))
    return ClockRow(at)


def advance(turn: Turn, to: int | None, by_ms: int) -> ClockRow | Refused:
    """Begin to advance the clock to an instant, or by so long. What is due on the way happens in later turns."""
    clock = turn.state.clock
    if clock is None:
        return ConflictError(
            "this instance runs on the live clock, which nobody advances: a test clock is given to a new instance"
        )
    if clock.target:
        return ConflictError(
            f"an advance to {clock.target} goes on, and the clock stands at {clock.at}: wait until it has ended, or "
            "freeze the clock first"
        )
    target = clock.at + by_ms if to is None else to
    if target < clock.at:
        return InvalidInputError(f"to must not be before {clock.at}, where the clock stands, and is {target}")
    if not SMALLEST_MS <= target <= LARGEST_MS:
        return InvalidInputError(
            f"the clock would stand at {target} then, and the last instant there is is {LARGEST_MS}"
        )
    if target > clock.at:
        _put(turn, ClockRow(clock.at, target))
    return turn.state.clock or clock


def freeze(turn: Turn) -> ClockRow | Refused:
    """End an advance where the clock stands now. What has begun goes on."""
    clock = turn.state.clock
    if clock is None:
        return ConflictError("this instance runs on the live clock, which nobody freezes: pause the instance instead")
    if clock.target:
        _put(turn, ClockRow(clock.at))
    return turn.state.clock or clock


def is_quiet(turn: Turn, outlook: Outlook) -> bool:
    """Return whether all that is due has ended, as far as it may start at all. Jobs of queues are another matter."""
    state = turn.state
    if state.leases or outlook.ready or outlook.suspects or outlook.named:
        return False
    return state.next_timer is None or state.next_timer > turn.now


def move(turn: Turn) -> Turn:
    """Move the clock to the next instant at which something is due, but not beyond the target; return the turn at that
    instant. The advance has ended when nothing is left at the target, either."""
    state, clock = turn.state, turn.state.clock
    assert clock is not None and clock.target, "time moves only while it is advanced"
    if clock.at == clock.target:
        _put(turn, ClockRow(clock.at))
        return turn
    outlook = state.lines.outlook(clock.at)
    ahead = (outlook.next_due, state.lines.pulled.next_due(clock.at), state.next_timer)
    at = min([clock.target, *(instant for instant in ahead if instant is not None and instant > clock.at)])
    _put(turn, ClockRow(at, clock.target))
    state.lines.begin(at, None)
    return dataclasses.replace(turn, now=at)


def _put(turn: Turn, row: ClockRow) -> None:
    turn.state.storage.put(CLOCK, encode(row))
    turn.state.clock = row
