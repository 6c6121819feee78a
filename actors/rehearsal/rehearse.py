"""Run the schedulers of a copy until an instant, in virtual time: the code of production on another loop, another clock
and a store in memory, with a model in the place of receivers and workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tocsin.actors.actor_host import ActorHost
from tocsin.actors.rehearsal.answering import LEASE_MS, Answering, Workers
from tocsin.actors.rehearsal.copying import Copy, hold_attempts
from tocsin.actors.rehearsal.oddities import clock_changes
from tocsin.actors.rehearsal.report import ClockChange, HourOf, Late, PoolFound, PoolHour, Rehearsal, Slots
from tocsin.actors.rehearsal.saturation import HOUR_MS, PoolUse
from tocsin.actors.rehearsal.watching import Watch, WatchedStore
from tocsin.actors.scheduler.model.pool_settings import PoolOptions
from tocsin.actors.testing import VirtualClock, simulate
from tocsin.dispatch.allowed_urls import AllowedUrls
from tocsin.dispatch.origin import Origin
from tocsin.dispatch.rate import rate_of
from tocsin.dispatch.url_list import AnyUrl
from tocsin.errors import InvalidInputError

FAR_S: Final = 1e9
"""The clock of a rehearsal does not step, so nobody need look at it again and again."""
IDLE_S: Final = 3_600.0
ORIGIN: Final = "http://127.0.0.1:9"
"""Nothing is sent there: the model answers in the place of the transport."""
HALF_MS: Final = 0.5
"""Before the end of a rehearsal: jobs due at the end are not in it."""
SECRET: Final = bytes(32)
"""Of callbacks to URLs, which must be signed. Nobody checks them."""
NAMED: Final = 20
"""So many names of pools an error tells."""
FIRED: Final = "fired"


@dataclass(frozen=True, slots=True)
class Plan:
    """The wishes of whoever rehearses. Pools are set at the start in each instance that has them, as an operator would
    set them."""

    start: int
    until: int
    seed: int = 0
    pools: Mapping[str, PoolOptions] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    """How many jobs of a queue are worked on at once; `*`: of all that are not named."""
    lanes: int = 64
    max_in_flight: int = 256


def rehearse(copy: Copy, plan: Plan) -> Rehearsal:
    """Rehearse a copy, which is used up by it. The same copy, plan and seed give the same result.

    InvalidInputError for an end that is not after the start, and for a pool that nothing in the copy names.
    """
    if plan.until <= plan.start:
        raise InvalidInputError(f"the end of a rehearsal, {plan.until}, must be after its start, {plan.start}")
    for name in plan.pools:
        if not any(name in pools for pools in copy.pools.values()):
            there = sorted(set[str]().union(*copy.pools.values()))
            known = ", ".join(there[:NAMED]) + (", …" if len(there) > NAMED else "")
            raise InvalidInputError(
                f"no job, schedule or setting names the pool {name!r}; there are: {known or 'none'}"
            )
    return simulate(plan.seed, lambda random: _Rehearsing(copy, plan, random).run(), in_order=True)


class _Rehearsing:
    """One rehearsal on the loop that runs now."""

    def __init__(self, copy: Copy, plan: Plan, random: Random) -> None:
        self._copy, self._plan, self._random = copy, plan, random
        self._clock = VirtualClock(plan.start, FAR_S)
        self._tasks = asyncio.TaskGroup()
        self._workers = Workers(plan.workers, self._pull)
        self._watch = Watch(copy.disk, self._clock.now_ms, self._workers.seen)
        self._answering = Answering(copy.history, random, self._watch.runs, self._tasks)

    async def run(self) -> Rehearsal:
        changes = [
            one
            for instance in self._copy.instances
            for one in clock_changes(self._copy.disk, instance, self._plan.start, self._plan.until)
        ]
        hold_attempts(self._copy, self._plan.start + LEASE_MS)
        await self._set_pools()
        async with self._tasks:
            self._answering.host = host = self._open(WatchedStore(self._watch))
            async with host:
                self._watch.begin()
                self._answering.finish_what_runs(self._plan.start)
                await self._clock.sleep((self._plan.until - self._plan.start - HALF_MS) / 1000)
                waiting = self._watch.end(self._plan.until)
                await self._answering.stop()
                failed = {actor.name: one.error for actor, one in host.runtime.alarms.failing.items()}
                found = self._found(waiting, changes, failed)
                await host._abandon()
        return found

    def _open(self, store: WatchedStore, dispatch: bool = True) -> ActorHost:
        plan, targets = self._plan, self._copy.targets
        named = dict.fromkeys(targets.origins, Origin(url=ORIGIN))
        urls = AllowedUrls(AnyUrl(), secrets=[SECRET], transport=self._answering)
        return ActorHost.open(
            store, origin=ORIGIN, origins=named, allow_urls=urls if targets.hosts else (), insecure=True,
            transport=self._answering, clock=self._clock, random=self._random, lanes=plan.lanes,
            max_in_flight=plan.max_in_flight, idle_after_s=IDLE_S, tracing=False, dispatch=dispatch,
        )  # fmt: skip

    async def _set_pools(self) -> None:
        """Set pools before anything starts."""
        if not self._plan.pools:
            return
        async with self._open(WatchedStore(Watch(self._copy.disk, self._clock.now_ms, lambda *_: None)), False) as host:
            for instance, pools in self._copy.pools.items():
                for name in sorted(pools & self._plan.pools.keys()):
                    await host.scheduler(instance).set_pool(name, **self._plan.pools[name])

    def _pull(self, instance: str, queue: str, exclude: tuple[str, ...], workers: int) -> None:
        self._answering.start(self._answering.pull(instance, queue, exclude, workers))

    # ---- What was found ----------------------------------------------------------------------------

    def _found(
        self, waiting: Counter[tuple[str, str]], changes: Sequence[ClockChange], failed: dict[str, str]
    ) -> Rehearsal:
        plan, watch, history = self._plan, self._watch, self._copy.history
        late = [one for hour in watch.hours.values() for one in hour.late]
        hours = _hours(plan)
        return Rehearsal(
            start=plan.start,
            until=plan.until,
            seed=plan.seed,
            instances=len(self._copy.instances),
            jobs=self._copy.jobs,
            attempts_known=history.attempts,
            call_ms=history.unknown.took_ms,
            fires=len(late),
            late=Late.of(late),
            outcomes=dict(sorted(watch.outcomes.items())),
            deaths=dict(sorted(watch.deaths.items())),
            waiting=waiting.total(),
            running=len(watch.runs),
            hours=[
                HourOf(at=hour * HOUR_MS, fires=one.fires, late=Late.of(one.late))
                for hour in hours
                if (one := watch.hours.get(hour)) is not None
            ],
            pools=[
                _pool(plan, hours, instance, name, use, waiting[instance, name])
                for (instance, name), use in sorted(watch.pools.items())
                if use.starts or use.full_ms or use.held or waiting[instance, name]
            ],
            missed=self._missed(),
            clock_changes=changes,
            failed=failed,
        )

    def _missed(self) -> list[Slots]:
        counts: Counter[tuple[str, str, str, str]] = Counter()
        for (instance, key), slot in self._watch.slots.items():
            if slot.state != FIRED:
                counts[instance, key.decode().split("/")[1], slot.state, slot.reason or ""] += slot.slots
        return [
            Slots(instance=instance, schedule=name, state=state, reason=reason or None, count=count)
            for (instance, name, state, reason), count in sorted(counts.items())
        ]


def _hours(plan: Plan) -> range:
    """Return the numbers of the hours of the rehearsal, the first and last of which may be parts."""
    return range(plan.start // HOUR_MS, -(-plan.until // HOUR_MS))


def _pool(plan: Plan, hours: range, instance: str, name: str, use: PoolUse, waiting: int) -> PoolFound:
    flow = use.row.flow
    rate = None if flow is None else flow.rate
    busiest = max(use.starts_by_hour.values(), default=0)
    return PoolFound(
        instance=instance,
        name=name,
        max_concurrency=use.row.cap,
        paused=use.row.paused,
        rate=None if rate is None else str(rate_of(rate)),
        fires=use.starts,
        full=round(use.full_ms.total() / (plan.until - plan.start), 6),
        rate_used=None if rate is None else round(busiest * rate[1] / (rate[0] * HOUR_MS), 4),
        longest_wait_ms=use.waited,
        late=Late.of(use.late),
        waiting=waiting,
        hours=[
            PoolHour(at=hour * HOUR_MS, full=round(full / _length(plan, hour), 4), fires=fires)
            for hour in hours
            if (full := use.full_ms[hour]) + (fires := use.starts_by_hour[hour])
        ],
    )


def _length(plan: Plan, hour: int) -> int:
    """Return how many ms of the hour belong to the rehearsal."""
    return min(plan.until, (hour + 1) * HOUR_MS) - max(plan.start, hour * HOUR_MS)
