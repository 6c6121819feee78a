"""Hold what the schedulers of one host share: permits, the dispatcher, limits; and stop them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from tocsin.actors.runtime.actor import ActorContext
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.host import Host, Kind
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.actor import clock_names
from tocsin.actors.scheduler.actor.clock_names import ClockNames, NoteName
from tocsin.actors.scheduler.actor.scheduler_actor import SchedulerActor
from tocsin.actors.scheduler.actor.stored_clocks import StoredClocks
from tocsin.actors.scheduler.inflight.activity import Activities
from tocsin.actors.scheduler.inflight.authorize import AuthorizeFire, Guard
from tocsin.actors.scheduler.inflight.callback_failures import CallbackFailures
from tocsin.actors.scheduler.inflight.deaths import Deaths, OnDead
from tocsin.actors.scheduler.inflight.elsewhere import Elsewhere
from tocsin.actors.scheduler.inflight.feed import Feeds
from tocsin.actors.scheduler.inflight.inflight import Inflight
from tocsin.actors.scheduler.inflight.instance_clocks import InstanceClocks
from tocsin.actors.scheduler.inflight.origins import NamedOrigin, Origins
from tocsin.actors.scheduler.inflight.passes import LocalPasses
from tocsin.actors.scheduler.inflight.permits import Permits
from tocsin.actors.scheduler.inflight.renderers import Renderers
from tocsin.actors.scheduler.inflight.sending import Sender
from tocsin.actors.scheduler.inflight.ticking import OnTick, Ticks
from tocsin.actors.scheduler.inflight.worker_registry import WorkerRegistry
from tocsin.actors.scheduler.model.catalog_check import CatalogCheck, CatalogGiven
from tocsin.actors.scheduler.model.health import Cause
from tocsin.actors.scheduler.model.health_limits import HealthLimits
from tocsin.actors.scheduler.model.names import KIND, actor_of
from tocsin.actors.scheduler.model.origin_records import OriginStatus
from tocsin.actors.scheduler.model.rate_rows import RateRow
from tocsin.actors.scheduler.model.rows import META_SLOT, META_ZONES
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries.host_counts import Counting
from tocsin.actors.scheduler.queries.host_health import HostHealth
from tocsin.actors.scheduler.queries.origin_words import standing
from tocsin.actors.scheduler.queries.why import Facts
from tocsin.actors.scheduler.schedules.recompute import in_doubt
from tocsin.actors.scheduler.state.occurrences import KEPT_SLOTS, FailedSlots
from tocsin.actors.scheduler.state.scheduler_state import TIMEOUT_MS, Limits
from tocsin.actors.scheduler.transitions.events import ClaimMore
from tocsin.dispatch.dispatcher import Dispatcher
from tocsin.dispatch.tracing import Tracers, Tracing
from tocsin.errors import StoreError
from tocsin.storage.api import Owned, StoreProvider, after
from tocsin.storage.residency.provider import part_of
from tocsin.storage.shared import SharedProvider, shared_of

if TYPE_CHECKING:
    from tocsin.actors.scheduler.actor.store_watch import StoreWatch

A = TypeVar("A")
log = logging.getLogger("tocsin.scheduler")

PAGES_AT_ONCE = 2


class SchedulerService:
    """The schedulers of one host. It is made before its host, which needs `kinds`, and then bound to it."""

    host: Host
    random: Random
    elsewhere: Elsewhere | None = None
    """Reaches schedulers of other hosts of a shared store."""
    _shared: SharedProvider | None = None
    watch: StoreWatch | None = None
    """Looks at the hosts of a shared store."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        clock: Clock,
        *,
        has_origin: Callable[[], bool] | None,
        named_origins: Mapping[str, NamedOrigin] | None = None,
        lanes: int = 64,
        max_in_flight: int = 256,
        dead_retention_s: float | None = 30 * 86_400,
        max_jobs: int | None = None,
        authorize_fire: AuthorizeFire | None = None,
        occurrences_kept: int = KEPT_SLOTS,
        timeout_ms: int = TIMEOUT_MS,
        on_tick: OnTick | None = None,
        on_dead: OnDead | None = None,
        catalog: CatalogGiven | Callable[[], CatalogGiven | None] | None = None,
        tracing: bool | Tracers = True,
        health_limits: HealthLimits | None = None,
    ) -> None:
        self.tracing = Tracing(tracing)
        self.has_origin = has_origin
        """None: callbacks always have somewhere to go."""
        kind = Kind(self._make, SchedulerActor.alarm_backoff_max_ms, self._doubt_alarm)
        self.kinds = {KIND: kind, ClockNames.kind: Kind(ClockNames)}
        """Of the actors that a host of schedulers has."""
        self.clock = clock
        self.clocks = InstanceClocks(clock.now_ms)
        self.stored_clocks = StoredClocks(self.clocks, lambda: self.host, self.is_here)
        self.activities = Activities(clock.now_ms, clock.monotonic, self.clocks.names)
        self.counting = Counting(self.activities, lambda: self.host.provider, clock.now_ms)
        monotonic, now_ms = clock.monotonic, clock.now_ms
        failures = CallbackFailures(monotonic, now_ms)
        self.origins = origins = Origins(
            dispatcher, named_origins or {}, max_in_flight, self.tracing, monotonic, now_ms,
            lambda name, why, is_open: self.health.circuit_changed(name, why, is_open),
        )  # fmt: skip
        guard = None if authorize_fire is None else Guard(authorize_fire, monotonic, now_ms)
        self.catalog_check = CatalogCheck(catalog, monotonic)
        self._sender = Sender(origins.gates, self.catalog_check, guard, failures, now_ms)
        self.lanes_limit = lanes
        dead_ms = None if dead_retention_s is None else int(dead_retention_s * 1000)
        self._limits = Limits(dead_ms, max_jobs, occurrences_kept, timeout_ms)
        self._ticks = None if on_tick is None else Ticks(on_tick, clock.sleep, self._start_soon)
        # Those that something needs, not one per name ever used.
        self._inflight: WeakValueDictionary[str, Inflight] = WeakValueDictionary()
        self._troubles: dict[StoreProvider, Callable[[], bool]] = {}
        self._elsewhere = lambda: self.elsewhere  # one for all schedulers, of which there are many
        self.renderers = Renderers()
        self.workers = WorkerRegistry(clock)
        self.feeds, self.passes = Feeds(monotonic, lambda: self.random), LocalPasses(monotonic)
        self.health = HostHealth(
            lambda: self.host,
            origins.gates,
            guard,
            lambda: [actor_of(name) for name, one in self._inflight.items() if one.lanes.busy],
            lambda: self._found(failures.broken),
            self._inflight_here,
            lambda name: self.deaths.dying(failures.broken, name),
            lambda name, kept, limit: self.deaths.growing(name, kept, limit),
            has_origin,
            health_limits or HealthLimits(),
            self._start_soon,
        )
        self.deaths = Deaths(on_dead, clock, self._start_soon)
        self._failed_slots: FailedSlots = {}
        self._stopping = self._nobody_waits = False
        self.paging = asyncio.Semaphore(PAGES_AT_ONCE)
        """Bounds how many pages of lists are made at once: each takes the loop for some ms, and more are no faster."""

    @property
    def permits(self) -> Permits:
        """Return the permits of the host's own origin."""
        return self.origins.own

    def all_inflight(self) -> list[Inflight]:
        """Return what this host has in memory of each scheduler that is needed."""
        return list(self._inflight.values())

    def start(self) -> None:
        self._stopping = self._nobody_waits = False
        self.health.begin()
        if self.watch is not None:
            self.watch.begin()
        self.paging = asyncio.Semaphore(PAGES_AT_ONCE)  # another loop may run by now
        self.origins.open()
        self.activities.begin()
        self._inflight.clear()  # what an earlier run left serves nobody
        self.feeds.forget()
        if self._ticks is not None:
            self._ticks.start()

    def bind(self, host: Host) -> None:
        """Say which host serves these schedulers. To be called once, before the host starts."""
        self.host, self.random = host, host.random
        self._shared = shared_of(host.provider)
        if self._shared is not None:
            from tocsin.actors.runtime.store_clock import BAND_MS  # for shared stores only
            from tocsin.actors.scheduler.actor.store_watch import StoreWatch

            self._limits = replace(self._limits, clocks_differ_ms=self._shared.clocks_differ_ms + 2 * BAND_MS)
            self.watch = StoreWatch(self._shared, host.clock)
            host.on_owned, host.on_gone = self._came, self._gone

    def is_here(self, name: str) -> bool:
        """Return whether this host has that scheduler, which may be another one's in a shared store."""
        return self._shared is None or self._shared.locate(str(actor_of(name))).here

    def _inflight_here(self) -> Mapping[str, Inflight]:
        """Return what this host has in memory of its own schedulers."""
        if self._shared is None:
            return self._inflight
        return {name: one for name, one in self._inflight.items() if self.is_here(name)}

    def _came(self, event: Owned) -> None:
        """Look at what has come: nothing that this host remembers of it is true any more."""
        if self.activities.touched is not None:
            ids = map(ActorId.parse, (name for name, _ in event.actors))
            self.activities.touched.update(one.name for one in ids if one.kind == KIND)
        self.stored_clocks.came(event)

    def _gone(self, covers: Callable[[str], bool], error: StoreError) -> None:
        """Send whoever waits at schedulers that go to another host there. Callbacks in flight go on."""
        names = {*self.clocks.names, *self._inflight}
        for name in [name for name in names if covers(str(actor_of(name)))]:
            if (one := self._inflight.get(name)) is not None:
                one.refuse(error)
            self.clocks.note(name, None)

    async def note_clock(self, name: str) -> None:
        """Note that an instance is about to get a test clock, wherever that is noted."""
        if self.elsewhere is None:
            await self.note_clock_here(name)
        else:
            await self.elsewhere.note_clock(name)

    async def note_clock_here(self, name: str) -> None:
        """Note that an instance is about to get a test clock, where this host is the one that notes it."""
        await self.host.call(clock_names.ID, NoteName(name))

    def _start_soon(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.host.start_soon(work)

    def _make(self, ctx: ActorContext) -> SchedulerActor:
        owner, name = self.host.provider.owner, ctx.id.name
        ticked = None if self._ticks is None else partial(self._ticks.note, name)
        return SchedulerActor(
            ctx, self.inflight(name), self.renderers, owner, self._troubled(part_of(self.host.provider, str(ctx.id))),
            self._limits, self.clock, self.deaths.note, self._failed_slots, ticked,
        )  # fmt: skip

    def _troubled(self, store: StoreProvider) -> Callable[[], bool]:
        """Return what tells whether a store is in trouble: one function for all schedulers in it."""
        if store not in self._troubles:
            self._troubles[store] = lambda: (
                (store.trouble is not None or self.health.was_in_trouble) and self.health.is_troubled(store)
            )
        return self._troubles[store]

    async def _doubt_alarm(self, actor: ActorId) -> None:
        """Wake a scheduler whose schedules, or tokens of pools, are ahead of the clock (their next slots may be a
        lifetime away) or were computed with other time zones. Its rows are read for that, without an activation."""
        ranges = [query.one(META_SLOT), query.one(META_ZONES), (b"rate/", after(b"rate/"), query.PAGE)]
        slots, zones, rates = await self.host.provider.view(str(actor)).scan_many(ranges)
        now = self.clock.now_ms()
        is_in_doubt = bool(slots) and in_doubt(now, slots[0][1], zones[0][1] if zones else None)
        tokens = [row for key, value in rates if (row := query.read(RateRow, key, value)) is not None]
        if is_in_doubt or any(row.at > now for row in tokens):
            await self.host.post(actor, ClaimMore())  # its start looks at zones, and every turn at the clock

    def _found(self, failing: Cause | None) -> Sequence[Cause]:
        """Return what is wrong with the whole host, as its attempts and its hook tell."""
        found = (failing, self.health.lost(self.activities.losses_lately), self.deaths.broken)
        return [*(each for each in found if each is not None), *(() if self.watch is None else self.watch.causes())]

    async def look(self) -> None:
        """Look at what health does not know without: schedulers in memory, and the hosts of a shared store."""
        if self.watch is not None:
            with suppress(StoreError):  # its trouble is told by the provider
                await self.watch.look()
        await self.health.look()

    def inflight(self, name: str) -> Inflight:
        """Return what this host has in memory of that scheduler."""
        found = self._inflight.get(name)
        if found is None:
            found = Inflight(
                name, self.host, self.origins.own, self.lanes_limit, self._sender, self.clocks, self.activities,
                self._elsewhere,
            )  # fmt: skip
            if self._stopping:
                found.lanes.stop_claiming()
            if self._nobody_waits:
                found.stop_waiting()
            self._inflight[name] = found
        return found

    def lanes_in_use(self, name: str) -> tuple[int, int]:
        """Return how many lanes of that scheduler are in use, and the limit."""
        found = self._inflight.get(name)
        return (found.lanes.in_flight if found else 0), self.lanes_limit

    def origins_of(self, name: str) -> Sequence[OriginStatus]:
        """Return how the named origins are, and how many callbacks of that scheduler are on their way to each."""
        found, now = self._inflight.get(name), self.clock.now_ms()
        in_use = {} if found is None else {origin: lanes.in_flight for origin, lanes in found.lanes.named.items()}
        return [
            standing(gate, in_use.get(gate.name, 0), self.lanes_limit, now)
            for gate in self.origins.gates.values()
            if gate.name in self.origins.names
        ]

    def facts(self, name: str, origin: str = "") -> Facts:
        """Return what only this host knows of why a job waits that goes to this origin."""
        here = self.inflight(name)
        lanes, permits = here.lanes.to(origin), self.origins.permits_of(origin)
        return Facts(
            lanes_limit=lanes.limit,
            max_in_flight=permits.limit,
            max_suspects=permits.suspects,
            hindrances=lanes.hindrances,
            circuit=self.health.circuit_in_words(origin),
            circuit_since=None if (broken := permits.circuit.broken) is None else broken.since,
            cools_until=permits.cools_until,
            origin=origin,
            of_origin=partial(self.facts, name),
            wall=self.clock.now_ms(),
            in_flight=lanes.in_flight,
            store_trouble=self.health.store_trouble(str(actor_of(name))),
            stopping=not self.host.ready or lanes.stopping,
            alarm_failures=self.host.alarms.failures(actor_of(name)),
            waiting_for=here.waiting_claims.waiting_for,
        )

    # ---- Dispatching only when it is told to ----

    def open_permits(self) -> None:
        """Let callbacks start, until `close_permits`."""
        self.origins.company.closed = False

    def close_permits(self) -> None:
        """Start no callback any more. Schedulers that stand in line for one are rung when alarms are started again."""
        self.origins.company.closed = True
        for name, one in list(self._inflight.items()):
            if one.lanes.stands_in_line:
                one.lanes.leave_all()
                self.host.alarms.set(actor_of(name), self.clock.now_ms())

    def only_waiting(self) -> set[asyncio.Task[None]]:
        """Return tasks of this host that only wait for time to pass, or repeat what has failed."""
        return self.deaths.windows | (set() if self._ticks is None else self._ticks.failing)

    # ---- Stopping --------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        """Answer every call that waits for jobs or for the end of one; let no call wait from now on."""
        self._nobody_waits = True
        for one in list(self._inflight.values()):
            one.stop_waiting()

    async def drain(self, seconds: float) -> None:
        """Let nobody wait any more; claim nothing more; let attempts end, for at most `seconds`; then end them,
        uncharged."""
        self.stop_waiting()
        await self.rest(seconds)
        await self.deaths.drain(seconds)

    @property
    def kept_slots(self) -> int:
        """Return how many outcomes of slots are kept for each schedule."""
        return self._limits.kept_slots

    async def rest(self, seconds: float) -> None:
        """Start no more callbacks; let those under way end, for at most `seconds`; then end them, uncharged.

        All else goes on: jobs are accepted, and given to workers that wait."""
        self._stopping = True
        if self._ticks is not None:
            self._ticks.stop()
        used = [one.lanes for one in list(self._inflight.values())]
        for lanes in used:
            lanes.stop_claiming()
        running = [task for lanes in used for task in lanes.running()]
        if running:
            _, late = await asyncio.wait(running, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                log.warning("%d callbacks were ended after %.1f s of draining, uncharged", len(late), seconds)
                await asyncio.wait(late)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(lanes.wait_settled() for lanes in used))
        except TimeoutError:
            log.warning("the ends of some callbacks could not be stored: they are repeated when their leases end")

    async def aclose(self) -> None:
        await self.origins.aclose()
