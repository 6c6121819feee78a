"""Say what is wrong with a host and its schedulers now, in words; and log when callbacks stop and go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from tocsin.actors.runtime.host import Host
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.inflight.authorize import Guard
from tocsin.actors.scheduler.inflight.circuit import PROBE_EVERY_S, Broken
from tocsin.actors.scheduler.inflight.lanes import Lanes
from tocsin.actors.scheduler.inflight.lanes_to import LANES_FULL
from tocsin.actors.scheduler.inflight.origins import Gate
from tocsin.actors.scheduler.inflight.permits import HOST_FULL
from tocsin.actors.scheduler.inflight.waiting_claims import WaitingClaims
from tocsin.actors.scheduler.model import health
from tocsin.actors.scheduler.model.health_limits import HealthLimits
from tocsin.actors.scheduler.model.lost import Lost, lost
from tocsin.actors.scheduler.model.moving import moved_to, moving_to
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.records import HealthReason
from tocsin.actors.scheduler.model.rows import InstanceRow
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries.origin_words import causes, in_words, what_fails
from tocsin.actors.scheduler.transitions.job import UNREACHABLE_MS
from tocsin.dispatch.durations import span
from tocsin.dispatch.origin import lacking
from tocsin.errors import StoreError
from tocsin.storage.api import StoreProvider
from tocsin.storage.residency.provider import NamedStores

log = logging.getLogger("tocsin.scheduler")

STUCK_MS: Final = 60_000
"""Nothing was started for so long, although something could be."""
LATE_TIMERS: Final = 3
"""So many timers within a minute must have been late: a single pause is nothing to act upon."""
LOOKED_AT: Final = 100
"""At so many schedulers a look at the whole host looks, and ..."""
LOOK_AGAIN_S: Final = 5.0
"""... not more often than this, whoever asks."""
LASTS_S: Final = 90.0
"""For how long what a look has found is told of: the heartbeat looks once a minute."""
COUNTED: Final = 100
"""Of how many schedulers the waiting callbacks are counted for the log."""
SOON_MS: Final = 2 * UNREACHABLE_MS
"""Jobs due within this time are counted, too: the attempts that opened the circuit are due again by then."""
HOST: Final = ""
"""The scope of what is wrong with a whole host; no instance has this name."""


MIB: Final = 1024 * 1024
BUSY: Final = {LANES_FULL, HOST_FULL}
"""Hindrances of callbacks on a host that is at work."""


class Here(Protocol):
    """The parts of one scheduler that this host has in memory."""

    lanes: Lanes
    waiting_claims: WaitingClaims


class HostHealth:
    """The health of one host. `busy()` names schedulers with callbacks that wait or are under way; `found()` gives what
    else is wrong with the whole host."""

    def __init__(
        self,
        host: Callable[[], Host],
        gates: Mapping[str, Gate],
        guard: Guard | None,
        busy: Callable[[], Iterable[ActorId]],
        found: Callable[[], Iterable[health.Cause]],
        here: Callable[[], Mapping[str, Here]],
        dying: Callable[[str | None], health.Cause | None],
        growing: Callable[[str, int, int], health.Cause | None],
        has_origin: Callable[[], bool] | None,
        limits: HealthLimits,
        start_soon: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._host, self._gates, self._guard = host, gates, guard
        self._busy, self._found, self._start_soon = busy, found, start_soon
        self._here, self._has_origin, self.limits = here, has_origin, limits
        self._dying, self._growing = dying, growing
        self._looked_at = self._began = float("-inf")
        self._seen: Sequence[health.Cause] = ()
        self._health = health.Health(lambda: self._host().clock.now_ms())

    def begin(self) -> None:
        """Note that the host starts: what was due before could not be sent."""
        self._began, self._looked_at, self._seen = self._host().clock.monotonic(), float("-inf"), ()

    # ---- What is wrong ---------------------------------------------------------------------------

    def of_host(self) -> Sequence[HealthReason]:
        """Return what is wrong with the whole host, failing alarms of any actor included."""
        seen = self._seen if self._host().clock.monotonic() - self._looked_at < LASTS_S else ()
        causes = [*self._of_all(), *self._of_alarms()]
        if (dying := self._dying(None)) is not None:
            causes.append(dying)
        known = {one.code for one in causes}
        return self._health.reasons(HOST, [*causes, *(one for one in seen if one.code not in known)])

    async def look(self) -> None:
        """Look at the schedulers in memory, up to a bound, so that `of_host` tells of them, too."""
        now = self._host().clock.monotonic()
        if now - self._looked_at < LOOK_AGAIN_S:
            return
        self._looked_at = now
        worst: dict[str, health.Cause] = {}
        for name in list(islice(self._here(), LOOKED_AT)):
            view = self._host().provider.view(str(actor_of(name)))
            causes = [*self._of_standing(name, await query.summary(view)), *_of_lost(await lost(view))]
            for one in causes:
                worst.setdefault(one.code, health.Cause(one.code, f"scheduler {name}: {one.message}"))
        self._seen = tuple(worst.values())

    def of_instance(self, actor: ActorId, summary: query.Summary, *, gone: Lost) -> Sequence[HealthReason]:
        """Return what is wrong as one scheduler sees it, the whole host included. `gone`: how many of its jobs and
        schedules cannot be read any more."""
        causes = list(self._of_all(str(actor)))
        if (dying := self._dying(actor.name)) is not None:
            causes.append(dying)
        known = {one.code for one in causes}
        causes += [one for one in self._of_standing(actor.name, summary) if one.code not in known]
        if (failed := self._host().alarms.failing.get(actor)) is not None:
            times = "once" if failed.count == 1 else f"{failed.count} times in a row"
            causes.append(
                health.Cause(
                    health.ALARM_FAILING, f"the scheduler's alarm failed {times}: {failed.error}", failed.since
                )
            )
        causes += _of_lost(gone)
        return self._health.reasons(str(actor), causes)

    def _of_standing(self, name: str, summary: query.Summary) -> Iterator[health.Cause]:
        """Say what waits that should not, in one scheduler, and whether it gets more dead jobs than it should."""
        host, limits = self._host(), self.limits
        standing, here = summary.standing(host.clock.now_ms(), host.clock.now_ms()), self._here().get(name)
        lanes = None if here is None else here.lanes
        hindrances = () if lanes is None else lanes.hindrances(0)
        yield from self._of_counts(name, summary)
        if not host.ready or self.store_trouble(str(actor_of(name))) is not None:
            return  # nothing starts, and its own reason says so
        if standing.callbacks_due and self._has_origin is not None and not self._has_origin():
            said = "callbacks are due, and there is no origin to send them to: set TOCSIN_ORIGIN_URL (origin=...)"
            yield health.Cause(health.ORIGIN_NOT_CONFIGURED, said)
        elif not set(hindrances) - BUSY and not host.alarms.failures(actor_of(name)):
            launched = self._began if lanes is None else max(lanes.launched, self._began)
            idle_ms = int((host.clock.monotonic() - launched) * 1000)
            late_ms = min(standing.late_ms, int((host.clock.monotonic() - self._began) * 1000))
            if late_ms and (late := _late(late_ms, idle_ms, bool(hindrances), limits.late_s)) is not None:
                yield late
        yield from self._to_named(standing.to_named, lanes)
        if standing.queue_late_ms >= limits.queue_late_s * 1000:
            claims = 0 if here is None else here.waiting_claims.waiting_for(standing.queue)
            whom = f"{claims} claims wait for it" if claims else "no worker waits for it"
            said = f"a job of queue {standing.queue} is due for {span(standing.queue_late_ms)}, and {whom}"
            yield health.Cause(health.QUEUE_LATE, f"{said}: start more workers, or look at those there are")
        if standing.leases_over and moved_to(summary.instance) is None:  # else they left with their jobs
            said = f"{standing.leases_over:,} leases ended over a minute ago and their jobs were not taken up again"
            yield health.Cause(health.LEASES_OVER, f"{said}: see the log, and restart this host if nothing moves")

    def _to_named(self, late: Mapping[str, int], lanes: Lanes | None) -> Iterator[health.Cause]:
        """Say of callbacks to named origins that they have nowhere to go, or are late though they could start."""
        clock = self._host().clock
        if unknown := sorted(late.keys() - self._gates.keys()):
            yield health.Cause(health.ORIGIN_NOT_CONFIGURED, f"callbacks are due, and {lacking(unknown[0])}")
        for name in sorted(late.keys() & self._gates.keys()):
            to = None if lanes is None else lanes.to(name)
            hindrances = [] if to is None else to.hindrances(0)
            if set(hindrances) - BUSY:
                continue
            launched = self._began if to is None else max(to.launched, self._began)
            idle_ms, up_ms = ((clock.monotonic() - since) * 1000 for since in (launched, self._began))
            found = _late(min(late[name], int(up_ms)), int(idle_ms), bool(hindrances), self.limits.late_s)
            if late[name] and found is not None:
                yield health.Cause(found.code, f"origin {name}: {found.message}")
                return

    def _of_counts(self, name: str, summary: query.Summary) -> Iterator[health.Cause]:
        """Say that one scheduler has more dead jobs than it should, or jobs that are kept apart."""
        limits, dead, suspects = self.limits, summary.counters.dead, summary.suspects
        if dead >= limits.dead_letters:
            said = f"{dead:,} dead letters are kept: retry or cancel them, or let them go by age (dead_retention_s)"
            yield health.Cause(health.DEAD_LETTERS, said)
        if suspects:
            jobs = "1 job" if suspects == 1 else f"{suspects:,} jobs"
            said = f"{jobs} that two hosts or workers were lost with: waiting, kept apart from others"
            yield health.Cause(health.SUSPECTS_WAITING, said)
        if (growing := self._growing(name, dead, limits.deaths)) is not None:
            yield growing
        if (moves := _moves(summary.instance)) is not None:
            yield moves

    def lost(self, losses: int) -> health.Cause | None:
        """Say that many attempts were lost of late."""
        if losses < self.limits.losses:
            return None
        said = f"{losses:,} attempts were lost within 10 minutes: their hosts or workers ended, or lost the connection"
        return health.Cause(health.ATTEMPTS_LOST, f"{said}; see what ends them (`tocsin workers`, memory, deploys)")

    def store_trouble(self, actor: str | None = None) -> StoreError | None:
        """Return what is wrong with the store. Every turn asks where there is trouble, or was when it was asked last,
        so it is known since when there is."""
        if actor is not None and isinstance(provider := self._host().provider, NamedStores):
            return provider.trouble_of(actor)
        trouble = self._host().provider.trouble
        if (trouble is None) == self.was_in_trouble:
            self.was_in_trouble = trouble is not None
            self._trouble_since = None if trouble is None else self._host().clock.now_ms()
        return trouble

    def is_troubled(self, store: StoreProvider) -> bool:
        """Return whether a store is in trouble, as `store_trouble` does for the host."""
        self.store_trouble()
        return store.trouble is not None

    was_in_trouble = False
    _trouble_since: int | None = None

    def circuit_in_words(self, origin: str = "") -> str | None:
        """Say why the circuit of an origin is open; None: it is closed."""
        gate = self._gates.get(origin)
        return None if gate is None else in_words(gate, self._host().clock.now_ms())

    def _of_stores(self, actor: str | None) -> Iterator[health.Cause]:
        """Say which stores are in trouble: all of them, or that of one actor."""
        provider = self._host().provider
        if isinstance(provider, NamedStores):
            for name, error in provider.troubles.items():
                if actor is None or provider.is_in(name, actor):
                    said = f"nothing new is accepted or started in the store {name}: {error}"
                    yield health.Cause(health.code_of(error), said)
        elif (trouble := self.store_trouble()) is not None:
            said = f"nothing new is accepted or started: {trouble}"
            yield health.Cause(health.code_of(trouble), said, self._trouble_since)

    def _of_all(self, actor: str | None = None) -> Iterator[health.Cause]:
        host = self._host()
        yield from self._of_stores(actor)
        if not host.ready:
            yield health.Cause(
                health.HOST_STOPPING, "the host stops, or its store does not tell which alarms there are"
            )
        yield from self._of_origins()
        broken = self._gates[""].circuit.broken
        rule = None if self._guard is None else self._guard.broken
        if rule is not None and (broken is None or broken.code != health.AUTHORIZE_FIRE_FAILING):
            yield health.Cause(health.AUTHORIZE_FIRE_FAILING, f"{rule.message}; jobs wait until it answers", rule.since)
        wal = host.provider.stats().wal_bytes
        if wal >= self.limits.wal_mib * MIB:
            said = f"the write-ahead log of the store is {wal // MIB:,} MiB long"
            yield health.Cause(health.WAL_LONG, f"{said}: a reader of another program stays in one transaction; end it")
        late = host.alarms.lag.over(self.limits.loop_lag_ms)
        if len(late) >= LATE_TIMERS:
            said = f"the event loop stood still {len(late)} times within a minute, for up to {span(max(late))}"
            yield health.Cause(health.LOOP_LAGS, f"{said}: code of this process blocks it, or it has too little CPU")
        yield from self._found()

    def _of_origins(self) -> Iterator[health.Cause]:
        """Say which origins are away or cool, once for each code: the host's own first, then by name."""
        now, said = self._host().clock.now_ms(), dict[str, list[health.Cause]]()
        for name in sorted(self._gates):
            for one in causes(self._gates[name], now):
                said.setdefault(one.code, []).append(one)
        for code, found in said.items():
            since = [one.since for one in found if one.since is not None]
            yield health.Cause(code, "; ".join(one.message for one in found), min(since, default=None))

    def _of_alarms(self) -> Iterator[health.Cause]:
        alarms = self._host().alarms
        if alarms.failing:
            count = len(alarms.failing)
            whose = "1 scheduler or actor fail" if count == 1 else f"{count} schedulers or actors fail"
            said = f"the alarms of {whose}"
            yield health.Cause(health.ALARM_FAILING, said, alarms.failing_since)

    # ---- What the log says -----------------------------------------------------------------------

    def circuit_changed(self, origin: str, broken: Broken, is_open: bool) -> None:
        """Log one line when callbacks to an origin stop, and one when they go on."""
        self._start_soon(self._tell(self._gates[origin], broken, is_open))

    async def _tell(self, gate: Gate, broken: Broken, is_open: bool) -> None:
        jobs = ""
        try:
            due = await self._due_callbacks(gate.name)
            more = " or more" if due >= query.DUE_COUNTED else ""
            jobs = "1 callback is due" if due == 1 else f"{due:,} callbacks{more} are due"
        except StoreError:
            jobs = "how many callbacks are due cannot be read"
        except asyncio.CancelledError:
            jobs = "the host stops"
            raise
        finally:
            if is_open:
                what = f"{what_fails(gate, broken)}: {broken.message}"
                log.warning("%s. %s; one every %.0f s is tried until it answers", what, jobs, PROBE_EVERY_S)
            else:
                away_s = (self._host().clock.now_ms() - broken.since) / 1000
                log.warning(
                    "the origin %s answers again after %.0f s (%s). %s", gate.shown, away_s, broken.message, jobs
                )

    async def _due_callbacks(self, origin: str) -> int:
        """Count the due callbacks to an origin, of schedulers that have some under way or waiting for a permit, up to a
        bound."""
        provider, now, due = self._host().provider, self._host().clock.now_ms(), 0
        for actor in list(islice(self._busy(), COUNTED)):
            due += await query.due_callbacks(provider.view(str(actor)), now + SOON_MS, origin)
        return due


def _of_lost(gone: Lost) -> list[health.Cause]:
    """Say that jobs or schedules cannot be read any more."""
    said = f"{gone} that had been accepted cannot be read any more: `tocsin check` names them"
    return [health.Cause(health.DAMAGED_ROWS, said)] if gone else []


def _moves(row: InstanceRow) -> health.Cause | None:
    """Say that the instance is elsewhere now, or about to be: whoever still calls it here is refused."""
    if (to := moved_to(row)) is not None:
        said = f"this instance has moved to {to}, and nothing of it changes here: call it there"
        return health.Cause(health.INSTANCE_MOVED, f"{said}; `tocsin move --remove` removes it here")
    if (to := moving_to(row)) is not None:
        said = f"this instance is moving to {to}, takes no new work and starts nothing"
        return health.Cause(
            health.INSTANCE_MOVING, f"{said}: `tocsin move` goes on with that, or gives it up with --abort"
        )
    return None


def _late(late_ms: int, idle_ms: int, is_busy: bool, limit_s: int) -> health.Cause | None:
    """Say that callbacks are late which could start. `idle_ms`: for how long none has been started; `is_busy`: all
    lanes or permits are in use."""
    stuck_ms = min(late_ms, idle_ms)
    if not is_busy and stuck_ms >= STUCK_MS:
        said = f"callbacks are due for {span(late_ms)} and could start, and none has been started for {span(stuck_ms)}"
        return health.Cause(health.JOBS_STUCK, f"{said}: see `tocsin why` for the first of `tocsin ls`, and the log")
    if late_ms < limit_s * 1000:
        return None
    said = f"the callback that waits longest is due for {span(late_ms)}: more become due than are sent"
    return health.Cause(health.JOBS_LATE, f"{said}; a faster receiver, or more lanes, would help")
