"""Read the audit log from committed rows, the newest action first."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.audit import AuditRow, audit_day, audit_key
from tocsin.actors.scheduler.model.audit_records import AuditEntry, AuditPage
from tocsin.actors.scheduler.model.records import by_of
from tocsin.actors.scheduler.model.rows import DAY_MS, BadRow, decode
from tocsin.actors.scheduler.queries.listing import decode_cursor, encode_cursor
from tocsin.errors import NotFoundError
from tocsin.storage.api import StoreView, after

LOOKED_AT: Final = 5_000
"""Rows that one page looks at; one that found less than asked for is truncated, and has a cursor."""


async def page(
    view: StoreView, instance: str, *, cursor: str | None, limit: int, action: str | None, who: str | None, since: int
) -> AuditPage:
    """Return a page of actions. `who` is the name of a token or a user, or the way that an action came."""
    scope = f"audit/{instance}/{action}/{who}/{since}"
    place = decode_cursor(scope, cursor)
    end = after(b"audit/") if place is None else audit_key(place[1])
    rows = await view.scan(audit_day(since // DAY_MS), end, limit=LOOKED_AT, reverse=True)
    found: list[AuditEntry] = []
    for key, value in rows:
        try:
            row = decode(AuditRow, key, value)
        except BadRow:
            continue  # the actor sets it aside when it comes to it
        entry = _entry(key.rpartition(b"/")[2].decode(), row)
        if not _fits(row, action, who, since):
            continue
        if len(found) == limit:
            last = found[-1]
            return AuditPage(found, truncated=True, cursor=encode_cursor(scope, last.at, last.id))
        found.append(entry)
    if len(rows) < LOOKED_AT:
        return AuditPage(found, truncated=False)
    _, day, last_id = rows[-1][0].split(b"/")
    return AuditPage(found, truncated=True, cursor=encode_cursor(scope, int(day) * DAY_MS, last_id.decode()))


def _fits(row: AuditRow, action: str | None, who: str | None, since: int) -> bool:
    if row.at < since or action not in (None, row.action):
        return False
    return who is None or who in (row.by.token, row.by.user, row.by.via)


def _entry(action_id: str, row: AuditRow) -> AuditEntry:
    by = by_of(row.by)
    assert by is not None
    return AuditEntry(
        action_id, row.at, row.action, by, row.changed, row.about or None, row.said, row.matched, row.undoes or None,
        row.undone_by or None, row.undo_until or None,
    )  # fmt: skip


async def undo_until(view: StoreView, action_id: str) -> int | None:
    """Return until when an action can be undone; None if it cannot."""
    key = audit_key(action_id)
    value = (await view.get([key])).get(key)
    try:
        return None if value is None else decode(AuditRow, key, value).undo_until or None
    except BadRow:
        return None


def no_action(action_id: str) -> NotFoundError:
    return NotFoundError(f"there is no action {action_id!r} in the audit log of this instance")
