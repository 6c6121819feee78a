"""Dead letters one by one: a list by path, reason, pool and label, and what can be done with those that are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.deeds import OF_DEAD
from tocsin.actors.http.dashboard.page import Act, Done, Page, Question
from tocsin.actors.http.dashboard.undo import Undoable, undo_path, undoable
from tocsin.actors.http.dashboard.words import amount
from tocsin.actors.scheduler.model.records import Record
from tocsin.errors import InvalidInputError

SHOWN: Final = 50
MARKED_MOST: Final = 200
"""Ids that one question takes: more than a page has, and little enough for an address."""
NAMED: Final = 3
FILTERS: Final = ("path", "reason", "pool", "label")
REASONS: Final[Mapping[str, str]] = {
    "exhausted": "out of retries",
    "refused": "the receiver said never again, or another job had its id",
    "blocked": "authorize_fire refused it",
    "lost": "its host was lost five times",
    "damaged": "its rows were damaged",
    "unindexable": "its next instant is too far away",
}
"""The meaning of each reason, in words."""


@dataclass(frozen=True, slots=True)
class Letters:
    """A page of dead letters. `filters` are those in force, by name."""

    records: Sequence[Record]
    filters: Mapping[str, str]
    next: str | None
    later: bool
    may_retry: bool
    may_cancel: bool
    undoable: Sequence[Undoable] = ()

    @property
    def bulk(self) -> Mapping[str, str] | None:
        """The filters as a bulk retry takes them; None where it knows one of them not."""
        return None if "label" in self.filters else self.filters

    @property
    def reasons(self) -> Sequence[str]:
        """The reasons that there are."""
        return tuple(REASONS)

    def meaning(self, record: Record) -> str:
        """Return what the reason of a dead letter means."""
        return REASONS.get(record.reason or "", "")

    def error(self, record: Record) -> str:
        """Return what went wrong last, on one line."""
        return error_of(record)


def error_of(record: Record) -> str:
    """Return the last error of a dead job, on one line."""
    said = record.last_error.message if record.last_error is not None else record.last_response or ""
    return " ".join(said.split()) or REASONS.get(record.reason or "", record.reason or "")


async def show(asked: Asked) -> Letters:
    query = asked.query("cursor", *FILTERS)
    filters = {name: value for name in FILTERS if (value := query.text(name))}
    page = await asked.port.reads.dead(
        cursor=query.text("cursor") or None, limit=SHOWN, since=None, **{name: filters.get(name) for name in FILTERS}
    )
    return Letters(
        page.records,
        filters,
        page.cursor,
        query.text("cursor") is not None,
        await asked.may("dead_retry"),
        await asked.may("dead_cancel"),
        await undoable(asked, OF_DEAD),
    )


# ---- Those that are marked -----------------------------------------------------------------------


def _marked(asked: Asked) -> Sequence[str]:
    """Return the ids that a page sent, each in a member of its own, or that a question kept in one."""
    if "ids" in asked.form:
        ids = asked.form["ids"].split()
    else:
        raw = asked.request.scope.get("query_string", b"").decode("ascii", "replace")
        try:
            pairs = parse_qsl(raw, max_num_fields=MARKED_MOST + len(FILTERS))
        except ValueError:
            raise InvalidInputError(
                f"mark at most {MARKED_MOST} dead letters, or narrow the list and take all"
            ) from None
        ids = [value for name, value in pairs if name == "id"]
    if not ids:
        raise InvalidInputError("nothing is marked: go back, and mark the dead letters that are meant")
    return list(dict.fromkeys(ids[:MARKED_MOST]))


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED:,} more" if len(ids) > NAMED else ""
    return ", ".join(ids[:NAMED]) + more


def _back(asked: Asked) -> str:
    return asked.url("/dead/letters")


async def ask_retry(asked: Asked) -> Question:
    ids = _marked(asked)
    return Question(
        title=f"Retry {amount(len(ids), 'dead letter')}?",
        words=(f"{_named(ids)}.", "Each is due at once, with all its retries; its receiver gets it under the same id."),
        button=f"Retry {amount(len(ids), 'job')}",
        back=_back(asked),
        kept={"ids": " ".join(ids)},
    )


async def retry(asked: Asked) -> Done:
    """Retry one at once, and several as one action: the log has one line for what one person did once."""
    ids, changes = _marked(asked), asked.port.changes
    for id in ids:
        await asked.admit("dead_retry", id)
    if len(ids) == 1:
        retried = int((await changes.dead_retry(ids[0])).retried)
    else:
        retried = (await changes.dead_retry_all(**_these(ids), rate_per_second=MARKED_MOST)).matched
    return Done(words=_said(retried, len(ids), "retried"), back=_back(asked), changed=retried > 0)


async def ask_cancel(asked: Asked) -> Question:
    ids = _marked(asked)
    return Question(
        title=f"Cancel {amount(len(ids), 'dead letter')}?",
        words=(f"{_named(ids)}.", "They are removed, and cannot be retried; for ten minutes this can be undone."),
        button=f"Cancel {amount(len(ids), 'job')}",
        back=_back(asked),
        grave=True,
        kept={"ids": " ".join(ids)},
    )


async def cancel(asked: Asked) -> Done:
    ids = _marked(asked)
    for id in ids:
        await asked.admit("dead_cancel", id)
    found = await asked.port.changes.dead_cancel_all(**_these(ids))
    return Done(
        words=_said(found.cancelled, len(ids), "cancelled"),
        back=_back(asked),
        undo=undo_path(found.action_id, found.undo_until),
        changed=found.cancelled > 0,
    )


def _these(ids: Sequence[str]) -> dict[str, Any]:
    """Return the ids as the filters of a bulk action."""
    return {**dict.fromkeys(("pool", "reason", "path", "since")), "ids": ids, "all": False, "dry_run": False}


def _said(changed: int, asked_for: int, what: str) -> str:
    words = f"{amount(changed, 'dead letter')} {what}."
    return words if changed == asked_for else f"{words} {asked_for - changed:,} had gone before."


PLACES: Final = (
    Page(path="/dead/letters", action="dead", name="dead", title="Dead letters", show=show, template="letters.html"),
    Act(path="/dead/retry", action="dead_retry", name="dead", ask=ask_retry, do=retry),
    Act(path="/dead/cancel", action="dead_cancel", name="dead", ask=ask_cancel, do=cancel),
)
