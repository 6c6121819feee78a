"""Undo a bulk action, a page a turn: each thing that it did is put back, if it still can be, and that is kept in its
turn, so that the undo can be undone.

What could not be put back is counted by the reason: `id_taken` by another job, `started` since, `gone`, `changed`
since, or `running` when it was cancelled: whatever that attempt does, its job does not come back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
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
    trash_prefix,
)
from tocsin.actors.scheduler.model.asked_by import PYTHON, AskedBy
from tocsin.actors.scheduler.model.audit import AuditRow, audit_key
from tocsin.actors.scheduler.model.crockford import ms_of
from tocsin.actors.scheduler.model.rows import JobRow, at_key, dead_key, job_key
from tocsin.actors.scheduler.model.schedule_rows import SlotRow, slot_key
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import acts, audit, rates, redrive
from tocsin.actors.scheduler.transitions.acts import Acting
from tocsin.actors.scheduler.transitions.apply import apply_to_letter, park_again, restore, restore_letter
from tocsin.actors.scheduler.transitions.job import Drop
from tocsin.actors.scheduler.transitions.submit import cancel, retry_dead
from tocsin.errors import ConflictError, NotFoundError
from tocsin.storage.api import after

PAGE: Final = 500
ALONE_MS: Final = 5_000
"""An undo goes on by itself, page after page, if its caller has not asked for the next page for this long."""
Refused = ConflictError | NotFoundError


class Undoing(msgspec.Struct, frozen=True, array_like=True):
    """How far an undo has come."""

    undoes: str
    matched: int
    restored: int
    skipped: dict[str, int]
    running: bool
    until: int = 0


async def start(turn: Turn, undo_id: str, action_id: str, by: AskedBy) -> Undoing | Refused:
    """Begin to undo an action. Refusals are answered, and change nothing."""
    row, noted = await acts.read_act(turn, action_id), await acts.read_noted(turn, action_id)
    if noted is None:
        return NotFoundError(f"there is no action {action_id!r} in the audit log of this instance")
    if noted.undone_by:
        return ConflictError(
            f"action {action_id!r} was undone by {noted.undone_by!r}: undo that one to have it again",
            undoneBy=noted.undone_by,
        )
    stopped = False
    if row is None and not noted.changed and noted.action == "dead_retry_all":
        stopped = await redrive.stop(turn, action_id)
    if stopped:
        row = ActRow(noted.action, 0)  # it waited for another one, and had retried nothing yet
    if row is None or (not stopped and (row.full or row.undoes or noted.undo_until <= turn.now)):
        return ConflictError(_why_not(action_id, row, noted))
    if row.rings_at:
        turn.state.drop_timer(row.rings_at, UNDO, action_id)
    if row.action == "dead_retry_all":
        stopped = await redrive.stop(turn, action_id) or stopped
    acts.put_act(turn, action_id, replace(row, rings_at=0, undone_by=undo_id))
    audit.put(turn, action_id, replace(noted, undone_by=undo_id, undo_until=0))
    undo = ActRow("undo", turn.now + ALONE_MS, undoes=action_id, skipped=row.skipped)
    acts.put_act(turn, undo_id, undo)
    matched = row.kept + sum(row.skipped.values())
    said: dict[str, str | int | bool] = {"stopped": True} if stopped else {}
    entry = AuditRow(ms_of(undo_id), "undo", by, action_id, said, matched=matched, changed=0, undoes=action_id)
    audit.put(turn, undo_id, entry)
    return Undoing(action_id, matched, 0, row.skipped, running=True)


def _why_not(action_id: str, row: ActRow | None, noted: AuditRow) -> str:
    if row is not None and row.undoes:
        return f"undo {action_id!r} still goes on: wait until it has ended"
    if noted.undo_until:
        return f"action {action_id!r} can be undone no more: its ten minutes are over, or nothing could be put back"
    return (
        f"action {action_id!r} ({noted.action}) cannot be undone: bulk actions can that changed at most {KEPT_MOST:,} "
        f"jobs of {KEPT_BYTES >> 20} MiB together, and changes of pools"
    )


async def page(turn: Turn, undo_id: str, alone_ms: int = ALONE_MS) -> Undoing | None:
    """Go on with an undo: one page. None if there is none of that id."""
    row = await acts.read_act(turn, undo_id)
    if row is None:
        return None
    kept = await acts.read_noted(turn, undo_id)
    noted = kept or AuditRow(ms_of(undo_id), "undo", PYTHON, row.undoes)  # its day of the log is dropped: nobody looks
    if not row.undoes:
        return Undoing(noted.undoes, noted.matched or 0, row.done, row.skipped, False, noted.undo_until)
    storage, undoes = turn.state.storage, row.undoes
    acting = Acting(turn, undo_id, row, noted)
    prefix = trash_prefix(undoes)
    found = await storage.scan(prefix, after(prefix), limit=PAGE)
    ids = [key[len(prefix) :].decode() for key, _ in found]
    await storage.prefetch([key for one in ids for key in (job_key(one), at_key(one), dead_key(one))])
    done = 0
    for key, value in found:
        if turn.is_full:
            break
        about, trash = key[len(prefix) :].decode(), turn.state.read(TrashRow, key, value)
        storage.delete(key)
        if trash is None:
            acting.keep_not("gone")  # it could not be read, and was set aside
            continue
        reason = await INVERSES[trash.what](turn, acting, about, trash, undoes)
        if reason is None:
            done += 1
        else:
            acting.keep_not(reason)
        for n in range(trash.job.args_rows if trash.job is not None else 0):
            storage.delete(trash_args_key(undoes, about, n))
    left = await storage.scan(prefix, after(prefix), limit=1)
    turn.state.drop_timer(row.rings_at, UNDO, undo_id)
    now = replace(acting.row, done=row.done + done)
    if left:
        acts.put_act(turn, undo_id, replace(now, rings_at=turn.now + alone_ms))
        if kept is not None:
            audit.put(turn, undo_id, replace(noted, changed=now.done))
        return Undoing(undoes, noted.matched or 0, now.done, now.skipped, running=True)
    storage.delete(act_key(undoes))
    until = turn.now + UNDO_MS if now.done and not now.full else 0
    acts.put_act(turn, undo_id, replace(now, undoes="", rings_at=until or turn.now))
    if not now.done:
        await _forget_in_vain(turn, undo_id, noted)
    elif kept is not None:
        audit.put(turn, undo_id, replace(noted, changed=now.done, undo_until=until))
    return Undoing(undoes, noted.matched or 0, now.done, now.skipped, False, until)


async def _forget_in_vain(turn: Turn, undo_id: str, noted: AuditRow) -> None:
    """Take an undo that put nothing back out of the log again, unless it stopped a bulk retry. The action is not
    undone, and cannot be any more."""
    action = await acts.read_noted(turn, noted.undoes)
    if action is not None:
        audit.put(turn, noted.undoes, replace(action, undone_by="", undo_until=turn.now))
    if not noted.said.get("stopped"):
        turn.state.storage.delete(audit_key(undo_id))


async def go_on(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Forget an action whose ten minutes are over; go on with an undo that nobody drives."""
    for ms, action_id in due:
        row = await acts.read_act(turn, action_id)
        if row is None or row.rings_at != ms:
            continue
        if row.undoes:
            await page(turn, action_id, 0)
        else:
            await acts.forget(turn, action_id, row)


# ---- One thing put back --------------------------------------------------------------------------


async def _restore(turn: Turn, acting: Acting, job_id: str, trash: TrashRow, undoes: str) -> str | None:
    """Put a cancelled job back in its line."""
    job, at = trash.job, trash.at
    if job is None or at is None:
        return "gone"
    if await turn.state.storage.get(job_key(job_id)) is not None:
        return "id_taken"
    await restore(turn, job, await _pieces(turn, undoes, job), at)
    await _restore_slot(turn, job, trash)
    acting.keep(job_id, TrashRow("restored", job.incarnation))
    return None


async def _cancel_again(turn: Turn, acting: Acting, job_id: str, trash: TrashRow, undoes: str) -> str | None:
    """Cancel a job that an undo had put back, unless it has started."""
    known = (await turn.jobs([job_id])).get(job_id)
    if known is None or known.job.incarnation != trash.incarnation:
        return "gone"
    if turn.state.lease_of(job_id) is not None or await turn.dead([job_id]):
        return "started"
    again = await acts.kept(turn, "cancelled", known.job, at=known.at)
    acting.keep(job_id, again, await acts.pieces_of(turn, known.job))
    await cancel(turn, job_id)
    return None


async def _restore_letter(turn: Turn, acting: Acting, job_id: str, trash: TrashRow, undoes: str) -> str | None:
    """Put a dead letter back that was discarded."""
    job, dead = trash.job, trash.dead
    if job is None or dead is None:
        return "gone"
    if await turn.state.storage.get(job_key(job_id)) is not None:
        return "id_taken"
    restore_letter(turn, job, await _pieces(turn, undoes, job), dead)
    await _restore_slot(turn, job, trash)
    acting.keep(job_id, TrashRow("letter", job.incarnation))
    return None


async def _discard_again(turn: Turn, acting: Acting, job_id: str, trash: TrashRow, undoes: str) -> str | None:
    """Discard a dead letter that an undo had put back, if it is still dead."""
    letter = (await turn.letters([job_id])).get(job_id)
    if letter is None or letter[0].incarnation != trash.incarnation:
        return "gone"
    job, dead = letter
    again = await acts.kept(turn, "discarded", job, dead=dead)
    acting.keep(job_id, again, await acts.pieces_of(turn, job))
    apply_to_letter(turn, job, dead, Drop())
    return None


async def _park_again(turn: Turn, acting: Acting, job_id: str, trash: TrashRow, undoes: str) -> str | None:
    """Make a letter dead again that was retried, unless its job has started since."""
    known = (await turn.jobs([job_id])).get(job_id)
    if trash.dead is None or known is None or known.job.incarnation != trash.incarnation:
        return "started"
    waits = turn.state.lease_of(job_id) is None and not await turn.dead([job_id])
    if not waits or known.at.attempt != trash.dead.at.attempt:
        return "started"
    park_again(turn, known.job, known.at, trash.dead)
    acting.keep(job_id, TrashRow("parked", trash.incarnation))
    return None


async def _retry_again(turn: Turn, acting: Acting, job_id: str, trash: TrashRow, undoes: str) -> str | None:
    """Retry a letter that an undo had made dead again."""
    letter = (await turn.letters([job_id])).get(job_id)
    if letter is None or letter[0].incarnation != trash.incarnation:
        return "gone"
    acting.keep(job_id, TrashRow("retried", trash.incarnation, dead=letter[1]))
    await retry_dead(turn, job_id)
    return None


async def _set_pool(turn: Turn, acting: Acting, name: str, trash: TrashRow, undoes: str) -> str | None:
    """Set a pool as it was, if it is still as the action left it."""
    assert trash.pool is not None
    before, left = trash.pool
    state = turn.state
    if state.lines.pools.get(name) != left:
        return "changed"
    if before is None:
        state.drop_pool(name)
    else:
        rates.put_pool(turn, name, before)
    acting.keep(name, replace(trash, pool=(left, before)))
    return None


async def _restore_slot(turn: Turn, job: JobRow, trash: TrashRow) -> None:
    """Let the slot of an occurrence say again when it was decided. What it has come to is told at the end of the turn.
    A slot that was trimmed meanwhile is left alone."""
    if job.schedule is None or trash.slot is None:
        return
    key = slot_key(job.schedule.name, job.schedule.slot, job.schedule.request)
    value = await turn.state.storage.get(key)
    row = None if value is None else turn.state.read(SlotRow, key, value)
    if row is not None and row.job_id == job.id:
        turn.state.storage.put(key, trash.slot)


async def _pieces(turn: Turn, undoes: str, job: JobRow) -> list[bytes]:
    keys = [trash_args_key(undoes, job.id, n) for n in range(job.args_rows)]
    rows = await turn.state.storage.get_many(keys) if keys else {}
    return [rows.get(key, b"") for key in keys]


Inverse = Callable[[Turn, Acting, str, TrashRow, str], Awaitable[str | None]]
INVERSES: Final[dict[str, Inverse]] = {
    "cancelled": _restore,
    "restored": _cancel_again,
    "discarded": _restore_letter,
    "letter": _discard_again,
    "retried": _park_again,
    "parked": _retry_again,
    "pool": _set_pool,
}
"""By what was done to it: what puts it back, and why that was not possible. Each keeps how to undo it."""
