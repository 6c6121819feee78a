"""Dead letters by reason and path: how many of each, what went wrong last, and what to do with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.deeds import OF_DEAD
from tocsin.actors.http.dashboard.letters import REASONS
from tocsin.actors.http.dashboard.overview import share
from tocsin.actors.http.dashboard.page import Act, Done, Page, Question
from tocsin.actors.http.dashboard.redrives import arguments_of, filters_of, words_of
from tocsin.actors.http.dashboard.undo import Undoable, undo_path, undoable
from tocsin.actors.http.dashboard.words import amount
from tocsin.actors.scheduler.model.audit_records import DeadGroup
from tocsin.actors.scheduler.model.records import Redrive

REDRIVES: Final = 5
"""Bulk retries that are looked at, the newest first."""
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """The dead letters of an instance, in groups, the largest first."""

    groups: Sequence[DeadGroup]
    more: bool
    redrives: Sequence[Redrive]
    """Bulk retries that go on now."""
    undoable: Sequence[Undoable]
    may_retry: bool
    may_cancel: bool

    def share(self, redrive: Redrive) -> float:
        return share(redrive.retried, redrive.matched)

    def meaning(self, group: DeadGroup) -> str:
        """Return what the reason of a group means."""
        return REASONS.get(group.reason, group.reason)

    def error(self, group: DeadGroup) -> str:
        """Return what went wrong last, on one line."""
        return " ".join((group.last_error or "").split()) or self.meaning(group)


async def show(asked: Asked) -> Dead:
    asked.query()
    found = await asked.port.reads.dead_groups()
    return Dead(
        groups=found.groups,
        more=found.truncated,
        redrives=await _running(asked),
        undoable=await undoable(asked, OF_DEAD),
        may_retry=await asked.may("dead_retry_all"),
        may_cancel=await asked.may("dead_cancel_all"),
    )


async def _running(asked: Asked) -> Sequence[Redrive]:
    """Return the bulk retries that go on: the audit log knows which were begun."""
    if not await asked.may("audit"):
        return ()
    since = max(0, asked.now_ms - DAY_MS)
    page = await asked.port.reads.audit(cursor=None, limit=REDRIVES, action="dead_retry_all", who=None, since=since)
    found = [await asked.port.reads.redrive(one.id) for one in page.actions if await asked.may("redrive", one.id)]
    return [one for one in found if one is not None and one.running]


# ---- All that fit --------------------------------------------------------------------------------


async def ask_cancel_all(asked: Asked) -> Question:
    filters = filters_of(asked)
    found = await asked.port.changes.dead_cancel_all(**arguments_of(filters), dry_run=True)
    return Question(
        title=f"Cancel all dead letters {words_of(filters)}?",
        words=(
            f"A dry run matches {amount(found.matched, 'dead letter')}.",
            "They are removed, and cannot be retried any more; for ten minutes this can be undone.",
        ),
        button=f"Cancel {amount(found.matched, 'job')}",
        back=asked.url("/dead"),
        grave=True,
        kept=filters,
    )


async def cancel_all(asked: Asked) -> Done:
    filters = filters_of(asked)
    found = await asked.port.changes.dead_cancel_all(**arguments_of(filters), dry_run=False)
    return Done(
        words=f"{amount(found.cancelled, 'dead letter')} {words_of(filters)} cancelled.",
        back=asked.url("/dead"),
        undo=undo_path(found.action_id, found.undo_until),
        changed=found.cancelled > 0,
    )


PLACES: Final = (
    Page(path="/dead", action="dead_groups", name="dead", title="Dead letters", show=show),
    Act(path="/dead/cancel-all", action="dead_cancel_all", name="dead", ask=ask_cancel_all, do=cancel_all),
)
