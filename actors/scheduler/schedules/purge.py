"""The history of schedules that were deleted 30 days ago goes, a page a turn."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.actors.scheduler.model.backfill_rows import backfill_prefix
from tocsin.actors.scheduler.model.rows import encode
from tocsin.actors.scheduler.model.schedule_rows import FORGET, CursorRow, cursor_key, slot_prefix, trigger_key
from tocsin.actors.scheduler.schedules.allowance import ROWS
from tocsin.actors.scheduler.schedules.schedule import read
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.storage.api import after


async def purge(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Drop the history of deleted schedules. Timers that are not reached are still due."""
    left = ROWS
    for ms, name in due:
        if left <= 0:
            return
        turn.state.drop_timer(ms, FORGET, name)
        key = cursor_key(name)
        cursor = read(turn, CursorRow, key, await turn.state.storage.get_many([key]))
        if cursor is None or cursor.forget_at != ms:
            continue
        triggers = await _drop(turn, trigger_key(name, ""), left)
        triggers += await _drop(turn, backfill_prefix(name), left - triggers)
        slots = await _drop(turn, slot_prefix(name), left - triggers)
        if triggers + slots < left:
            turn.state.storage.delete(key)
        else:
            turn.state.put_timer(turn.now, FORGET, name)
            cursor = msgspec.structs.replace(cursor, forget_at=turn.now, kept=max(cursor.kept - slots, 0))
            turn.state.storage.put(key, encode(cursor))
        left -= triggers + slots + 2


async def _drop(turn: Turn, prefix: bytes, most: int) -> int:
    rows = await turn.state.storage.scan(prefix, after(prefix), limit=most) if most > 0 else []
    for key, _ in rows:
        turn.state.storage.delete(key)
    return len(rows)
