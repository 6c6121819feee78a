"""`ServerPort`: a scheduler's port over HTTP. Each method is one request, or the same one until it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tocsin.actors.client.changes import ServerChanges
from tocsin.actors.client.checks import ServerChecks
from tocsin.actors.client.jobs import ServerJobs
from tocsin.actors.client.queues import ServerQueues
from tocsin.actors.client.reads import ServerReads
from tocsin.actors.client.schedules import ServerSchedules
from tocsin.actors.client.server import Server
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.dispatch.clock import DispatchClock
from tocsin.dispatch.tracing import Tracing

if TYPE_CHECKING:
    from tocsin.actors.scheduler.client.port import SchedulerPort


class ServerPort:
    """One scheduler of a server."""

    def __init__(self, server: Server, clock: DispatchClock, tracing: Tracing, name: str) -> None:
        self.name = instance_name(name)
        self.checks = ServerChecks(clock, server.random, self.name, tracing)
        self.jobs = ServerJobs(server, self.name, clock.now_ms)
        self.changes = ServerChanges(server, self.name)
        self.reads = ServerReads(server, self.name)
        self.queues = ServerQueues(server, self.name)
        self.schedules = ServerSchedules(server, self.name)

    def asked_by(self, who: AskedBy) -> SchedulerPort:
        """Return the port itself: a server knows by the token who asks."""
        return self


def port(server: Server, clock: DispatchClock, tracing: Tracing, name: str) -> SchedulerPort:
    """Return it as what it is to the handle."""
    return ServerPort(server, clock, tracing, name)
