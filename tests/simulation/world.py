"""A whole host in virtual time: users, a network, a store, crashes; the promises are checked on the way.

A run is a function of its seed. `storm` runs have faults, crashes and clock steps; `calm` ones have none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from tests.simulation.origin import Origin, WatchedNetwork
from tests.simulation.planner import Planner
from tests.simulation.promises import NAME, Promises, Wish
from tests.simulation.pullers import QUEUES, Puller, Watch
from tests.simulation.schedules import WatchedDisk
from tests.simulation.tally import COUNTER, Tally
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.blob import parts_of
from tocsin.actors.scheduler.handle import Scheduler
from tocsin.actors.scheduler.handle_following import Job
from tocsin.actors.scheduler.rows import JobRow
from tocsin.actors.testing import Process, VirtualClock, Weather
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.signing import Signer
from tocsin.errors import (
    ActorError,
    DuplicateScheduleIdError,
    JobFailedError,
    NotFoundError,
    NotYetError,
    StoreError,
)
from tocsin.storage.testing import FaultyProvider

SECRET = "whsec_" + "c2ltdWxhdGVkIHNlY3JldCBvZiAzMiBieXRlcw=="
TIMEOUT_MS = 8_000
FAR_MS = 4_000_000
CALM_S = 130
"""So long schedules go on in good weather before they are stopped."""
UNHEARD = (ActorError, StoreError)
decode = msgspec.json.decode


@dataclass
class World:
    """One run."""

    random: Random
    storm: bool
    disk: WatchedDisk = field(default_factory=lambda: WatchedDisk(NAME))
    clock: VirtualClock = field(default_factory=VirtualClock)
    counted: list[int] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    numbers: int = 0
    receiving: set[asyncio.Future[Any]] = field(default_factory=set)
    completed: set[str] = field(default_factory=set)
    wrong_ms: int = 0
    """How far the planners have moved the clock."""
    definitions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of schedules, as asked for last."""
    down: bool = False
    over: bool = False
    claims: dict[int, Puller] = field(default_factory=dict)
    """Whose claims wait, or are on their way."""
    claims_made: int = 0
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    """Who waits for results, in this life of the host."""
    pausing: bool = False
    """Somebody stops pool a just now: two would not know of each other."""

    def __post_init__(self) -> None:
        self.promises = Promises(self.disk, self.clock)
        self.promises.steps = self.storm and self.random.random() < 0.25
        self.weather = Weather(0.1 if self.storm else 0.0)
        self.signer = Signer([SECRET])
        self.planners = self.random.choice((0, 1, 2))
        """Users who keep schedules."""
        self.far = self.random.random() < 0.5
        """If the clock steps, it may be by a day."""
        self.pullers = self.random.choice((0, 0, 1, 2, 4))
        """Workers; without any there are no queues."""
        self.pullers_made = 0
        self.origin = Origin(self)
        self.promises.wishes[0] = Wish(0, "", 0, None, None, mortal=True)  # what follows occurrences
        pulled = self.disk.pulled
        pulled.calm, pulled.on_start, pulled.on_done = not self.storm, self.starts, self.is_done

    def note(self, what: str) -> None:
        self.trace.append(f"{self.clock.now_ms()} {what}")

    # ---- The weather -----------------------------------------------------------------------------

    @property
    def storm_now(self) -> bool:
        return self.weather.fault > 0

    def stall(self, seconds: float) -> None:
        """Everything stands still for so long; the clocks go on."""
        asyncio.get_running_loop()._time += seconds  # type: ignore[attr-defined]

    # ---- A life of the host ----------------------------------------------------------------------

    def host(self, process: Process) -> ActorHost:
        provider = FaultyProvider(self.disk, self.random, alive=process.is_alive, fault=self.weather.now)
        network = WatchedNetwork(self, process)
        return ActorHost.open(
            provider,
            origin="https://receiver.example",
            secrets=[SECRET],
            transport=network,
            clock=self.clock,
            random=self.random,
            actors=[Tally],
            occurrences_kept=100_000,
            lanes=self.random.choice((1, 2, 8)),
            max_in_flight=self.random.choice((1, 4, 16)),
            idle_after_s=self.random.choice((0.1, 5.0, 60.0)),
        )

    async def live(self, lives: int) -> None:
        for life in range(lives):
            last = life == lives - 1
            process = Process()
            host = self.host(process)
            await host.__aenter__()
            self.current = host
            self.note(f"life {life}")
            quiet = last and self.random.random() < 0.5  # nobody comes: alarms alone must finish the work
            jobs = host.scheduler("sim")
            users = [asyncio.ensure_future(self.user(jobs, host)) for _ in range(0 if quiet else 4)]
            users += [asyncio.ensure_future(Planner(self, jobs).live()) for _ in range(0 if quiet else self.planners)]
            self.pull(jobs, others=life == 0)
            if last:
                await self.end_well(host, users)
            else:
                await asyncio.sleep(self.random.choice((0.05, 0.5, 2, 6, 30)))
                await self.crash(host, process)

    current: Any = None
    """The host that lives just now."""

    async def crash(self, host: ActorHost, process: Process) -> None:
        process.alive = False
        self.promises.paused_since = None
        self.pausing = False
        self.promises.crashes += 1
        self.note("crash")
        await asyncio.sleep(0.2)  # what it had in flight is applied, or not
        host.runtime.alarms.stop()
        host.runtime._open = False  # nothing of it goes on
        await end_tasks(self.receiving)
        self.waiters = []
        await self.promises.rows_are_sound()

    async def end_well(self, host: ActorHost, users: Sequence[asyncio.Future[None]]) -> None:
        await asyncio.gather(*users)
        await asyncio.sleep(20)
        self.weather.fault, self.down = 0.0, False
        self.promises.paused_since = None
        await host.scheduler("sim").set_pool("a", paused=False)
        if self.pullers:
            self.spare(Puller(self, 0, None, sweeps=True).live())
        if self.planners:
            await asyncio.sleep(CALM_S)
            self.disk.schedules.are_on_time(self.clock.now_ms(), self.promises.latest_ms)
            await Planner(self, host.scheduler("sim")).retire()
        last = max([*(wish.due for wish in self.promises.wishes.values()), *self.promises.instants_ahead()], default=0)
        left = max(last - self.clock.now_ms(), 0)
        if left > FAR_MS:  # a clock that was ahead has left it behind; nobody wants to sleep through that
            self.clock.step(left)
            left = 0
        await asyncio.sleep(left / 1000)
        for _ in range(20):  # that long it may take; most have ended much earlier
            await asyncio.sleep(100)
            if not any(True for _ in self.promises.instants_ahead()):
                break
        assert all(one.done() for one in self.waiters), "somebody waits for the end of a job, and all have ended"
        self.over = True
        await host.stop()

    # ---- Workers ---------------------------------------------------------------------------------

    def pull(self, jobs: Scheduler, *, others: bool) -> None:
        """Workers in the process of the host, and once the others."""
        if not self.pullers:
            return
        if others:
            self.spare(Watch(self).live())
        for n in range(self.pullers):
            inside = n % 2 == 1
            if inside or others:
                task = asyncio.ensure_future(self.workers(jobs if inside else None))
                if not inside:
                    self.spare(task)

    async def workers(self, jobs: Scheduler | None) -> None:
        """One after the other."""
        while not self.over:
            self.pullers_made += 1
            await Puller(self, self.pullers_made, jobs).live()
            await asyncio.sleep(self.random.choice((0.1, 3)))

    def spare(self, work: Coroutine[Any, Any, None] | asyncio.Future[None]) -> None:
        """Another process: it goes on when the host is gone."""
        task = asyncio.ensure_future(work)
        self.receiving.add(task)
        task.add_done_callback(self.receiving.discard)

    def wish_of(self, job: JobRow) -> Wish | None:
        n = None if job.schedule else decode(parts_of(job, job.args).args)["n"]
        return self.promises.wishes[n] if n else None

    def starts(self, job: JobRow) -> None:
        """Its parent is done."""
        if (wish := self.wish_of(job)) is not None:
            wish.id, wish.accepted = job.id, True
            self.note(f"started {wish.n} after {job.parent}")

    def is_done(self, job: JobRow) -> None:
        wish = self.wish_of(job)
        if wish is not None:
            self.promises.done.add(wish.n)
        if wish is not None and job.queue:
            self.promises.delivered[wish.n] += 1
            self.note(f"done {wish.n}")

    # ---- Users -----------------------------------------------------------------------------------

    async def user(self, jobs: Scheduler, host: ActorHost) -> None:
        for _ in range(self.random.randint(3, 8)):
            await asyncio.sleep(self.random.choice((0, 0, 0.01, 0.5, 2)))
            wish = await self.schedule(jobs)
            if wish.accepted and self.random.random() < 0.2:
                await asyncio.sleep(self.random.choice((0, 0.02, 0.5, 4)))
                await self.cancel(jobs, wish)
                if self.random.random() < 0.5:
                    await self.schedule(jobs, wish.id)  # the id is free at once
            if self.promises.steps and self.random.random() < 0.1:
                self.promises.step(self.random.choice((-3_600_000, 3_600_000)))
            await self.operate(jobs, wish)
            await self.tally(host)

    async def operate(self, jobs: Scheduler, wish: Wish) -> None:
        """Now and then an operator sets or stops a pool, somebody moves a job, or the origin is away."""
        dice = self.random.random()
        try:
            if dice < 0.06:
                self.promises.lowered.update("ab")
                await jobs.set_pool(self.random.choice("ab"), max_concurrency=self.random.randint(1, 3))
            elif dice < 0.10 and not self.pausing:
                self.pausing = True
                await jobs.set_pool("a", paused=True)
                self.promises.paused_since = self.clock.now_ms()
                await asyncio.sleep(self.random.choice((0.1, 3)))
                self.promises.paused_since = None
                await jobs.set_pool("a", paused=False)
                self.pausing = False
            elif dice < 0.16:
                await jobs.reschedule(wish.id, after=self.random.choice((0, 0.5, 5)))
            elif dice < 0.19 and self.storm:
                self.down = True
                await asyncio.sleep(self.random.choice((1, 20)))
                self.down = False
        except UNHEARD:
            assert self.storm, "nothing failed, yet a caller heard an error"

    def wish(self, id: str = "") -> tuple[Wish, dict[str, Any]]:
        """Something to be done, and its options."""
        self.numbers += 1
        now = self.clock.now_ms()
        mortal = self.random.random() < 0.2
        wish = Wish(
            n=self.numbers,
            id=id,
            due=now + self.random.choice((-5, 0, 10, 900, 4000)),
            pool=self.random.choice((None, None, "a", "b")),
            expires=self.random.choice((None, None, None, now + 6_000)),
            mortal=mortal,
        )
        self.promises.wishes[wish.n] = wish
        options = {
            "pool": wish.pool,
            "max_concurrency": 2 if wish.pool == "b" else None,
            "priority": self.random.choice((None, None, 9, -9)),
            "expires_at": wish.expires,
            "timeout_ms": TIMEOUT_MS,
            "retry": Retry(max_retries=1 if mortal else 60, base_ms=500, max_ms=20_000, jitter=0.2),
        }
        if self.pullers:
            options["queue"] = self.random.choice((None, *QUEUES, *QUEUES))
            options["keep_result"] = self.random.choice((None, 7_200))
        return wish, options

    def following(self, levels: int) -> list[Job]:
        """What a `then` may hold."""
        jobs: list[Job] = []
        for _ in range(self.random.choice((0, 1, 1, 2)) if levels else 0):
            wish, options = self.wish()
            options["then"] = self.following(levels - 1)
            jobs.append(
                Job(path="sim:run", args={"n": wish.n}, after=self.random.choice((None, 0.5, 5)), options=options)
            )
        return jobs

    async def wait_for(self, jobs: Scheduler, wish: Wish) -> None:
        """Somebody wants the result."""
        timeout = self.random.choice((None, None, None, 0, 2, 60))
        try:
            result = await jobs.result(wish.id, timeout)
        except JobFailedError as error:
            must, ends = error.details["state"], [how for how, _ in self.disk.pulled.came_to.get(wish.id, [])]
            self.disk.pulled.must(must == "dead" or must in ends, f"{wish.id} is said to be {must}, it is {ends}")
        except NotYetError:
            self.disk.pulled.must(timeout is not None, f"{wish.id} is not awaited for ever")
        except NotFoundError:
            self.disk.pulled.must(wish.mortal or self.promises.steps, f"nothing is known of {wish.id}")
        except UNHEARD:
            self.disk.pulled.must(self.storm, "nothing failed, yet a caller heard an error")
        else:
            ends = [decode(told) for how, told in self.disk.pulled.came_to.get(wish.id, []) if how == "done"]
            self.disk.pulled.must(result in ends, f"{wish.id} is said to have come to {result!r}, it came to {ends}")

    async def schedule(self, jobs: Scheduler, id: str | None = None) -> Wish:
        wish, options = self.wish(id or f"job{self.numbers + 1}")
        if self.pullers and self.random.random() < 0.4:
            options["then"] = self.following(3)
        try:
            await jobs.run_at(wish.due, "sim:run", {"n": wish.n}, id=wish.id, **options)
        except DuplicateScheduleIdError:
            wish.unsure = True
        except UNHEARD:
            assert self.storm, "nothing failed, yet a caller heard an error"
            wish.unsure = True
        else:
            self.note(f"accepted {wish.n}")
            self.promises.accepted(wish)
            if options.get("keep_result") and (wish.mortal or self.random.random() < 0.6):
                self.waiters.append(asyncio.ensure_future(self.wait_for(jobs, wish)))
        return wish

    async def cancel(self, jobs: Scheduler, wish: Wish) -> None:
        wish.mortal = True  # from here on it may be cancelled, though nobody hears of it
        try:
            answer = await jobs.cancel(wish.id)
        except UNHEARD:
            assert self.storm, "nothing failed, yet a caller heard an error"
        else:
            # An attempt that runs already may still arrive; one that does not, never.
            wish.cancelled = answer.cancelled and not answer.was_running
            self.note(f"cancelled {wish.n} {answer.cancelled}")

    async def tally(self, host: ActorHost) -> None:
        tally = host.actor(Tally, "t")
        try:
            self.counted.append(await tally.add())
            if self.random.random() < 0.3:
                try:
                    await tally.add_and_fail()
                except ZeroDivisionError:
                    self.note("failed on purpose")
            cached, stored = await tally.peek()
            assert cached <= stored, "memory is ahead of the store"
        except UNHEARD:
            assert self.storm, "nothing failed, yet a caller heard an error"

    async def check(self) -> None:
        await self.promises.hold(calm=not self.storm)
        self.disk.schedules.hold()
        self.disk.pulled.hold()
        assert len(self.counted) == len(set(self.counted)), "an update was lost"
        stored = self.disk.maps.get(str(COUNTER))
        if not self.storm and stored is not None:
            assert int(stored.get(b"n") or b"0") == len(self.counted), "a failed turn left a trace"


async def end_tasks(spared: Collection[asyncio.Future[Any]] = ()) -> None:
    """Cancel everything but the caller and the spared, and what that brings about, until nothing is left."""
    while others := asyncio.all_tasks() - {asyncio.current_task(), *spared}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)


async def run(random: Random, *, storm: bool) -> list[str]:
    """One whole run; its trace."""
    world = World(random, storm)
    await world.live(random.randint(1, 4) if storm else 1)
    await end_tasks()
    await world.check()
    world.note(f"{sum(world.promises.delivered.values())} delivered of {len(world.promises.wishes)} at {NAME}")
    return world.trace
