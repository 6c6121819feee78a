"""`ActorHost`: composes a whole host from a store URL, an origin and secrets. The one module that knows every room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, TypeVar

from tocsin.actors.cluster.composition import cluster_of, network_at
from tocsin.actors.due_runs import DueRuns
from tocsin.actors.heartbeat import Beat, Pulse, PulseName, heartbeat_to
from tocsin.actors.host_options import (
    Secrets,
    check_first,
    check_names,
    check_options,
    cools,
    dispatcher_to,
    has_origin,
    signer_of,
    to_named,
    transports_of,
)
from tocsin.actors.life import Life
from tocsin.actors.own_actors import Stub, kinds_of
from tocsin.actors.runtime.actor import Actor
from tocsin.actors.runtime.clock import Clock, SystemClock
from tocsin.actors.runtime.host import Host, Kind
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.runtime.store_clock import StoreClock
from tocsin.actors.scheduler.actor.measures import Measures, measures_of
from tocsin.actors.scheduler.actor.service import SchedulerService
from tocsin.actors.scheduler.client import local
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.inflight.authorize import AuthorizeFire
from tocsin.actors.scheduler.inflight.deaths import OnDead
from tocsin.actors.scheduler.inflight.origins import NamedOrigin
from tocsin.actors.scheduler.inflight.passes import Passes
from tocsin.actors.scheduler.inflight.ticking import OnTick
from tocsin.actors.scheduler.model.asked_by import in_python
from tocsin.actors.scheduler.model.catalog_check import CatalogGiven
from tocsin.actors.scheduler.model.due_run import DueRun
from tocsin.actors.scheduler.model.health import RED, level
from tocsin.actors.scheduler.model.health_limits import health_limits as limits_of
from tocsin.actors.scheduler.model.records import HealthReason, InstancePage
from tocsin.actors.scheduler.model.validation import instance_name, integer
from tocsin.actors.scheduler.queries import instances
from tocsin.actors.scheduler.state.occurrences import KEPT_SLOTS
from tocsin.actors.scheduler.state.scheduler_state import TIMEOUT_MS as DEFAULT_TIMEOUT_MS
from tocsin.actors.sharing.door import Door
from tocsin.actors.sharing.sharing import Sharing
from tocsin.actors.sharing.this_host import ThisHost, sharing_through
from tocsin.actors.sharing.unix_door import door_of
from tocsin.actors.standby import when_free
from tocsin.actors.transferring import Transferring
from tocsin.actors.url_origin import shapes_of, url_origin
from tocsin.dispatch.allowed_urls import AllowedUrls
from tocsin.dispatch.catalog.catalog import Catalog
from tocsin.dispatch.certificates import CaFile
from tocsin.dispatch.current import Current
from tocsin.dispatch.dispatcher import DEFAULT_PATH, Dispatcher
from tocsin.dispatch.origin import Origin
from tocsin.dispatch.tracing import Tracers
from tocsin.dispatch.transport import Transport
from tocsin.errors import TocsinError
from tocsin.storage.api import StoreProvider
from tocsin.storage.shared import shared_of
from tocsin.storage.urls import AnyStore, open_stores

if TYPE_CHECKING:
    from tocsin.actors.cluster.network import Network
    from tocsin.actors.http import App, Authorize, Tokens

A = TypeVar("A", bound=Actor)
PORTS_KEPT = 1024  # of the names that requests give, which may be any number


class ActorHost(Transferring):
    """Owns a store, runs schedulers and your own actors on it. `async with ActorHost.open(...) as host`."""

    def __init__(
        self,
        provider: StoreProvider,
        dispatcher: Dispatcher,
        *,
        has_origin: Callable[[], bool] | None,
        named_origins: Mapping[str, NamedOrigin] | None = None,
        cool_on_retry_after: str = "none",
        actors: Iterable[type[Actor]] = (),
        clock: Clock | None = None,
        random: Random | None = None,
        lanes: int = 64,
        max_in_flight: int = 256,
        mailbox_limit: int = 1000,
        idle_after_s: float = 60.0,
        dead_retention_s: float | None = 30 * 86_400,
        max_jobs: int | None = None,
        occurrences_kept: int = KEPT_SLOTS,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        authorize_fire: AuthorizeFire | None = None,
        on_tick: OnTick | None = None,
        on_dead: OnDead | None = None,
        catalog: CatalogGiven | Callable[[], CatalogGiven | None] | None = None,
        health_limits: Mapping[str, int] | None = None,
        heartbeat_url: str | None = None,
        heartbeat_transport: Transport | None = None,
        drain_s: float = 10.0,
        dispatch: bool = True,
        sharing: Callable[[ThisHost], Sharing] | None = None,
        network: Network | None = None,
        tracing: bool | Tracers = True,
    ) -> None:
        check_options(
            authorize_fire, occurrences_kept, timeout_ms, lanes, max_in_flight, mailbox_limit, idle_after_s,
            dead_retention_s, max_jobs, drain_s,
        )  # fmt: skip
        shared = shared_of(provider)
        clock = clock or SystemClock()
        if shared is not None:
            clock = StoreClock(clock, lambda: shared.store_ms)
        self._service = SchedulerService(
            dispatcher, clock, has_origin=has_origin, named_origins=named_origins, lanes=lanes,
            max_in_flight=max_in_flight, dead_retention_s=dead_retention_s, max_jobs=max_jobs,
            authorize_fire=authorize_fire, occurrences_kept=occurrences_kept, timeout_ms=timeout_ms,
            on_tick=on_tick, on_dead=on_dead, catalog=catalog, tracing=tracing, health_limits=limits_of(health_limits),
        )  # fmt: skip
        self._service.origins.company.cools = cools(cool_on_retry_after)
        kinds = kinds_of({**self._service.kinds, Pulse.kind: Kind(Pulse)}, actors)
        self.runtime = Host(
            provider, kinds, clock=clock, random=random, mailbox_limit=mailbox_limit, idle_after_s=idle_after_s,
            rings=dispatch,
        )  # fmt: skip
        self._service.bind(self.runtime)
        self._due_runs = DueRuns(self.runtime, self._service, dispatch=dispatch)
        self._life = life = Life(self.runtime, self._service, drain_s)
        here = ThisHost(self.runtime, self._service, life.start_here, self._due_runs.run)
        self._sharing = life.sharing = sharing and sharing(here)
        self._cluster = life.cluster = cluster_of(here, shared, network, self.runtime, self._service, dispatch)
        if not dispatch:
            self._due_runs.check = life.check_may_run
        self.ports = lru_cache(PORTS_KEPT)(self._port)  # by name, as HTTP reaches them; users have `scheduler`
        self.passes: Passes = (self._sharing or self._cluster or self._service).passes
        life.heartbeat = heartbeat_to(heartbeat_url, heartbeat_transport, clock, self._trouble, self._write)
        self._pulse = PulseName(provider)

    @classmethod
    def open(
        cls,
        store: AnyStore | Mapping[str, AnyStore] = "sqlite:///tocsin.db",
        *,
        residency: Mapping[str, str] | None = None,
        origin: str | Callable[[], str | None] | None = None,
        origins: Mapping[str, Origin] | None = None,
        allow_urls: Sequence[str] | AllowedUrls = (),
        callback_path: str = DEFAULT_PATH,
        secrets: Secrets | Callable[[], Secrets] = (),
        insecure: bool = False,
        transport: Transport | str | None = None,
        ca_file: CaFile | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        share: bool | Door | None = None,
        peer_address: str | Network | None = None,
        **options: Any,
    ) -> ActorHost:
        """Make a host on a store URL (`sqlite:///file.db`, `memory:`) or a provider, or on several by name, with the
        `residency` of their instances (docs/residency.md); enter it with `async with`.

        `origin` is where callbacks go (`https://app.example`). A host that sends no callbacks needs neither `origin`
        nor `secrets`. Both may be callables, which are called for each callback and should be quick. An origin is
        checked here and at each use; while a callable gives a wrong one, jobs wait, uncharged. While a callable gives
        wrong `secrets`, the last good ones stay in force; the first must be good. Without secrets the origin must be
        loopback, and `insecure=True` must be given. `origins` are further ones by name, each an `Origin` with its own
        secrets, circuit and lanes, for a job's option `origin`; `allow_urls` lists URLs for `url` (docs/origins.md).
        `authorize_fire(job)`, sync or async, is asked before each attempt: False parks the job as dead (`blocked`).
        `on_tick(covered_until, lateness)`, sync or async, is called after each pass over the schedules of an instance
        in which nothing failed: all their slots up to `covered_until` (epoch ms) are decided and on disk, the latest of
        this pass `lateness` ms after it was due. A parameter `instance` is given the instance's name.
        `on_dead(job)`, sync or async, is called with a `DeadJob` after the death of a job is on disk; its errors are
        logged and counted. `catalog`, a dict by function path, a `Catalog` or a callable that returns one, lists the
        paths there are and the args each takes: a job that does not fit is refused when it is scheduled, and parked
        (`blocked`) if it no longer fits before an attempt.
        `heartbeat_url` gets a POST once a minute while all is well. `ca_file` names a PEM file of authorities to trust
        beside the system's; it is read here. `clock` and `random` are for simulations: whoever can predict `random` can
        guess leases. More `options` (docs/operating.md): `actors`, `lanes`, `max_in_flight`, `mailbox_limit`,
        `idle_after_s`, `dead_retention_s`, `max_jobs`, `occurrences_kept`, `health_limits`, `drain_s`, and
        `timeout_ms`, the deadline of callbacks where neither the job nor its instance has one (60,000). With
        `dispatch=False` the host starts nothing by itself, but only in `run_due`. Several processes `share` a SQLite
        store that a URL names, unless `share` or `dispatch` is False; one of PostgreSQL has any number of hosts, and
        `peer_address` (`10.0.0.5:0`) is where those of other machines reach this one (docs/cluster.md). `tracing=False`
        makes no spans of OpenTelemetry (docs/tracing.md); a TracerProvider is used in place of the process's own.
        SettingsError for a value that does not fit.
        """
        check_names(options, cls.open, ActorHost.__init__)
        clock, random = clock or SystemClock(), random or SystemRandom()
        provider = open_stores(store, residency)
        signer = Current("secrets", secrets, signer_of)
        read_origin: Callable[[], str | None] = origin if callable(origin) else lambda: origin
        check_first(origin, callback_path, signer, insecure=insecure)
        transport_to = transports_of(transport, ca_file, options)
        dispatcher = dispatcher_to(origin, signer, callback_path, transport_to(), random)
        named = to_named(origins, transport_to, random, insecure=insecure)
        door = door_of(store, provider, share, options.get("dispatch", True))
        configured = {"origin": origin, "callback_path": callback_path, "secrets": secrets, **options}
        configured |= shapes_of(origins, allow_urls)
        return cls(
            provider,
            dispatcher,
            has_origin=None if isinstance(origin, str) else lambda: has_origin(read_origin),
            named_origins=named | url_origin(allow_urls, secrets, transport, ca_file, random, insecure=insecure),
            clock=clock,
            random=random,
            sharing=sharing_through(door, clock, random, configured),
            network=network_at(peer_address, provider),
            **options,
        )

    # ---- Life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> ActorHost:
        await self._start()
        return self

    async def _start(self) -> None:
        await self._life.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop gracefully: claim nothing new, let attempts end (or end them, uncharged), settle and close everything.
        Among hosts of a shared store the others have all schedulers at once, and attempts end here.

        Cancelling the caller does not interrupt this.
        """
        await self._life.stop()

    async def _abandon(self) -> None:
        """End as if the process was killed; for simulations, see `tocsin.testing.crash`."""
        await self._life.abandon()

    def stop_waiting(self) -> None:
        """Answer all who wait for jobs of queues or for the end of a job, and let nobody wait any more.

        `stop` does this first. A server that lets requests end before it stops the host should call it beforehand:
        a claim that waits would delay the stop for as long as it waits. Among hosts of a shared store the others have
        all schedulers from then on, and do what this host is asked: callbacks do not wait for its requests.
        """
        self._life.stop_waiting()

    def _trouble(self) -> str | None:
        """Return why this host is not well, in words that fit after "while"."""
        reasons = self.health()
        return reasons[0].message if level(reasons) == RED else None

    async def _write(self) -> None:
        await self.look()
        if (name := self._pulse.find()) is not None:
            await self.runtime.call(ActorId(Pulse.kind, name), Beat())

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[dict[str, Any]]:
        """Start and stop the host with an app of any ASGI framework: `FastAPI(lifespan=host.lifespan)`.

        If another process has the store and shares it with nobody, log an error that names it, wait, and take over when
        it ends.
        """
        started = await when_free(self._start)
        if not started:
            self.runtime.told_to_stop()
        try:
            yield {"tocsin": self}
        finally:
            if started:
                await self.stop()

    async def run_due(
        self, until: datetime | int | timedelta | str | None = None, *, max_seconds: float | None = None
    ) -> DueRun:
        """Do what is due now: callbacks, slots of schedules, bulk retries, expiry, upkeep, alarms of your own actors.

        Returns when nothing more is due and nothing is in flight, with counts of what was done and of what was left
        and why: paused work, full pools, work of queues, which is for workers, and callbacks while the origin cannot
        be reached are not waited for, and neither are retries of later. With `until`, an aware datetime, epoch ms, or
        a duration such as "55s", it also waits for what becomes due until then.

        After `max_seconds` nothing more is begun; callbacks in flight may go on until the host is stopped. A host that
        was opened with `dispatch=False` does these things only here; on any other one this waits for an instant at
        which all is done. Raises InvalidInputError, HostClosedError, StoreUnavailable.
        """
        if self._sharing is not None and self._sharing.follows:
            return await self._sharing.run_due(self._due_runs.end_ms(until), max_seconds)
        return await self._due_runs.run(until, max_seconds)

    def asgi(
        self,
        *,
        tokens: Tokens | Callable[[], Tokens] | None = None,
        authorize: Authorize | None = None,
        insecure: bool = False,
    ) -> App:
        """Make an ASGI app to mount or serve while the host is open; see `tocsin.actors.http.build_app`.

        `tokens`: texts like `ops:read+operate@tenant-*:secret`, or a callable that returns them and is called for each
        request; a token that it no longer returns is refused from then on. `authorize(identity, action, instance,
        resource)`: your own rule, sync or async. With neither, `insecure=True` must be given, and only requests to
        loopback are answered. Raises SettingsError if none is given or a token is wrong.
        """
        from tocsin.actors.http.app import build_app

        return build_app(self, tokens=tokens, authorize=authorize, insecure=insecure)

    @property
    def ready(self) -> bool:
        """Return whether the host is open and serves. Inside a `lifespan` it is not if the process was told to stop
        while another one had the store."""
        return self.runtime.ready or (self._sharing is not None and self._sharing.ready)

    @property
    def trouble(self) -> TocsinError | None:
        """Return the trouble of the store, during which nothing new is accepted or started; None if all is well."""
        if self._sharing is not None and self._sharing.follows:
            return self._sharing.trouble()
        return self.runtime.provider.trouble

    # ---- Handles ---------------------------------------------------------------------------------

    def _port(self, name: str) -> SchedulerPort:
        port, company = local.port(self._service, name), self._sharing or self._cluster
        return port if company is None else company.port(port)

    def scheduler(self, name: str = "default", *, by: str | None = None) -> Scheduler:
        """Return a handle on a scheduler; it costs nothing until used. Pools, queues, schedules and ids are its own.
        `by` names the person for whom it is used in the audit log."""
        port = self.ports(instance_name(name))
        return Scheduler(port if by is None else port.asked_by(in_python(by)))

    def health(self) -> Sequence[HealthReason]:
        """Return what is wrong with the whole host, the worst first; nothing if it is well. What is wrong with one
        scheduler is in its `status`."""
        if self._sharing is not None and self._sharing.follows:
            return self._sharing.health()
        return self._service.health.of_host()

    async def look(self) -> None:
        """Look at the schedulers in memory, so that `health` also tells of late jobs; not more often than every 5 s."""
        if self._sharing is None or not self._sharing.follows:
            await self._service.look()

    async def measures(self) -> Measures:
        """Return what `/metrics` tells of this process."""
        return await measures_of(self._service, self.health, self._sharing is not None and self._sharing.follows)

    @property
    def catalog(self) -> Catalog | None:
        """The paths there are and the args each takes; None: anything is accepted."""
        return self._service.catalog_check.catalog

    async def instances(
        self, *, cursor: str | None = None, limit: int = 100, shown: instances.Shown | None = None
    ) -> InstancePage:
        """List the schedulers that were used and not removed, by name, with their counts; at most 1,000 on a page.

        Schedulers for which `shown` returns False are left out. Raises InvalidInputError for a wrong cursor or limit.
        """
        limit = integer(limit, "limit", 1, 1000)
        start = "" if cursor is None else instance_name(cursor)
        if self._sharing is not None and self._sharing.follows:
            return await self._sharing.instances(start, limit, shown or instances.everyone)
        return await instances.page(self.runtime.provider, start, limit, shown or instances.everyone)

    def actor(self, kind: type[A], name: str) -> Stub[A]:
        """Return a handle on one of your own actors."""
        company = self._sharing or self._cluster
        call = self.runtime.call if company is None else company.call_or(self.runtime.call)
        return Stub(call, ActorId(kind.kind_name(), instance_name(name)))
