"""Records of groups, for callers."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.model.groups import GroupJobsRow, GroupRow, jobs_of_group
from tocsin.actors.scheduler.model.job_record import following
from tocsin.actors.scheduler.model.outcomes import Value
from tocsin.actors.scheduler.model.records import Following, Initiator, initiator_of
from tocsin.actors.scheduler.model.rows import BadRow


class GroupRecord(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A group. `state` is `open`, `done` (all members have ended, none is dead), `dead` (some are) or `cancelled`.

    `members` is the sum of `open`, `done`, `dead`, `cancelled` and `expired`. `sealed`: no job joins it any more.
    `stopping`: its members are being cancelled. Instants are epoch ms.
    """

    name: str
    state: str
    sealed: bool
    members: int
    open: int
    done: int
    dead: int
    cancelled: int
    expired: int
    made_at: int
    size: int | None = None
    stopping: bool = False
    ended_at: int | None = None
    initiator: Initiator | None = None
    then: Sequence[Following] = ()
    on_dead: Sequence[Following] = ()


class GroupPage(Value, frozen=True, rename="camel", omit_defaults=True):
    """A page of groups by name; `cursor` asks for the next one and is there when `truncated` is True."""

    groups: Sequence[GroupRecord]
    truncated: bool
    cursor: str | None = None


def record_of(name: str, row: GroupRow, jobs: GroupJobsRow | None) -> GroupRecord:
    """Show a group as callers see it."""
    jobs = jobs or GroupJobsRow()
    return GroupRecord(
        name=name,
        state=row.state,
        sealed=row.sealed,
        members=row.members,
        open=row.open,
        done=row.done,
        dead=row.dead,
        cancelled=row.cancelled,
        expired=row.expired,
        made_at=row.made_at,
        size=row.size,
        stopping=row.stopping,
        ended_at=row.ended_at,
        initiator=initiator_of(row.initiator),
        then=_following(jobs.then),
        on_dead=_following(jobs.on_dead),
    )


def _following(stored: bytes) -> Sequence[Following]:
    try:
        return following(jobs_of_group(stored))
    except BadRow:
        return ()  # what is damaged is shown by `check`
