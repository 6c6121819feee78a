"""Stored next slots are checked against their rules when the time zones have changed, and when the clock was wrong.

A pass over all schedules, a page a turn, as a timer: its key is the last name it has looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tocsin.actors.cron.zones import database_version
from tocsin.actors.scheduler.recurring import slots
from tocsin.actors.scheduler.recurring.look import stop
from tocsin.actors.scheduler.recurring.rows import cursor_key
from tocsin.actors.scheduler.recurring.schedule import Schedule, load
from tocsin.actors.scheduler.rows import DAY_MS, META_ZONES
from tocsin.actors.scheduler.turn import Turn
from tocsin.errors import RequestError
from tocsin.storage.api import after

log = logging.getLogger("tocsin.scheduler")

RECHECK: Final = "cronrecheck"
AHEAD_MS: Final = DAY_MS
"""A cursor this far ahead of the clock was moved by a clock that was wrong (contract, section 6; scenario K04)."""
PAGE: Final = 250


async def check_zones(turn: Turn) -> None:
    """At activation: other time zones than at the last one begin a pass."""
    version = database_version().encode()
    stored = await turn.book.storage.get(META_ZONES)
    if stored == version:
        return
    has_any = await turn.book.storage.scan(b"cronat/", after(b"cronat/"), limit=1)
    if has_any:
        turn.book.storage.put(META_ZONES, version)
        if stored is not None:
            log.warning("time zones are now %s: the next slots of all schedules are checked", version.decode())
            turn.book.put_timer(turn.now, RECHECK, "")


def check_clock(turn: Turn) -> None:
    """In every turn that looks at time: a clock more than a day behind the latest slot was ahead before."""
    seen = turn.book.occurrences
    if seen.latest_slot > turn.now + AHEAD_MS:
        log.error(
            "the clock is %d s behind the latest slot that was decided, so it was wrong then or is now: "
            "schedules go on from here", (seen.latest_slot - turn.now) // 1000,
        )  # fmt: skip
        seen.forget_latest(turn.now)
        turn.book.put_timer(turn.now, RECHECK, "")


async def recheck(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """A page of each pass."""
    for _, name in due:
        start = cursor_key(name) + b"\x00" if name else b"cronat/"
        rows = await turn.book.storage.scan(start, after(b"cronat/"), limit=PAGE)
        names = [key[7:].decode() for key, _ in rows]
        for one in (await load(turn, names)).values():
            _recheck(turn, one)
        if len(rows) == PAGE:
            turn.book.put_timer(turn.now, RECHECK, names[-1])


def _recheck(turn: Turn, one: Schedule) -> None:
    if one.cursor.paused or one.cursor.missed_from is not None:
        return
    last = one.cursor.last
    if last > turn.now + AHEAD_MS:
        log.warning("schedule %s was at slot %d, more than a day ahead: it goes on from now", one.name, last)
        last = turn.now
    try:
        next_slot = slots.next_of(one.definition)(last)
    except RequestError as error:
        stop(one, error)
    else:
        if (next_slot, last) != (one.cursor.next_slot, one.cursor.last) or one.cursor.error is not None:
            one.set_next(next_slot, last)
    one.save(turn)
