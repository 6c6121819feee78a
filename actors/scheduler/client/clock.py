"""`Scheduler.clock`: the test clock of an instance that has one."""

from __future__ import annotations

from datetime import datetime, timedelta

from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.inflight.result_waiters import NOBODY_WAITS
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.records import ClockState
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.words import kind_of
from tocsin.errors import HostClosedError, InvalidInputError, NotYetError


class Clock:
    """A test clock stands still until it is advanced. Then time goes from one due instant to the next: all that is due
    there happens, callbacks are really sent, and has ended before time goes on. Such an instance never runs on the live
    clock, nor one of the live clock on this.
    """

    def __init__(self, port: SchedulerPort) -> None:
        self._port = port

    async def create(self, at: datetime | int) -> ClockState:
        """Make this instance, with a clock that stands at an instant (aware datetime or epoch ms). ConflictError if the
        instance was used before; the same clock again is not refused."""
        return await self._port.changes.set_clock(arguments.instant_ms(at, "at"))

    async def get(self) -> ClockState | None:
        """Return how the clock stands; None for an instance on the live clock."""
        return await self._port.reads.clock(0)

    async def advance(
        self, by: Duration | None = None, *, to: datetime | int | None = None, timeout: Duration | None = None
    ) -> ClockState:
        """Advance the clock by a duration or to an instant, and wait until all that is due until then has ended.

        The advance is durable, so it goes on also if nobody waits. NotYetError if it has not ended after `timeout`
        (real time; None: however long it takes). ConflictError while another advance goes on, or for an instance on
        the live clock; NotFoundError if there is no such instance.
        """
        await self.start(by, to=to)
        return await self.wait(timeout)

    async def start(self, by: Duration | None = None, *, to: datetime | int | None = None) -> ClockState:
        """Begin to advance the clock, as `advance` does, without waiting for the end."""
        if (by is None) == (to is None):
            raise InvalidInputError("give exactly one of by and to")
        if isinstance(by, datetime):
            raise InvalidInputError(f"by must be a duration, not {kind_of(by)}: an instant is given as to=...")
        by_ms = None if by is None else duration_ms(by, "by")
        until = None if to is None else arguments.instant_ms(to, "to")
        return await self._port.changes.advance_clock(to=until, by_ms=by_ms)

    async def wait(self, timeout: Duration | None = None) -> ClockState:
        """Wait until no advance goes on. NotYetError after `timeout`, in real time; HostClosedError where the host
        stops before."""
        wait_s = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        try:
            found = await self._port.reads.clock(wait_s)
        except HostClosedError:  # nobody waits here any more; but it may have ended
            found = await self._port.reads.clock(0)
        return ended(found, wait_s)

    async def freeze(self) -> ClockState:
        """End an advance where the clock stands. What has begun goes on."""
        return await self._port.changes.freeze_clock()


def ended(found: ClockState | None, wait_s: float | None) -> ClockState:
    """Return the state of a clock that is not being advanced any more. NotYetError, or InvalidInputError if there is no
    clock."""
    if found is None:
        raise InvalidInputError("this instance runs on the live clock: only a test clock is advanced")
    if found.advancing:
        stands = f"the clock stands at {found.now}, and is to come to {found.target}"
        if wait_s is None:
            raise HostClosedError(f"{stands}, and {NOBODY_WAITS}")
        why = "" if found.waits_for is None else f": {found.waits_for}"
        raise NotYetError(f"{stands}, after {timedelta(seconds=wait_s)}{why}")
    return found
