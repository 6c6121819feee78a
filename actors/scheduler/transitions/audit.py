"""Note in the audit log what an operator changed, in the batch that changes it. What changes nothing is not noted."""

from __future__ import annotations

from typing import Any

import msgspec

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import AUDIT, AUDIT_MS, Act, AuditRow, audit_key
from tocsin.actors.scheduler.model.crockford import mint_id
from tocsin.actors.scheduler.model.rows import DAY_MS, encode
from tocsin.actors.scheduler.state.turn import Turn


def note(
    turn: Turn, by: AskedBy | None, action: str, about: str = "", said: dict[str, Any] | None = None, changed: int = 1
) -> None:
    """Note an action of one turn. Nothing is noted where `by` is None: the action was an everyday one of an app."""
    if by is not None and changed:
        put(turn, new_id(turn), AuditRow(turn.now, action, by, about, said or {}, changed=int(changed)))


def new_id(turn: Turn) -> str:
    """Mint the id of an action. Ids sort as they were minted, also while a test clock stands."""
    counted = (turn.ctx.next_seq() & 0xFFFFF) << 12
    return mint_id(turn.now, (turn.wall << 32) | counted | turn.random.getrandbits(12))


async def add(turn: Turn, act: Act | None, matched: int, changed: int) -> None:
    """Add to the row of an action that takes several turns what this turn has come to."""
    if act is None or not changed:
        return
    key = audit_key(act.row.at, act.id)
    value = await turn.state.storage.get(key)
    row = None if value is None else turn.state.read(AuditRow, key, value)
    if row is None:
        row = msgspec.structs.replace(act.row, matched=0, changed=0)
    put(turn, act.id, msgspec.structs.replace(row, matched=(row.matched or 0) + matched, changed=row.changed + changed))


async def count(turn: Turn, noted_at: int, action_id: str, changed: int) -> None:
    """Write how much an action that goes on has changed so far, if it has a row."""
    if not noted_at:
        return
    key = audit_key(noted_at, action_id)
    value = await turn.state.storage.get(key)
    row = None if value is None else turn.state.read(AuditRow, key, value)
    if row is not None and row.changed != changed:
        put(turn, action_id, msgspec.structs.replace(row, changed=changed))


def put(turn: Turn, action_id: str, row: AuditRow) -> None:
    """Write a row of the log, and see to it that its day is dropped in time."""
    turn.state.storage.put(audit_key(row.at, action_id), encode(row))
    day = row.at // DAY_MS
    if day != turn.state.days.get(AUDIT):
        turn.state.days[AUDIT] = day
        turn.state.put_timer((day + 1) * DAY_MS + AUDIT_MS, AUDIT, str(day))
