"""Actions in words that name what they did: `alice's cancel of 102 dead letters of payments:capture`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tocsin.actors.http.dashboard.words import amount, count, exact
from tocsin.actors.scheduler.model.audit_records import AuditEntry
from tocsin.actors.scheduler.model.records import By

DEEPEST: Final = 8
"""Undoes of undoes that are followed."""
OF_JOBS: Final = frozenset({"cancel_all"})
OF_DEAD: Final = frozenset({"dead_retry_all", "dead_cancel_all"})
CHOSEN: Final[Mapping[str, str]] = {
    "functionPath": "of {}",
    "path": "of {}",
    "reason": "with the reason {}",
    "pool": "in the pool {}",
    "label": "with the label {}",
}
"""Filters of bulk actions in words, in the order in which they are said."""
_DONE: Final[Mapping[str, tuple[str, str]]] = {
    "cancel_all": ("cancelled {}", "cancel of {}"),
    "dead_cancel_all": ("cancelled {}", "cancel of {}"),
    "dead_retry_all": ("retried {}", "retry of {}"),
    "set_pool": ("set {}", "change of {}"),
    "schedules.delete": ("deleted {}", "deletion of {}"),
}
"""Actions that can be undone: as what somebody did, and as a thing."""


def who_of(by: By | None) -> str:
    """Return who did something: the user, the token, or the way that it came."""
    if by is None:
        return "somebody"
    return by.user or by.token or {"python": "the app", "dashboard": "somebody"}.get(by.via, "somebody")


def did(one: AuditEntry, known: Mapping[str, AuditEntry]) -> str:
    """Return what somebody did that can be undone, behind who it was; `known` are other actions, by id."""
    if one.action == "undo":
        return f"undid {_undone(one, known, DEEPEST)}"
    return _DONE.get(one.action, ("did {}",))[0].format(_what(one))


def came_of(one: AuditEntry) -> str:
    """Return what an undo put back; nothing for another action."""
    return f"; {count(one.changed)} put back" if one.action == "undo" else ""


def is_about(one: AuditEntry, actions: frozenset[str], known: Mapping[str, AuditEntry]) -> bool:
    """Return whether an action, or what it undid in the end, is one of these."""
    for _ in range(DEEPEST):
        if one.action != "undo":
            return one.action in actions
        before = known.get(one.undoes or "")
        if before is None:
            return False
        one = before
    return False


def chosen(filters: Mapping[str, Any]) -> str:
    """Return filters in words."""
    return " ".join(words.format(filters[name]) for name, words in CHOSEN.items() if filters.get(name) is not None)


def _undone(one: AuditEntry, known: Mapping[str, AuditEntry], depth: int) -> str:
    before = known.get(one.undoes or "")
    if before is None or not depth:
        return f"the action {one.undoes}"
    whose = f"{who_of(before.by)}'s"
    if before.action == "undo":
        return f"{whose} undo of {_undone(before, known, depth - 1)}"
    return f"{whose} {_DONE.get(before.action, ('', '{}'))[1].format(_what(before))}"


def _what(one: AuditEntry) -> str:
    if one.action == "set_pool":
        return f"the pool {one.about}"
    if one.action == "schedules.delete":
        return f"the schedule {one.about}"
    if one.action not in OF_JOBS | OF_DEAD:
        return one.action
    what = amount(one.changed, "job" if one.action in OF_JOBS else "dead letter")
    words = [what, chosen(one.given), "that were marked" if one.given.get("ids") else ""]
    since = one.given.get("since")
    return " ".join(filter(None, [*words, f"since {exact(since)}" if isinstance(since, int) else ""]))
