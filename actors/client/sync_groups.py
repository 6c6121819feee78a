"""`SyncGroups`: the groups of one scheduler for code that blocks.

Written by scripts/sync_client.py of `Groups`: change that, and run the script."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tocsin.actors.client.blocking import Blocking
from tocsin.actors.scheduler.client.groups import Groups
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.group_records import GroupPage, GroupRecord

T = TypeVar("T")


class SyncGroups:
    """`Groups` whose methods return when they are answered."""

    def __init__(self, blocking: Blocking, name: str) -> None:
        self._blocking, self._name = blocking, name

    def _call(self, ask: Callable[[Groups], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(lambda client: ask(client.scheduler(self._name).groups))

    def open(
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
        return self._call(lambda it: it.open(name, then=then, on_dead=on_dead, size=size, initiator=initiator))

    def seal(self, name: str) -> GroupRecord:
        """Let no more jobs join: the group is complete when those that have joined have ended. NotFoundError."""
        return self._call(lambda it: it.seal(name))

    def cancel(self, name: str) -> GroupRecord:
        """Seal a group and cancel all its members, page after page, over crashes; nothing follows it then.

        Members that are dead stay. Cannot be undone. NotFoundError; ConflictError if it is complete.
        """
        return self._call(lambda it: it.cancel(name))

    def get(self, name: str) -> GroupRecord | None:
        """Return a group with its counts, also for 7 days after it was complete; None if there is none."""
        return self._call(lambda it: it.get(name))

    def list(self, *, cursor: str | None = None, limit: int = 100) -> GroupPage:
        """Return a page of groups by name."""
        return self._call(lambda it: it.list(cursor=cursor, limit=limit))

    def members(self, name: str, *, cursor: str | None = None, limit: int = 100) -> records.Page:
        """Return a page of the members that live or are dead, by id."""
        return self._call(lambda it: it.members(name, cursor=cursor, limit=limit))
