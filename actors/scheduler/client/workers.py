"""Workers: how each says it is, and which there are."""

from __future__ import annotations

from tocsin.actors.scheduler.client.handle import Handle
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.records import WorkerPage
from tocsin.dispatch.pulled import WorkerSnapshot


class Workers(Handle):
    """The part of a handle that knows workers. Nothing of it is stored."""

    async def announce(self, snapshot: WorkerSnapshot) -> None:
        """A worker of this instance says how it is; every 10 s, or it counts as lost after 30 s.

        Its `heartbeat_at` becomes the instant at which it was heard here. InvalidInputError names what cannot be so.
        """
        self._service.workers.note(self.name, snapshot)

    async def workers(self, *, cursor: str | None = None, limit: int = 100) -> WorkerPage:
        """A page of the workers that this host has heard of within five minutes, by id; `limit` 1 to 1000."""
        after = "" if cursor is None else arguments.plain_name(cursor, "cursor")
        return self._service.workers.page(self.name, after, self._limit(limit))
