"""The way back: bulk actions of the last ten minutes, and what becomes of an undo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.audit import Audit, read_log
from tocsin.actors.http.dashboard.deeds import came_of, did, is_about, who_of
from tocsin.actors.http.dashboard.page import Act, Done, Page, Question
from tocsin.actors.http.dashboard.words import relative, span
from tocsin.actors.scheduler.model.audit_records import AuditEntry
from tocsin.errors import NotFoundError

BACK_MS: Final = 600_000
"""For so long a bulk action can be undone, from the last thing that it changed."""
RECENT_MS: Final = 6 * BACK_MS
"""An undo may be ten minutes younger than what it undid, and a bulk retry goes on for a while."""
MOST: Final = 1_000
BANNERS: Final = 3
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
    """An action that can be undone: what was done by whom in words, until when, and the address of the question."""

    entry: AuditEntry
    words: str
    came: str
    until: int
    url: str


async def undoable(asked: Asked, about: frozenset[str]) -> Sequence[Undoable]:
    """Return the newest actions of these kinds, or undoes of such, that can be undone now; nothing to whom the log or
    the undo is closed."""
    if not (await asked.may("undo") and await asked.may("audit")):
        return ()
    recent, now = await _recent(asked), asked.now_ms
    found = [one for one in recent.values() if _is_open(one, now) and is_about(one, about, recent)]
    return [_undoable(asked, one, recent) for one in found[:BANNERS]]


def _undoable(asked: Asked, one: AuditEntry, recent: Mapping[str, AuditEntry]) -> Undoable:
    words = f"{who_of(one.by)} {did(one, recent)}"
    return Undoable(one, words, came_of(one), one.undo_until or 0, asked.url(f"/undo/{one.id}"))


async def _recent(asked: Asked) -> Mapping[str, AuditEntry]:
    """Return what was done lately by id, the newest first: what can be undone, and what that undid."""
    since = max(0, asked.now_ms - RECENT_MS)
    page = await asked.port.reads.audit(cursor=None, limit=MOST, action=None, who=None, since=since)
    return {one.id: one for one in page.actions}


def _is_open(one: AuditEntry, now: int) -> bool:
    return one.undo_until is not None and one.undo_until > now


def undo_path(action_id: str | None, until: int | None) -> str:
    """Return the path of the act that undoes an action, if it can be undone."""
    return f"/undo/{action_id}" if action_id and until else ""


async def ask(asked: Asked) -> Question:
    id = asked.names["id"]
    await asked.admit("audit")
    recent = await _recent(asked)
    one = recent.get(id)
    if one is None or not _is_open(one, asked.now_ms):
        raise NotFoundError("this cannot be undone any more: its ten minutes are over, or it was undone")
    found, when = _undoable(asked, one, recent), relative(one.at, asked.now_ms)
    return Question(
        title=f"Undo what {who_of(one.by)} did {'just ' if when == 'now' else ''}{when}?",
        words=(
            f"{found.words}{found.came}.",
            "All of it is put back as it was, but for what has changed again since.",
            f"This can be done for {span(max(0, (one.undo_until or 0) - asked.now_ms))} more.",
        ),
        button="Undo",
        back=asked.url("/audit"),
    )


async def do(asked: Asked) -> Done:
    undone = await asked.port.changes.undo(asked.names["id"])
    words = "Undone" if undone.restored else "Nothing was undone"
    words += f": {undone.restored:,} of {undone.matched:,} put back."
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
    recent, now = await _recent(asked), asked.now_ms
    open_to = await asked.may("undo")
    ways = {id: asked.url(f"/undo/{id}") for id, one in recent.items() if open_to and _is_open(one, now)}
    return await read_log(asked, ways, list(recent.values()))


PLACES: Final = (
    Page(path="/audit", action="audit", name="audit", title="Audit log", show=show_log),
    Act(path="/undo/{id}", action="undo", resource="id", name="audit", ask=ask, do=do),
)
