"""Say what is wrong with a host and its schedulers now, in words; and log when callbacks stop and go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from tocsin.actors.runtime.host import Host
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.inflight.authorize import Guard
from tocsin.actors.scheduler.inflight.circuit import PROBE_EVERY_S, Broken, Circuit
from tocsin.actors.scheduler.model import health
from tocsin.actors.scheduler.model.lost import Lost
from tocsin.actors.scheduler.model.records import HealthReason
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.transitions.job import UNREACHABLE_MS
from tocsin.errors import StoreError

log = logging.getLogger("tocsin.scheduler")

AMBER_DEAD: Final = 100_000
COUNTED: Final = 100
"""Of how many schedulers the waiting callbacks are counted for the log."""
SOON_MS: Final = 2 * UNREACHABLE_MS
"""Jobs due within this time are counted, too: the attempts that opened the circuit are due again by then."""
HOST: Final = ""
"""The scope of what is wrong with a whole host; no instance has this name."""


class HostHealth:
    """The health of one host. `busy()` names schedulers with callbacks that wait or are under way; `found()` gives what
    else is wrong with the whole host."""

    def __init__(
        self,
        host: Callable[[], Host],
        circuit: Circuit,
        guard: Guard | None,
        last_origin: Callable[[], str | None],
        busy: Callable[[], Iterable[ActorId]],
        found: Callable[[], Iterable[health.Cause]],
        start_soon: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._host, self._circuit, self._guard = host, circuit, guard
        self._last_origin, self._busy = last_origin, busy
        self._found, self._start_soon = found, start_soon
        self._health = health.Health(lambda: self._host().clock.now_ms())

    # ---- What is wrong ---------------------------------------------------------------------------

    def of_host(self) -> Sequence[HealthReason]:
        """Return what is wrong with the whole host, failing alarms of any actor included."""
        causes = [*self._of_all(), *self._of_alarms()]
        return self._health.reasons(HOST, causes)

    def of_instance(
        self, actor: ActorId, *, dead: int = 0, suspects: int = 0, lost: Lost | None = None
    ) -> Sequence[HealthReason]:
        """Return what is wrong as one scheduler sees it, the whole host included. `suspects`: how many jobs wait that
        must be kept apart; `lost`: how many cannot be read any more."""
        causes = list(self._of_all())
        if (failed := self._host().alarms.failing.get(actor)) is not None:
            times = "once" if failed.count == 1 else f"{failed.count} times in a row"
            causes.append(
                health.Cause(
                    health.ALARM_FAILING, f"the scheduler's alarm failed {times}: {failed.error}", failed.since
                )
            )
        if dead >= AMBER_DEAD:
            said = f"{dead:,} dead letters are kept: retry or cancel them, or let them go by age (dead_retention_s)"
            causes.append(health.Cause(health.DEAD_LETTERS, said))
        if suspects:
            jobs = "1 job" if suspects == 1 else f"{suspects:,} jobs"
            said = f"{jobs} that two hosts or workers were lost with: waiting, kept apart from others"
            causes.append(health.Cause(health.SUSPECTS_WAITING, said))
        if lost:
            said = f"{lost} that had been accepted cannot be read any more: `tocsin check` names them"
            causes.append(health.Cause(health.DAMAGED_ROWS, said))
        return self._health.reasons(str(actor), causes)

    def store_trouble(self) -> StoreError | None:
        """Return what is wrong with the store. Every turn asks, so it is known since when there is trouble."""
        trouble = self._host().provider.trouble
        if (trouble is None) != (self._trouble_since is None):
            self._trouble_since = None if trouble is None else self._host().clock.now_ms()
        return trouble

    _trouble_since: int | None = None

    def circuit_in_words(self) -> str | None:
        """Say why the circuit is open; None: it is closed."""
        broken = self._circuit.broken
        return None if broken is None else f"{self._what_fails(broken)}: {broken.message}"

    def _of_all(self) -> Iterator[health.Cause]:
        host = self._host()
        if (trouble := self.store_trouble()) is not None:
            yield health.Cause(
                health.code_of(trouble), f"nothing new is accepted or started: {trouble}", self._trouble_since
            )
        if not host.ready:
            yield health.Cause(
                health.HOST_STOPPING, "the host stops, or its store does not tell which alarms there are"
            )
        broken = self._circuit.broken
        if broken is not None:
            said = f"{self.circuit_in_words()}; callbacks wait, and one every {PROBE_EVERY_S:.0f} s is tried"
            yield health.Cause(broken.code, said, broken.since)
        rule = None if self._guard is None else self._guard.broken
        if rule is not None and (broken is None or broken.code != health.AUTHORIZE_FIRE_FAILING):
            yield health.Cause(health.AUTHORIZE_FIRE_FAILING, f"{rule.message}; jobs wait until it answers", rule.since)
        yield from self._found()

    def _of_alarms(self) -> Iterator[health.Cause]:
        alarms = self._host().alarms
        if alarms.failing:
            count = len(alarms.failing)
            whose = "1 scheduler or actor fail" if count == 1 else f"{count} schedulers or actors fail"
            said = f"the alarms of {whose}"
            yield health.Cause(health.ALARM_FAILING, said, alarms.failing_since)

    def _what_fails(self, broken: Broken) -> str:
        if broken.code == health.ORIGIN_UNREACHABLE:
            return f"the origin {self._last_origin() or '(none)'} cannot be reached"
        return "callbacks cannot be sent"

    # ---- What the log says -----------------------------------------------------------------------

    def circuit_changed(self, broken: Broken, is_open: bool) -> None:
        """Log one line when callbacks stop, and one when they go on."""
        self._start_soon(self._tell(broken, is_open))

    async def _tell(self, broken: Broken, is_open: bool) -> None:
        origin = self._last_origin()
        jobs = ""
        try:
            due = await self._due_callbacks()
            more = " or more" if due >= query.DUE_COUNTED else ""
            jobs = "1 callback is due" if due == 1 else f"{due:,} callbacks{more} are due"
        except StoreError:
            jobs = "how many callbacks are due cannot be read"
        except asyncio.CancelledError:
            jobs = "the host stops"
            raise
        finally:
            if is_open:
                what = f"{self._what_fails(broken)}: {broken.message}"
                log.warning("%s. %s; one every %.0f s is tried until it answers", what, jobs, PROBE_EVERY_S)
            else:
                away_s = (self._host().clock.now_ms() - broken.since) / 1000
                log.warning("the origin %s answers again after %.0f s (%s). %s", origin, away_s, broken.message, jobs)

    async def _due_callbacks(self) -> int:
        """Count the due callbacks of schedulers that have some under way or waiting for a permit, up to a bound."""
        provider, now, due = self._host().provider, self._host().clock.now_ms(), 0
        for actor in list(islice(self._busy(), COUNTED)):
            due += await query.due_callbacks(provider.view(str(actor)), now + SOON_MS)
        return due
