"""`SchedulerPort`: one scheduler as HTTP, the outbox and the handles of users reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tocsin.actors.scheduler.client.changes import ChangesPort
from tocsin.actors.scheduler.client.instance import Instance
from tocsin.actors.scheduler.client.job_checks import JobChecks
from tocsin.actors.scheduler.client.jobs import JobsPort
from tocsin.actors.scheduler.client.queues import QueuesPort
from tocsin.actors.scheduler.client.reads import ReadsPort
from tocsin.actors.scheduler.client.schedules_port import SchedulesPort

if TYPE_CHECKING:
    from tocsin.actors.scheduler.actor.service import SchedulerService


class SchedulerPort:
    """Takes and returns wire values: epoch ms, ms, JSON text, records. Every argument is given, and checked here.

    A handle (`Scheduler`) says how Python asks, a route how HTTP does; what is done is here, once. Each method is one
    operation, so that the same handle can stand on another implementation, which sends the operation to the process
    that holds the store.
    """

    def __init__(self, service: SchedulerService, name: str) -> None:
        instance = Instance(service, name)
        self.name = instance.name
        self.checks = JobChecks(service.catalog_check, service.host.random, instance.now_ms, service.has_origin)
        self.jobs = JobsPort(instance, self.checks)
        self.changes = ChangesPort(instance)
        self.reads = ReadsPort(instance)
        self.queues = QueuesPort(instance)
        self.schedules = SchedulesPort(instance, self.checks)
