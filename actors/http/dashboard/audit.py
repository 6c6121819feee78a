"""The audit log: who did what, when, and how much it changed; and the way back where there still is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tocsin.actors.http.dashboard import deeds
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.deeds import who_of
from tocsin.actors.http.dashboard.words import count, exact, relative
from tocsin.actors.scheduler.model.audit_records import AuditEntry
from tocsin.actors.scheduler.model.records import By

SHOWN: Final = 50
DID: Final[Mapping[str, str]] = {
    "cancel": "cancelled a job",
    "cancel_all": "cancelled jobs in bulk",
    "reschedule": "moved a job",
    "dead_retry": "retried a dead letter",
    "dead_retry_all": "retried dead letters in bulk",
    "redrive_stop": "stopped a bulk retry",
    "dead_cancel": "cancelled a dead letter",
    "dead_cancel_all": "cancelled dead letters in bulk",
    "undo": "undid an action",
    "import": "imported the instance",
    "seal": "sealed the instance, which moves",
    "unseal": "gave up the move of the instance",
    "set_pool": "set a pool",
    "delete_pool": "forgot a pool",
    "set_queue": "set a queue",
    "free_slot": "freed a slot",
    "groups.cancel": "cancelled a group",
    "pause": "set the instance",
    "clock.create": "made a test clock",
    "clock.advance": "advanced the test clock",
    "clock.freeze": "froze the test clock",
    "schedules.put": "defined a schedule",
    "schedules.register": "registered schedules",
    "schedules.pause": "paused a schedule",
    "schedules.resume": "resumed a schedule",
    "schedules.delete": "deleted a schedule",
    "schedules.trigger": "triggered a schedule",
    "schedules.backfill": "ran the past of a schedule",
    "schedules.backfill_stop": "stopped a backfill of a schedule",
}
"""Actions in words, as they stand behind who did it."""
_PLACES: Final[Mapping[str, str]] = {
    "cancel": "/jobs/",
    "reschedule": "/jobs/",
    "dead_retry": "/jobs/",
    "dead_cancel": "/jobs/",
    "free_slot": "/jobs/",
    "redrive_stop": "/dead/redrives/",
    "set_pool": "/pools/",
    "delete_pool": "/pools/",
    "schedules.put": "/schedules/",
    "schedules.pause": "/schedules/",
    "schedules.resume": "/schedules/",
    "schedules.trigger": "/schedules/",
    "schedules.backfill": "/schedules/",
    "schedules.backfill_stop": "/schedules/",
    "schedules.delete": "/schedules/",
}
"""The pages of what actions are about."""
GIVEN: Final[Mapping[str, str]] = {"maxConcurrency": "cap", "functionPath": "path", "timeoutMs": "deadline in ms"}
"""Members of the API in words."""
_WAYS: Final[Mapping[str, str]] = {"python": "in Python", "http": "over HTTP", "dashboard": "here"}


@dataclass(frozen=True, slots=True)
class Line:
    """An action: its words, what it was about and that thing's page, and what was given for it."""

    entry: AuditEntry
    who: str
    way: str
    did: str
    about: str
    url: str
    given: str
    undo: str
    """The address that takes it back, as long as that is possible."""
    fate: str
    """Its end, if it was undone."""


@dataclass(frozen=True, slots=True)
class Audit:
    """A page of the log. `filters` are those in force, by name."""

    lines: Sequence[Line]
    filters: Mapping[str, str]
    next: str | None
    later: bool

    @property
    def actions(self) -> Mapping[str, str]:
        """The actions that can be filtered by."""
        return DID


async def read_log(asked: Asked, ways: Mapping[str, str], recent: Sequence[AuditEntry]) -> Audit:
    """Read a page of the log; `ways` are the addresses that undo what still can be undone, by the ids of actions, and
    `recent` actions that may be named on it."""
    query = asked.query("cursor", "action", "who")
    filters = {name: value for name in ("action", "who") if (value := query.text(name))}
    page = await asked.port.reads.audit(
        cursor=query.text("cursor") or None, limit=SHOWN, action=filters.get("action"), who=filters.get("who"),
        since=None,
    )  # fmt: skip
    known = {one.id: one for one in (*recent, *page.actions)}
    lines = [line_of(asked, one, ways.get(one.id, ""), known) for one in page.actions]
    return Audit(lines, filters, page.cursor, query.text("cursor") is not None)


def line_of(asked: Asked, one: AuditEntry, undo: str, known: Mapping[str, AuditEntry]) -> Line:
    """Return an action as the log shows it; `known` are others that it may have undone, by id."""
    return Line(
        entry=one,
        who=who_of(one.by),
        way=_WAYS.get(one.by.via, one.by.via),
        did=deeds.did(one, known) if one.undoes in known else _did(one),
        about=one.about or "",
        url=_url(asked, one),
        given=given_of(one.given),
        undo=undo,
        fate="undone" if one.undone_by is not None else "",
    )


def paused_words(at: int | None, by: By | None, now: int) -> str:
    """Return who paused something, and when; nothing if that was before it was noted."""
    return "" if at is None else f"Paused by {who_of(by)}, {relative(at, now)} ({exact(at)})."


def _did(one: AuditEntry) -> str:
    if one.action == "seal" and not one.given.get("closed"):
        return "began to move the instance"
    paused = one.given.get("paused")
    if one.action in ("set_pool", "pause") and isinstance(paused, bool):
        return ("paused" if paused else "resumed") + (" a pool" if one.action == "set_pool" else " the instance")
    return DID.get(one.action, one.action)


def _url(asked: Asked, one: AuditEntry) -> str:
    if one.action == "dead_retry_all":
        return asked.url(f"/dead/redrives/{one.id}")
    place = _PLACES.get(one.action)
    return asked.url(place + one.about) if place and one.about else ""


def given_of(given: Mapping[str, Any]) -> str:
    """Return filters, or what was set, in one line."""
    said = [
        f"{GIVEN.get(name, name)} {_value(value)}"
        for name, value in given.items()
        if value is not None and name != "paused"
    ]
    return ", ".join(said)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return count(value) if isinstance(value, int) else str(value)
