"""Keep what a bulk action changes for ten minutes, in the batch that changes it; and forget it then, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from tocsin.actors.scheduler.model.acts import (
    KEPT_BYTES,
    KEPT_MOST,
    UNDO,
    UNDO_MS,
    ActRow,
    TrashRow,
    act_key,
    trash_args_key,
    trash_args_prefix,
    trash_key,
    trash_prefix,
)
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import Act, AuditRow, audit_key
from tocsin.actors.scheduler.model.crockford import ms_of
from tocsin.actors.scheduler.model.rows import AtRow, DeadRow, JobRow, args_key, encode
from tocsin.actors.scheduler.model.schedule_rows import slot_key
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.storage.api import after

PAGE: Final = 500


class Acting:
    """One action in one turn: what it keeps, and how much it has changed. Nothing is written before `end`, but for what
    is kept, and nothing at all if nothing has changed."""

    def __init__(self, turn: Turn, action_id: str, row: ActRow | None, noted: AuditRow) -> None:
        self._turn, self.id, self._noted = turn, action_id, noted
        self._old = row
        self._is_forgotten = row is None and noted.changed > 0
        """True if what it had changed was too much or is too long ago. Then nothing more is kept: an undo is of all, or
        of nothing."""
        self.row = row or ActRow(noted.action, 0, full=self._is_forgotten)
        self.is_undone = bool(self.row.undone_by)
        """True if somebody has undone it already: then it changes nothing more."""

    def keep(self, about: str, trash: TrashRow, pieces: Sequence[bytes] = ()) -> None:
        """Keep what was done to one job, so that it can be undone."""
        row, storage = self.row, self._turn.state.storage
        if row.full:
            return
        value = encode(trash)
        size = row.size + len(value) + sum(map(len, pieces))
        if row.kept >= KEPT_MOST or size > KEPT_BYTES:
            self.row = replace(row, full=True)
            return
        storage.put(trash_key(self.id, about), value)
        for n, piece in enumerate(pieces):
            storage.put(trash_args_key(self.id, about, n), piece)
        self.row = replace(row, kept=row.kept + 1, size=size)

    def keep_not(self, reason: str) -> None:
        """Count what nobody can put back."""
        skipped = {**self.row.skipped, reason: self.row.skipped.get(reason, 0) + 1}
        self.row = replace(self.row, skipped=skipped)

    def end(self, matched: int | None, changed: int) -> None:
        """Write the action, its row of the log and its timer. `matched` and `changed` are of this turn."""
        if not changed:
            return
        turn = self._turn
        until = 0 if self.row.full else turn.now + UNDO_MS
        noted = replace(self._noted, changed=self._noted.changed + changed, undo_until=until)
        if matched is not None:
            noted = replace(noted, matched=(noted.matched or 0) + matched)
        audit.put(turn, self.id, noted)
        if self._old is not None and self._old.rings_at:
            turn.state.drop_timer(self._old.rings_at, UNDO, self.id)
        if not self._is_forgotten:
            put_act(turn, self.id, replace(self.row, rings_at=until or turn.now))


def put_act(turn: Turn, action_id: str, row: ActRow) -> None:
    """Write an action with its timer."""
    turn.state.storage.put(act_key(action_id), encode(row))
    if row.rings_at:
        turn.state.put_timer(row.rings_at, UNDO, action_id)


async def begin(turn: Turn, act: Act | None) -> Acting | None:
    """Begin an action, or go on with it in another turn."""
    if act is None:
        return None
    noted = await read_noted(turn, act.id) or replace(act.row, changed=0)
    row = await read_act(turn, act.id)
    acting = Acting(turn, act.id, row, noted)
    acting.is_undone = acting.is_undone or bool(noted.undone_by)
    return acting


def begin_at_once(turn: Turn, by: AskedBy, action: str, about: str, said: dict[str, Any]) -> Acting:
    """Begin an action of one turn."""
    action_id = audit.new_id(turn)
    return Acting(turn, action_id, None, AuditRow(ms_of(action_id), action, by, about, said, changed=0))


async def begin_noted(turn: Turn, action_id: str) -> Acting | None:
    """Go on with an action that is in the log already; None if it is there no more."""
    noted = await read_noted(turn, action_id)
    return None if noted is None else Acting(turn, action_id, await read_act(turn, action_id), noted)


async def read_act(turn: Turn, action_id: str) -> ActRow | None:
    key = act_key(action_id)
    value = await turn.state.storage.get(key)
    return None if value is None else turn.state.read(ActRow, key, value)


async def read_noted(turn: Turn, action_id: str) -> AuditRow | None:
    """Return the row of an action in the audit log."""
    key = audit_key(action_id)
    value = await turn.state.storage.get(key)
    return None if value is None else turn.state.read(AuditRow, key, value)


async def kept(turn: Turn, what: str, job: JobRow, *, at: AtRow | None = None, dead: DeadRow | None = None) -> TrashRow:
    """Return what is to be kept of a job that is about to be removed."""
    ref, slot = job.schedule, None
    if ref is not None:
        slot = await turn.state.storage.get(slot_key(ref.name, ref.slot, ref.request))
    return TrashRow(what, job=job, at=at, dead=dead, slot=slot)


async def pieces_of(turn: Turn, job: JobRow) -> list[bytes]:
    """Return the args of a job beyond what its own row holds. A piece that is lost stays lost."""
    if not job.args_rows:
        return []
    keys = [args_key(job.id, n) for n in range(job.args_rows)]
    rows = await turn.state.storage.get_many(keys)
    return [rows.get(key, b"") for key in keys]


# ---- Forgetting ----------------------------------------------------------------------------------


async def forget(turn: Turn, action_id: str, row: ActRow) -> None:
    """Delete a page of what an action has kept; the action itself when nothing is left. Many may have waited for this
    while the host was down, and each waits for room in the commit."""
    storage = turn.state.storage
    if turn.is_full:
        put_act(turn, action_id, replace(row, rings_at=turn.now, full=True))
        return
    found = await storage.scan_many(
        [(prefix, after(prefix), PAGE) for prefix in (trash_prefix(action_id), trash_args_prefix(action_id))]
    )
    for key, _ in (*found[0], *found[1]):
        storage.delete(key)
    if any(len(rows) == PAGE for rows in found):  # what has no action any more would never be found
        put_act(turn, action_id, replace(row, rings_at=turn.now, full=True))
    else:
        storage.delete(act_key(action_id))
