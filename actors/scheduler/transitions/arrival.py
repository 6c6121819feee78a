"""Turns by which an instance comes out of a file, or leaves for another place.

Rows come in behind a mark: until the last one is here and all were found sound, the instance counts as one that is
being removed. So nothing of it runs, and if nobody goes on with the import, the alarm removes what has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import AuditRow
from tocsin.actors.scheduler.model.crockford import ms_of
from tocsin.actors.scheduler.model.moving import META_IMPORT, ImportRow
from tocsin.actors.scheduler.model.rows import INSTANCE, META_COUNTERS, META_LAYOUT, META_ZONES, InstanceRow, encode
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.errors import ConflictError
from tocsin.storage.api import Row

ABANDONED_MS: Final = 60_000
"""An import of which nothing was heard for so long is removed."""


async def begin(turn: Turn, token: str) -> ConflictError | None:
    """Mark the instance, which must be new."""
    state = turn.state
    if state.instance.importing == token:
        return None
    if state.instance.importing:
        return ConflictError(
            f"another import into {turn.ctx.id.name!r} has not ended: wait for it, or remove the instance first"
        )
    rows = await state.storage.scan(b"\x01", b"\xff", limit=10)
    if any(key == META_COUNTERS or not key.startswith(b"meta/") for key, _ in rows):
        return ConflictError(
            f"instance {turn.ctx.id.name!r} exists, and an import makes a new one: take another name, or remove it "
            "first"
        )
    for key in (META_LAYOUT, META_ZONES):
        state.storage.delete(key)  # the file says them
    state.put_instance(InstanceRow(paused=True, erasing=True, importing=token))
    turn.ctx.set_alarm(turn.wall + ABANDONED_MS)
    return None


def take(turn: Turn, token: str, rows: Sequence[Row]) -> ConflictError | None:
    """Store rows of the import."""
    if (refusal := refused(turn, token)) is not None:
        return refusal
    if rows:
        turn.state.storage.put_many(dict(rows))
    turn.ctx.set_alarm(turn.wall + ABANDONED_MS)
    return None


def end(turn: Turn, token: str, instance: InstanceRow, origin: ImportRow) -> ConflictError | None:
    """Write what lets the instance run. What it holds is read anew after this."""
    if (refusal := refused(turn, token)) is not None:
        return refusal
    storage = turn.state.storage
    if instance == InstanceRow():
        storage.delete(INSTANCE)
    else:
        storage.put(INSTANCE, encode(instance))
    storage.put(META_IMPORT, encode(origin))
    return None


def refused(turn: Turn, token: str) -> ConflictError | None:
    """Return why nothing more of this import is taken."""
    if token and turn.state.instance.importing == token:
        return None
    return ConflictError(
        f"this import into {turn.ctx.id.name!r} has ended, or was removed because nothing came for a minute: begin anew"
    )


def note_import(turn: Turn, by: AskedBy | None, origin: ImportRow, jobs: int) -> None:
    """Note from which file the instance was made. The log that came along is before it."""
    if by is not None:
        said: dict[str, str | int | bool] = {"source": origin.source, "rows": origin.rows}
        if origin.move:
            said["move"] = origin.move
        action_id = audit.new_id(turn)
        row = AuditRow(ms_of(action_id), "import", by, said=said, changed=jobs)
        audit.put(turn, action_id, row)  # also one that is empty


def seal(turn: Turn, move: str, to: str, by: AskedBy | None, *, closed: bool) -> ConflictError | None:
    """Take no new work and start nothing; or, `closed`, change nothing at all."""
    row = turn.state.instance
    if row.moving is not None and row.moving[0] != move:
        return ConflictError(f"instance {turn.ctx.id.name!r} is moving to {row.moving[1]}: {MOVES}", move=row.moving[0])
    closed = closed or (row.moving is not None and row.moving[2])
    turn.state.put_instance(msgspec.structs.replace(row, moving=(move, to, closed)))
    if row.moving is None or closed != row.moving[2]:
        audit.note(turn, by, "seal", said={"to": to, "closed": closed, "move": move})
    return None


def unseal(turn: Turn, move: str, by: AskedBy | None) -> bool:
    """Stay: go on as before."""
    row = turn.state.instance
    if row.moving is None or row.moving[0] != move:
        return False
    turn.state.put_instance(msgspec.structs.replace(row, moving=None))
    audit.note(turn, by, "unseal", said={"to": row.moving[1], "move": move})
    return True


MOVES: Final = "`tocsin move` goes on with that, or gives it up with --abort"
