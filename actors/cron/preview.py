"""Preview a rule: its next instants, and the effect of clock changes on each."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tocsin.actors.cron.rule import EARLIEST_S, Rule
from tocsin.errors import InvalidInputError

MAX_COUNT: Final = 100


class Upcoming(NamedTuple):
    """`note` starts with `DST` where the clock changes near this line, for whatever reason; else None."""

    at_ms: int
    note: str | None


def preview(rule: Rule, start_ms: int, count: int) -> list[Upcoming]:
    """Return the next instants strictly after `start_ms`: `count` of them (1 to 100), or fewer if there are no more."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
        given = count if isinstance(count, int) and abs(count) < 10**9 else type(count).__name__
        raise InvalidInputError(f"count must be a whole number from 1 to {MAX_COUNT}, not {given}")
    lines: list[Upcoming] = []
    before = start_ms
    while len(lines) < count and (at := rule.next_ms(before)) is not None:
        lines.append(Upcoming(at, _note(rule, before, at)))
        before = at
    return lines


def _note(rule: Rule, before_ms: int, at_ms: int) -> str | None:
    at = at_ms // 1000
    note = oddity(rule, at_ms) or _changed(rule, max(before_ms // 1000, EARLIEST_S), at)
    return None if note is None else f"DST: {note}"


def oddity(rule: Rule, at_ms: int) -> str | None:
    """Say what is odd about an instant of the rule: the clock skips the time that it stands for, or shows it twice;
    None for most."""
    return _skipped(rule, at_ms // 1000) or _twice(rule, at_ms // 1000)


def _skipped(rule: Rule, at: int) -> str | None:
    """Make the note of a line that stands in for times that the clock skipped."""
    first, last = at + rule.zone.offset(at - 1), rule.zone.wall(at)
    if rule.expression.real_time or last <= first:
        return None
    skipped = rule.expression.next_wall(first - 1)
    if skipped is None or skipped >= last:
        return None
    written = "%Y-%m-%d %H:%M" if last - first >= 86_400 else "%H:%M"
    start, end = _written(first, written), _written(last, written)
    return f"the clock skips from {start} to {end}, what is due in between runs at {end}"


def _twice(rule: Rule, at: int) -> str | None:
    """Make the note of a line whose time the clock shows twice."""
    wall = rule.zone.wall(at)
    earlier, later = rule.zone.offsets_at(wall)
    if earlier <= later:
        return None
    time = _written(wall, "%H:%M" if wall % 60 == 0 else "%H:%M:%S")
    if not rule.expression.real_time:
        return f"{time} comes twice, it runs the first time only"
    which = "first" if at == wall - earlier else "second"
    return f"{time} comes twice and runs both times, this is the {which}"


def _changed(rule: Rule, before: int, at: int) -> str | None:
    """Make the note of a line between which and the one before the clock was changed."""
    was, now = rule.zone.offset(before), rule.zone.offset(at)
    return (
        None
        if was == now
        else f"the clock went from UTC{signed_offset(was)} to UTC{signed_offset(now)} since the line before"
    )


def _written(wall: int, how: str) -> str:
    return (datetime(1970, 1, 1) + timedelta(seconds=wall)).strftime(how)


def signed_offset(offset: int) -> str:
    """Format an offset from UTC; historic zones have seconds."""
    minutes, seconds = divmod(abs(offset), 60)
    odd = f":{seconds:02}" if seconds else ""
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}{odd}"
