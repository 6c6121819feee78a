"""`jobs.groups`: groups of one scheduler, and what follows them."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.client.job_checks import Job, JobChecks
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.group_records import GroupPage, GroupRecord


class Groups:
    """Groups of one scheduler: jobs that are counted together, so that others can follow when all have ended."""

    def __init__(self, port: SchedulerPort) -> None:
        self._port = port

    @property
    def _checks(self) -> JobChecks:
        return self._port.checks

    async def open(
        self,
        name: str,
        *,
        then: Sequence[Job] | None = None,
        on_dead: Sequence[Job] | None = None,
        size: int | None = None,
        initiator: str | None = None,
    ) -> GroupRecord:
        """Make a group, which jobs join by the option `group`. The same again changes nothing.

        When all members have ended, and it is sealed or has had `size` of them (at most 100,000), the jobs of `then`
        start if no member is dead; else those of `on_dead`, once. A dead member that is retried and succeeds is dead no
        more, so `then` may still follow. They are told the counts as the result of their parent, and start in the
        commit in which the last member ends. ConflictError if there is another group of this name.
        """
        new = self._checks.group(name, then, on_dead, size, initiator)
        return await self._port.changes.open_group(new)

    async def seal(self, name: str) -> GroupRecord:
        """Let no more jobs join: the group is complete when those that have joined have ended. NotFoundError."""
        return await self._port.changes.seal_group(name)

    async def cancel(self, name: str) -> GroupRecord:
        """Seal a group and cancel all its members, page after page, over crashes; nothing follows it then.

        Members that are dead stay. Cannot be undone. NotFoundError; ConflictError if it is complete.
        """
        return await self._port.changes.cancel_group(name)

    async def get(self, name: str) -> GroupRecord | None:
        """Return a group with its counts, also for 7 days after it was complete; None if there is none."""
        return await self._port.reads.group(name)

    async def list(self, *, cursor: str | None = None, limit: int = 100) -> GroupPage:
        """Return a page of groups by name."""
        return await self._port.reads.groups(cursor=cursor, limit=limit)

    async def members(self, name: str, *, cursor: str | None = None, limit: int = 100) -> records.Page:
        """Return a page of the members that live or are dead, by id."""
        return await self._port.reads.members(name, cursor=cursor, limit=limit)
