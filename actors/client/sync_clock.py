"""`SyncClock`: the test clock of one instance for code that blocks.

Written by scripts/sync_client.py of `Clock`: change that, and run the script."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from tocsin.actors.client.blocking import Blocking
from tocsin.actors.scheduler.client.clock import Clock
from tocsin.actors.scheduler.model.records import ClockState
from tocsin.dispatch.durations import Duration

T = TypeVar("T")


class SyncClock:
    """A `Clock` whose methods return when they are answered."""

    def __init__(self, blocking: Blocking, name: str) -> None:
        self._blocking, self._name = blocking, name

    def _call(self, ask: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(lambda client: ask(client.scheduler(self._name).clock))

    def create(self, at: datetime | int) -> ClockState:
        """Make this instance, with a clock that stands at an instant (aware datetime or epoch ms). ConflictError if the
        instance was used before; the same clock again is not refused."""
        return self._call(lambda it: it.create(at))

    def get(self) -> ClockState | None:
        """Return how the clock stands; None for an instance on the live clock."""
        return self._call(lambda it: it.get())

    def advance(
        self, by: Duration | None = None, *, to: datetime | int | None = None, timeout: Duration | None = None
    ) -> ClockState:
        """Advance the clock by a duration or to an instant, and wait until all that is due until then has ended.

        The advance is durable, so it goes on also if nobody waits. NotYetError if it has not ended after `timeout`
        (real time; None: however long it takes). ConflictError while another advance goes on, or for an instance on
        the live clock; NotFoundError if there is no such instance.
        """
        return self._call(lambda it: it.advance(by, to=to, timeout=timeout))

    def start(self, by: Duration | None = None, *, to: datetime | int | None = None) -> ClockState:
        """Begin to advance the clock, as `advance` does, without waiting for the end."""
        return self._call(lambda it: it.start(by, to=to))

    def wait(self, timeout: Duration | None = None) -> ClockState:
        """Wait until no advance goes on. NotYetError after `timeout`, in real time; HostClosedError where the host
        stops before."""
        return self._call(lambda it: it.wait(timeout))

    def freeze(self) -> ClockState:
        """End an advance where the clock stands. What has begun goes on."""
        return self._call(lambda it: it.freeze())
