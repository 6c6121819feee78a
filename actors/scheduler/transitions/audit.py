"""Note in the audit log what an operator changed, in the batch that changes it. What changes nothing is not noted."""

from __future__ import annotations

from typing import Any

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import AUDIT, AUDIT_MS, AuditRow, audit_day
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
    return mint_id(turn.now, (turn.wall << 32) | counted | turn.ctx.random.getrandbits(12))


def put(turn: Turn, action_id: str, row: AuditRow) -> None:
    """Write a row of the log, and see to it that its day is dropped in time."""
    day = row.at // DAY_MS  # that in which the id was minted, too
    turn.state.storage.put(audit_day(day) + action_id.encode(), encode(row))
    if day != turn.state.days.get(AUDIT):
        turn.state.days = {**turn.state.days, AUDIT: day}
        turn.state.put_timer((day + 1) * DAY_MS + AUDIT_MS, AUDIT, str(day))
