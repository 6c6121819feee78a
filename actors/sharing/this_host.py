"""The host of this process as followers reach it: ports of its schedulers, and what concerns the whole host."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from random import Random
from typing import Any, Final

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.events import Call, Event, Once
from tocsin.actors.runtime.host import Host
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.actor.service import SchedulerService
from tocsin.actors.scheduler.client.local import AskedPort, LocalPort
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.due_run import DueRun
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.records import HealthReason, InstancePage
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.actors.scheduler.queries import accepted, instances
from tocsin.actors.scheduler.transfer.local import LocalTransfer
from tocsin.actors.scheduler.transitions.settle import AttemptResult
from tocsin.actors.sharing import plain
from tocsin.actors.sharing.door import Door
from tocsin.actors.sharing.settings import digests
from tocsin.actors.sharing.sharing import Sharing
from tocsin.errors import TocsinError

PORTS_KEPT: Final = 1024
RunDue = Callable[[int, float | None], Awaitable[DueRun]]


class Ports:
    """The parts of one scheduler's port, and those of its host."""

    def __init__(self, port: LocalPort | AskedPort | None, host: LocalHost, transfer: LocalTransfer | None) -> None:
        self.host, self.transfer, self._port = host, transfer, port
        if port is not None:
            self.jobs, self.changes, self.reads = port.jobs, port.changes, port.reads
            self.queues, self.schedules = port.queues, port.schedules

    def once(self, op: str) -> Ports:
        """Return the same for one call of this operation id, which may come again and is done once."""
        return Ports(None if self._port is None else self._port.once(op), self.host.once(op), self.transfer)

    def asked_by(self, who: AskedBy) -> Ports:
        """Return the same, whose audit log names `who` for what is changed through it."""
        transfer = None if self.transfer is None else self.transfer.asked_by(who)
        return Ports(None if self._port is None else self._port.asked_by(who), self.host, transfer)


class ThisHost:
    """Serves followers while this process holds the store."""

    def __init__(
        self, runtime: Host, service: SchedulerService, start: Callable[[], Awaitable[None]], run_due: RunDue
    ) -> None:
        self._runtime, self._service, self._start = runtime, service, start
        self._host = LocalHost(runtime, service, run_due)
        self.port: Callable[[str], Ports] = lru_cache(PORTS_KEPT)(self._port)

    @property
    def start_here(self) -> Callable[[], Awaitable[None]]:
        return self._start

    def _port(self, instance: str) -> Ports:
        if not instance:
            return Ports(None, self._host, None)
        return Ports(LocalPort(self._service, instance), self._host, LocalTransfer(self._service, instance))

    def health(self) -> Sequence[HealthReason]:
        return self._service.health.of_host()

    def trouble(self) -> TocsinError | None:
        return self._runtime.provider.trouble

    def has_origin(self) -> bool:
        return self._service.has_origin is None or self._service.has_origin()


class LocalHost:
    """The operations of the whole host, in the process that holds the store."""

    def __init__(self, runtime: Host, service: SchedulerService, run_due: RunDue, op: str = "") -> None:
        self._runtime, self._service, self._run_due, self._op = runtime, service, run_due, op

    def once(self, op: str) -> LocalHost:
        """Return it for one call of this operation id, which may come again and is done once."""
        return LocalHost(self._runtime, self._service, self._run_due, op)

    async def instances(self, *, cursor: str | None, limit: int) -> InstancePage:
        return await instances.page(self._runtime.provider, cursor or "", limit, instances.everyone)

    async def run_due(self, *, until: int, max_seconds: float | None) -> DueRun:
        return await self._run_due(until, max_seconds)

    async def call(self, kind: str, name: str, method: str, args: bytes) -> bytes:
        asked: Event[Any] = Call(method, tuple(plain.decode(args)))
        if self._op:
            asked = Once(self._op, asked, Any)
        answer = await self._runtime.call(ActorId(kind, instance_name(name)), asked)
        return plain.encode(answer, f"the answer of {kind}.{method}")

    async def accepted(self, instance: str, jobs: Sequence[tuple[str, str]]) -> Sequence[bool]:
        view = self._runtime.provider.view(str(actor_of(instance_name(instance))))
        return await accepted.accepted(view, jobs, self._runtime.clock.now_ms())

    async def keep_pass(self, digest: str, holder: str) -> None:
        await self._service.passes.keep(digest, holder)

    async def take_pass(self, digest: str) -> str | None:
        return await self._service.passes.take(digest)

    async def note_clock(self, instance: str) -> None:
        await self._service.note_clock_here(instance_name(instance))

    async def settle(self, instance: str, ends: Sequence[AttemptResult]) -> None:
        await self._service.inflight(instance_name(instance)).lanes.settle_for(ends)


def sharing_through(
    door: Door | None, clock: Clock, random: Random, configured: Mapping[str, object]
) -> Callable[[ThisHost], Sharing] | None:
    """Return what makes the sharing of a host whose processes meet at this door; None without a door."""
    if door is None:
        return None
    return lambda host: Sharing(host, door, clock, random, partial(digests, configured), os.getpid)
