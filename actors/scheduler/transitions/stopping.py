"""Cancel all open members of a group: a durable job that goes on page after page, over crashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.groups import OPEN, STOP, GroupRow, member_key, member_prefix
from tocsin.actors.scheduler.state.groups import groups_of, load_groups, uid_of
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.actors.scheduler.transitions.following import AT_ONCE
from tocsin.actors.scheduler.transitions.groups import Refused, settle_groups
from tocsin.actors.scheduler.transitions.submit import cancel
from tocsin.errors import ConflictError, NotFoundError
from tocsin.storage.api import after

PAGE: Final = 200


async def stop(turn: Turn, name: str, by: AskedBy | None) -> GroupRow | Refused:
    """Begin to cancel the members of a group that live. It is sealed, and nothing follows it."""
    groups = await load_groups(turn.state, [name])
    row = groups.rows.get(name)
    if row is None:
        return NotFoundError(f"there is no group {name!r}")
    if row.state != OPEN:
        return ConflictError(f"group {name!r} is complete ({row.state}): there is nothing to cancel", group=name)
    if not row.stopping:
        row = replace(row, sealed=True, stopping=True, cursor="")
        groups.put(name, row)
        turn.state.put_timer(AT_ONCE, STOP, name)
        audit.note(turn, by, "groups.cancel", name, changed=max(row.open, 1))
    await settle_groups(turn)
    return groups.rows[name]


async def go_on_stopping(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Cancel a page of the members of each of these groups; those that are dead letters stay."""
    groups = await load_groups(turn.state, sorted({name for _, name in due}))
    for _, name in due:
        row = groups.rows.get(name)
        if row is not None and row.stopping:
            await _cancel_page(turn, name, row)


async def _cancel_page(turn: Turn, name: str, row: GroupRow) -> None:
    prefix, cursor = member_prefix(row.uid), row.cursor
    start = member_key(row.uid, cursor) + b"\x00" if cursor else prefix
    page = await turn.state.storage.scan(start, after(prefix), limit=PAGE)
    ids = [key[len(prefix) :].decode() for key, _ in page]
    known, done = await turn.jobs(ids), 0
    for job_id in ids:
        if turn.is_full:
            break
        cursor, done = job_id, done + 1
        if job_id in known and uid_of(known[job_id].job) == row.uid:
            await cancel(turn, job_id)
    groups = groups_of(turn.state)
    groups.put(name, replace(groups.rows[name], cursor=cursor))
    if done < len(ids) or len(ids) == PAGE:
        turn.state.put_timer(AT_ONCE, STOP, name)
