"""One scheduler for one call that may come again: what it changes is changed once."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from tocsin.actors.runtime.events import Event, Once
from tocsin.actors.scheduler.client.instance import Instance
from tocsin.actors.scheduler.model.clock import ClockRow
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.records import Cancelled, DeadRetried, Rescheduled
from tocsin.actors.scheduler.model.rows import InstanceRow
from tocsin.actors.scheduler.transitions import events

T = TypeVar("T")
ANSWERS: Final[Mapping[type[Event[Any]], Any]] = MappingProxyType({
    events.Cancel: Cancelled,
    events.Reschedule: Rescheduled | int,
    events.RetryDead: DeadRetried,
    events.CancelDead: bool,
    events.StartRedrive: bool,
    events.StopRedrive: bool,
    events.SetPool: bool,
    events.SetQueue: bool,
    events.DeletePool: bool,
    events.FreeSlot: Freed,
    events.SetInstance: InstanceRow,
    events.AdvanceClock: ClockRow,
})  # fmt: skip
"""Events that are noted, with the types of their answers. A call has at most one of them. The others change nothing
when they come again, or are told apart by what they hold: incarnations, request keys, pages that are gone."""


class OnceInstance(Instance):
    """Notes what it changes by the operation id of the call that it is for."""

    def __init__(self, instance: Instance, op: str) -> None:
        self.name, self.service, self.host, self.id = instance.name, instance.service, instance.host, instance.id
        self.now_ms, self.op = instance.now_ms, op

    def call(self, event: Event[T], *, create: bool = True) -> Awaitable[T]:
        kind = ANSWERS.get(type(event))
        return super().call(event if kind is None else Once(self.op, event, kind), create=create)
