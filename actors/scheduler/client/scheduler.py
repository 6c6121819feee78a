"""`Scheduler`: what users hold. Checks arguments, sends events to the actor, reads committed state."""

from __future__ import annotations

from tocsin.actors.scheduler.client.chain_requests import Job
from tocsin.actors.scheduler.client.changes import Changing
from tocsin.actors.scheduler.client.deferred import Deferred
from tocsin.actors.scheduler.client.jobs import Scheduling
from tocsin.actors.scheduler.client.queues import Queues
from tocsin.actors.scheduler.client.reads import Operating, Reading
from tocsin.actors.scheduler.client.schedules import Schedules
from tocsin.actors.scheduler.client.workers import Workers

__all__ = ["Job", "Scheduler"]


class Scheduler(Scheduling, Changing, Queues, Workers, Reading, Operating):
    """A handle on one instance; costs nothing until used, and reading never creates the instance.

    Errors of every method: InvalidInputError (and its kin) for a bad argument, before anything is changed;
    OverloadedError, HostClosedError, StoreError when the host or its store cannot serve the call.
    """

    @property
    def schedules(self) -> Schedules:
        """Recurring definitions, whose occurrences become jobs of this instance."""
        return Schedules(self._service, self.name, self._initiator)

    def deferred(self) -> Deferred:
        """Jobs that are submitted together at the end of a block, and not at all if it fails; their ids at once.

        `async with jobs.deferred() as later: job_id = later.run_after("5m", ...)`. See `Deferred`.
        """
        return Deferred(self._checked, self.submit_checked)

    def for_initiator(self, identity: tuple[str, str]) -> Scheduler:
        """The same instance, for jobs that this caller (token, user) wants; for the HTTP face."""
        return Scheduler(self._service, self.name, identity)
