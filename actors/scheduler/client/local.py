"""`LocalPort`: the scheduler's port in the process that holds its store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tocsin.actors.scheduler.client.changes import LocalChanges
from tocsin.actors.scheduler.client.instance import Instance
from tocsin.actors.scheduler.client.job_checks import JobChecks
from tocsin.actors.scheduler.client.jobs import LocalJobs
from tocsin.actors.scheduler.client.once import OnceInstance
from tocsin.actors.scheduler.client.queues import LocalQueues
from tocsin.actors.scheduler.client.reads import LocalReads
from tocsin.actors.scheduler.client.schedules_port import LocalSchedules
from tocsin.actors.scheduler.model.asked_by import PYTHON, AskedBy

if TYPE_CHECKING:
    from tocsin.actors.scheduler.actor.service import SchedulerService
    from tocsin.actors.scheduler.client.port import SchedulerPort


class LocalPort:
    """Calls the actor, and reads its committed rows. What is done is here, once, whoever asks for it."""

    def __init__(self, service: SchedulerService, name: str) -> None:
        self._instance = instance = Instance(service, name)
        self.name = instance.name
        self.checks = JobChecks(
            service.catalog_check, service.host.random, instance.now_ms, service.has_origin,
            origins=service.origins.names, urls=service.origins.urls, instance=name, tracing=service.tracing,
        )  # fmt: skip
        self.jobs = LocalJobs(instance)
        self.changes = LocalChanges(instance)
        self.reads = LocalReads(instance)
        self.queues = LocalQueues(instance)
        self.schedules = LocalSchedules(instance, self.checks)
        service.clocks.follow(self)

    def asked_by(self, who: AskedBy) -> AskedPort:
        """Return the same scheduler, whose audit log names `who` for what is changed through it."""
        return AskedPort(self, self._instance, who)

    def once(self, op: str) -> AskedPort:
        """Return it for one call of this operation id, which may come again and changes things once."""
        return AskedPort(self, OnceInstance(self._instance, op), PYTHON)

    def use_clock(self, now_ms: Callable[[], int]) -> None:
        """Read the time of this instance from here on by `now_ms`: it has a test clock now, or none any more."""
        self._instance.now_ms = self.checks.now_ms = now_ms


class AskedPort:
    """The same scheduler for one who asks: only what changes it is other than that of `LocalPort`."""

    def __init__(self, port: LocalPort, instance: Instance, who: AskedBy) -> None:
        self._port, self._instance, self._who = port, instance, who
        self.name, self.checks = port.name, port.checks
        self.jobs, self.reads, self.queues = port.jobs, port.reads, port.queues
        self.changes = LocalChanges(instance, who)
        self.schedules = LocalSchedules(instance, port.checks, who)

    def asked_by(self, who: AskedBy) -> AskedPort:
        """Return it for another one."""
        return AskedPort(self._port, self._instance, who)

    def once(self, op: str) -> AskedPort:
        """Return it for one call of this operation id, which may come again and changes things once."""
        return AskedPort(self._port, OnceInstance(self._instance, op), self._who)


def port(service: SchedulerService, name: str) -> SchedulerPort:
    """Return it as what it is to those who use it."""
    return LocalPort(service, name)
