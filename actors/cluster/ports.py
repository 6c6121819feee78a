"""`ClusterPort`: a scheduler's port that decides for each call where it is made. What is here is called as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tocsin.actors.cluster.caller import ClusterCaller
from tocsin.actors.cluster.routes import FROM_STORE, RATHER_FROM_STORE, is_elsewhere
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.scheduler.client.port import (
    ChangesPort,
    JobsPort,
    QueuesPort,
    ReadsPort,
    SchedulerPort,
    SchedulesPort,
)
from tocsin.actors.scheduler.client.source import SOURCE
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.sharing.operations import OPERATIONS, PARTS, Operation
from tocsin.actors.sharing.remote_port import remote_part
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.storage.shared import SharedProvider

LOOK_AGAIN_S: Final = 0.5
"""Between two looks into the store for what has no owner that would tell when it happens."""


@dataclass(slots=True)
class Routing:
    """The common part of all ports of one host. A lab, in which all is here, changes the provider."""

    provider: SharedProvider
    caller: ClusterCaller
    clock: Clock
    learn_clock: Callable[[str], Awaitable[None]]
    """Reads the test clock of an instance of another host, if it has one."""


class RoutedPart:
    """One part of a port. Each of its methods calls the same one of `here` or of `there`."""

    def __init__(self, routing: Routing, instance: str, here: Any, there: Any) -> None:
        self._routing, self._instance, self._here, self._there = routing, instance, here, there
        self._actor = str(actor_of(instance))


def _method(operation: Operation) -> Any:
    name = operation.method
    store = operation.name in FROM_STORE
    rather = _from_store if operation.name in RATHER_FROM_STORE else None

    async def call(self: RoutedPart, *args: Any, **named: Any) -> Any:
        routing = self._routing
        began = routing.clock.monotonic() if operation.may_wait else 0.0
        is_here = routing.provider.locate(self._actor).here
        try:
            if is_here:
                return await getattr(self._here, name)(*args, **named)
            if store and not _wants_fresh():
                return await _from_store(self, operation, args, named)
        except StoreError as error:
            if not is_elsewhere(error):
                raise
        if operation.may_wait:
            left = operation.waiting_less(operation.values(args, named), routing.clock.monotonic() - began)
            by_place, named = operation.called(left)
            args = tuple(by_place)
        try:
            return await getattr(self._there, name)(*args, **named)
        except StoreUnavailable:
            if rather is None or _wants_fresh():
                raise
        return await rather(self, operation, args, named)

    call.__name__, call.__qualname__ = name, operation.name
    return call


def _wants_fresh() -> bool:
    source = SOURCE.get()
    return source is not None and source.fresh


async def _from_store(part: RoutedPart, operation: Operation, args: Sequence[Any], named: dict[str, Any]) -> Any:
    """Answer from committed rows, of whichever host they are."""
    routing = part._routing
    await routing.learn_clock(part._instance)
    if (source := SOURCE.get()) is not None:
        source.from_store = True
    values = operation.values(args, named)
    until = routing.clock.monotonic() + operation.wait_s(values)
    method = getattr(part._here, operation.method)
    args, named = operation.called(operation.without_wait(values))
    while True:
        answer = await method(*args, **named)
        left = until - routing.clock.monotonic()
        if left <= 0 or not _is_open(operation, answer):
            return answer
        await routing.clock.sleep(min(left, LOOK_AGAIN_S))


def _is_open(operation: Operation, answer: Any) -> bool:
    """Return whether what is waited for has not happened: the end of a job, or of an advance of a test clock."""
    if operation.name == "queues.outcome":
        return not answer.ended
    return operation.name == "reads.clock" and answer is not None and answer.advancing


@cache
def routed_part(part: str) -> Callable[..., Any]:
    """Return a class with every method of a part of the port."""
    methods = {one.method: _method(one) for one in OPERATIONS.values() if one.part == part}
    return type(f"Routed{PARTS[part].__name__}", (RoutedPart,), methods)


class ClusterPort:
    """One scheduler, whichever host owns it at each call."""

    jobs: JobsPort
    changes: ChangesPort
    reads: ReadsPort
    queues: QueuesPort
    schedules: SchedulesPort

    def __init__(self, routing: Routing, here: SchedulerPort, who: AskedBy | None = None) -> None:
        self.name, self.checks = here.name, here.checks
        self._routing, self._here = routing, here
        for part in ("jobs", "changes", "reads", "queues", "schedules"):
            there = remote_part(part)(routing.caller, here.name, who)
            setattr(self, part, routed_part(part)(routing, here.name, getattr(here, part), there))

    def asked_by(self, who: AskedBy) -> SchedulerPort:
        """Return the same scheduler, whose audit log names `who` for what is changed through it."""
        return ClusterPort(self._routing, self._here.asked_by(who), who)
