"""`run_due`: does what is due on a host and says when that is done, for cron jobs, serverless functions and tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from tocsin.actors.host_options import within
from tocsin.actors.runtime.host import NOT_OPEN, Host
from tocsin.actors.scheduler.actor.service import SchedulerService
from tocsin.actors.scheduler.model.due_run import NO_TROUBLE, DueRun, LeftBehind
from tocsin.actors.scheduler.model.health import ALARM_FAILING, code_of
from tocsin.actors.scheduler.model.names import KIND
from tocsin.actors.scheduler.model.validation import duration_ms, instant_ms
from tocsin.actors.scheduler.queries.left_behind import Left, left_behind
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.instants import show
from tocsin.errors import HostClosedError, InvalidInputError

MAX_SECONDS: Final = (0.001, 86_400.0)
NOT_SENT: Final = frozenset({Verdict.BLOCKED, Verdict.STOPPED})
Until = datetime | int | timedelta | str


class DueRuns:
    """The runs of one host. If the host does not dispatch by itself, it does so while one of them goes on."""

    def __init__(self, runtime: Host, service: SchedulerService, *, dispatch: bool) -> None:
        self._runtime, self._service, self._dispatch = runtime, service, dispatch
        self._under_way = 0
        self.check: Callable[[], Awaitable[None]] | None = None
        """Refuses a run where others do what is due."""
        if not dispatch:
            service.close_permits()

    async def run(self, until: Until | None, max_seconds: float | None) -> DueRun:
        """Do what is due now, and what becomes due until then; see `ActorHost.run_due`."""
        if max_seconds is not None:
            within("max_seconds", max_seconds, *MAX_SECONDS)
        service, clock = self._service, self._runtime.clock
        end_ms = self.end_ms(until)
        if not self._runtime.is_open:
            raise HostClosedError(NOT_OPEN)
        if self.check is not None:
            await self.check()
        tally, dead, time_over = Counter[Verdict](), service.deaths.noted, False
        company = service.origins.company
        company.tallies.append(tally)
        self._begin()
        try:
            try:
                async with asyncio.timeout(max_seconds):
                    await self._until_done(end_ms)
            except TimeoutError:
                time_over = True
                self._end()
            left = await left_behind(
                self._runtime.provider, clock.now_ms(), service.facts, service.is_here, time_over=time_over
            )
            return _told(tally, service.deaths.noted - dead, left, self._of_host(), self._next_due())
        finally:
            company.tallies = [one for one in company.tallies if one is not tally]
            if not time_over:
                self._end()

    def end_ms(self, until: Until | None) -> int:
        """Return the instant until which a run goes on."""
        now = self._runtime.clock.now_ms()
        return now if until is None else _end(until, now)

    def _begin(self) -> None:
        self._under_way += 1
        if self._under_way == 1 and not self._dispatch:
            self._service.open_permits()
            self._runtime.alarms.start()

    def _end(self) -> None:
        self._under_way -= 1
        if not self._under_way and not self._dispatch:
            self._runtime.alarms.stop()
            self._service.close_permits()

    async def _until_done(self, end_ms: int) -> None:
        runtime, clock = self._runtime, self._runtime.clock
        await runtime.know_alarms()
        while True:
            await runtime.until_idle(self._service.only_waiting)
            if (next_ms := runtime.alarms.next_ring()) is None or next_ms > end_ms:
                return
            await clock.sleep(max(next_ms - clock.now_ms(), 1) / 1000)

    def _next_due(self) -> int | None:
        now = self._runtime.clock.now_ms()
        return min((due for due in self._runtime.alarms.due.values() if due > now), default=None)

    def _of_host(self) -> list[LeftBehind]:
        """Say what kept the host from looking whether something is due at all."""
        found = []
        if (trouble := self._service.health.store_trouble()) is not None:
            found.append(LeftBehind(code_of(trouble), f"nothing new is started: {trouble}", 0))
        for actor, failure in self._runtime.alarms.failing.items():
            instance = actor.name if actor.kind == KIND else None
            found.append(LeftBehind(ALARM_FAILING, f"the alarm of {actor} failed: {failure.error}", 0, instance))
        return found


def _end(until: Until, now: int) -> int:
    """Return the instant; a text and a timedelta are counted from now."""
    if isinstance(until, (str, timedelta)):
        return now + duration_ms(until, "until")
    if isinstance(until, float):
        raise InvalidInputError(f'until must be an instant or like "55s", not the number {show(until)}')
    return instant_ms(until, "until")


def _told(tally: Counter[Verdict], dead: int, left: Left, of_host: list[LeftBehind], next_due: int | None) -> DueRun:
    fired = sum(count for verdict, count in tally.items() if verdict not in NOT_SENT)
    succeeded, accepted = tally[Verdict.DONE], tally[Verdict.ACCEPTED]
    known = {(one.code, one.instance) for one in left.because}
    because = [*left.because, *(one for one in of_host if (one.code, one.instance) not in known)]
    return DueRun(
        fired=fired,
        succeeded=succeeded,
        accepted=accepted,
        failed=fired - succeeded - accepted,
        dead=dead,
        left=left.jobs,
        running=left.running,
        trouble=any(one.code not in NO_TROUBLE for one in because),
        next_due=next_due,
        because=tuple(because),
        more_instances=left.more_instances,
    )
