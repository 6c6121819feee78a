"""The way back: bulk actions of the last ten minutes, and what becomes of an undo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.audit import Audit, Line, line_of, read_log
from tocsin.actors.http.dashboard.page import Act, Done, Page, Question
from tocsin.actors.http.dashboard.words import amount, relative, span
from tocsin.actors.scheduler.model.audit_records import AuditEntry
from tocsin.errors import NotFoundError

BACK_MS: Final = 600_000
"""For so long a bulk action can be undone."""
MOST: Final = 1_000
BANNERS: Final = 3
OF_DEAD: Final = frozenset({"dead_retry_all", "dead_cancel_all", "undo"})
"""Actions that pages of dead letters offer to undo; the log offers all."""
SKIPPED: Final[Mapping[str, str]] = {
    "running": "ran when they were cancelled",
    "id_taken": "have their id taken by another job",
    "started": "have started since",
    "gone": "are gone",
    "changed": "were changed since",
}
"""Why things are not put back, in words."""


@dataclass(frozen=True, slots=True)
class Undoable:
    """An action that can be undone: its line in the log, until when, and the address of the question."""

    line: Line
    until: int
    url: str


async def undoable(asked: Asked) -> Sequence[Undoable]:
    """Return what can be undone now, the newest action first; nothing to whom the log or the undo is closed."""
    if not (await asked.may("undo") and await asked.may("audit")):
        return ()
    found = [one for one in await _recent(asked) if _is_open(one, asked.now_ms)]
    return [Undoable(line_of(asked, one), one.undo_until or 0, asked.url(f"/undo/{one.id}")) for one in found]


async def undoable_dead(asked: Asked) -> Sequence[Undoable]:
    """Return what was done to dead letters lately, and can be undone now."""
    return [one for one in await undoable(asked) if one.line.entry.action in OF_DEAD][:BANNERS]


async def _recent(asked: Asked) -> Sequence[AuditEntry]:
    since = max(0, asked.now_ms - BACK_MS)
    page = await asked.port.reads.audit(cursor=None, limit=MOST, action=None, who=None, since=since)
    return page.actions


def _is_open(one: AuditEntry, now: int) -> bool:
    return one.undo_until is not None and one.undo_until > now


def undo_path(action_id: str | None, until: int | None) -> str:
    """Return the path of the act that undoes an action, if it can be undone."""
    return f"/undo/{action_id}" if action_id and until else ""


async def ask(asked: Asked) -> Question:
    id = asked.names["id"]
    await asked.admit("audit")
    one = next((one for one in await _recent(asked) if one.id == id), None)
    if one is None or not _is_open(one, asked.now_ms):
        raise NotFoundError("this cannot be undone any more: its ten minutes are over, or it was undone")
    line, when = line_of(asked, one), relative(one.at, asked.now_ms)
    return Question(
        title=f"Undo what {line.who} did {'just ' if when == 'now' else ''}{when}?",
        words=(
            f"{line.who} {line.did}: {amount(one.changed, 'change')}{f' ({line.given})' if line.given else ''}.",
            "All of it is put back as it was, but for what has changed again since.",
            f"This can be done for {span(max(0, (one.undo_until or 0) - asked.now_ms))} more.",
        ),
        button="Undo",
        back=asked.url("/audit"),
    )


async def do(asked: Asked) -> Done:
    undone = await asked.port.changes.undo(asked.names["id"])
    words = f"Undone: {undone.restored:,} of {undone.matched:,} put back."
    for reason, number in undone.skipped.items():
        words += f" {number:,} {SKIPPED.get(reason, reason)}."
    return Done(
        words=words,
        back=asked.url("/audit"),
        undo=undo_path(undone.action_id, undone.undo_until),
        changed=undone.restored > 0,
    )


async def show_log(asked: Asked) -> Audit:
    """Show the log, with the way back of each action that has one."""
    ways = {one.line.entry.id: one.url for one in await undoable(asked)}
    return await read_log(asked, ways)


PLACES: Final = (
    Page(path="/audit", action="audit", name="audit", title="Audit log", show=show_log),
    Act(path="/undo/{id}", action="undo", resource="id", name="audit", ask=ask, do=do),
)
