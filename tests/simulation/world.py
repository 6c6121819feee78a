"""A whole host in virtual time: users, a network, a store, crashes; the promises are checked on the way.

A run is a function of its seed. `storm` runs have faults, crashes and clock steps; `calm` ones have none. The host has
some schedulers, whose users choose the same ids and names, and all of them send to one receiver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from tests.simulation import traveller
from tests.simulation.backlog import until_worked_off
from tests.simulation.instance import CALM_S, UNHEARD, Instance
from tests.simulation.origin import Memory, Origin, WatchedNetwork
from tests.simulation.record import Record, RecordedDisk
from tests.simulation.schedules import WatchedDisk
from tests.simulation.sequel import Sequel
from tests.simulation.tally import COUNTER, Tally
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.testing import VirtualClock, Weather, crash
from tocsin.dispatch.signing import Signer
from tocsin.storage.testing import FaultyProvider

T = TypeVar("T")
SECRET = "whsec_" + "c2ltdWxhdGVkIHNlY3JldCBvZiAzMiBieXRlcw=="
NAMES = ("sim", "twin", "third")
USERS = 4
"""Of all instances."""
FAR_MS = 4_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@dataclass
class World:
    """One run."""

    random: Random
    storm: bool
    clock: VirtualClock = field(default_factory=VirtualClock)
    record: Record = field(default_factory=Record)
    counted: list[int] = field(default_factory=list)
    asked: int = 0
    """How often somebody asked to count."""
    trace: list[str] = field(default_factory=list)
    numbers: int = 0
    """Of wishes, over all instances."""
    receiving: set[asyncio.Future[Any]] = field(default_factory=set)
    completed: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    """How tasks ended that were to go on."""
    wrong_ms: int = 0
    """How far the planners have moved the clock."""
    down: bool = False
    over: bool = False
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    """Who waits for results, in this life of the host."""
    backup: RecordedDisk | None = None
    """Of some instant of the run."""

    def __post_init__(self) -> None:
        self.weather = Weather(0.1 if self.storm else 0.0)
        self.signer = Signer([SECRET])
        steps = self.storm and self.random.random() < 0.25
        self.far = self.random.random() < 0.5
        """If the clock steps, it may be by a day."""
        names = NAMES[: self.random.choice((1, 2, 2, 3))]
        self.disk = WatchedDisk(self.record, names)
        self.instances = {name: Instance(self, name, self.disk.watched[name]) for name in names}
        everybody = list(self.instances.values())
        for n in range(USERS):
            everybody[n % len(everybody)].users += 1
        for _ in range(self.random.choice((0, 1, 2))):
            self.random.choice(everybody).planners += 1
        for _ in range(self.random.choice((0, 0, 1, 2, 4))):
            self.random.choice(everybody).pullers += 1
        for instance in everybody:
            instance.promises.steps = steps
        # A clock that goes back makes what it sends look older than what was sent before: the kit declines that.
        remembers = not steps and self.random.random() < 0.6
        self.memory = Memory(self.clock.now_ms) if remembers else None
        self.origin = Origin(self, self.record, self.memory)
        self.traveller = self.disk.traveller = traveller.of_world(self)

    def instance_of(self, content: Mapping[str, Any]) -> Instance:
        return self.instances[content["instanceName"]]

    def note(self, what: str) -> None:
        self.trace.append(f"{self.clock.now_ms()} {what}")

    # ---- The weather -----------------------------------------------------------------------------

    @property
    def storm_now(self) -> bool:
        return self.weather.fault > 0

    def stall(self, seconds: float) -> None:
        """Everything stands still for so long; the clocks go on."""
        asyncio.get_running_loop()._time += seconds  # type: ignore[attr-defined]

    def step(self, ms: int) -> None:
        self.clock.step(ms)

    def clock_goes_wrong(self) -> None:
        """By hours or days; or it is set right again."""
        far = self.random.choice((DAY_MS, 2 * DAY_MS)) if self.far else HOUR_MS
        wrong = self.random.choice((-far, far, -HOUR_MS, HOUR_MS))
        ms = -self.wrong_ms if self.wrong_ms and self.random.random() < 0.6 else wrong
        self.wrong_ms += ms
        self.step(ms)

    # ---- A life of the host ----------------------------------------------------------------------

    def host(self) -> ActorHost:
        provider = FaultyProvider(self.disk, self.random, fault=self.weather.now)
        network = WatchedNetwork(self)
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
        if self.memory is not None:
            self.spare(self.back_up())
        for life in range(lives):
            last = life == lives - 1
            host = self.host()
            await host.__aenter__()
            self.current = host
            self.note(f"life {life}")
            quiet = last and self.random.random() < 0.5  # nobody comes: alarms alone must finish the work
            users = [
                user
                for instance in self.instances.values()
                for user in instance.begin(host, first=life == 0, quiet=quiet)
            ]
            travels = None if self.traveller is None else asyncio.ensure_future(self.traveller.live())
            if last:
                await self.end_well(host, users, travels)
            else:
                await asyncio.sleep(self.random.choice((0.05, 0.5, 2, 6, 30)))
                await self.crash(host)

    current: Any = None
    """The host that lives just now."""

    async def back_up(self) -> None:
        await asyncio.sleep(self.random.choice((0.3, 2, 10, 60)))
        self.backup = self.disk.copied()

    async def crash(self, host: ActorHost) -> None:
        for instance in self.instances.values():
            instance.crashed()
        self.note("crash")
        await crash(host)
        await end_tasks(self.receiving)
        self.waiters = []
        for instance in self.instances.values():
            await instance.promises.rows_are_sound()
        if self.traveller is not None:
            await self.traveller.rows_are_sound(self.disk)

    async def end_well(
        self, host: ActorHost, users: Sequence[asyncio.Future[None]], travels: asyncio.Future[None] | None
    ) -> None:
        everybody = list(self.instances.values())
        await asyncio.gather(*users)
        await asyncio.sleep(20)
        self.weather.fault, self.down = 0.0, False
        for instance in everybody:
            await instance.calm_down()
        if any(instance.planners for instance in everybody):
            await asyncio.sleep(CALM_S)
            for instance in everybody:
                await instance.retire()
        dues = [wish.due for instance in everybody for wish in instance.promises.wishes.values()]
        last = max([*dues, *self.instants_ahead()], default=0)
        left = max(last - self.clock.now_ms(), 0)
        if left > FAR_MS:  # a clock that was ahead has left it behind; nobody wants to sleep through that
            self.clock.step(left)
            left = 0
        await asyncio.sleep(left / 1000)
        await until_worked_off(self.instants_ahead)
        if travels is not None:
            await travels
        assert all(one.done() for one in self.waiters), "somebody waits for the end of a job, and all have ended"
        self.over = True
        await host.stop()

    def instants_ahead(self) -> list[int]:
        return [ms for instance in self.instances.values() for ms in instance.promises.instants_ahead()]

    def apart(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Begin what does not belong to the one who asks."""
        return asyncio.ensure_future(work)

    def spare(self, work: Coroutine[Any, Any, None] | asyncio.Future[Any]) -> None:
        """Another process: it goes on when the host is gone."""
        task = self.apart(work) if isinstance(work, Coroutine) else work
        self.receiving.add(task)
        task.add_done_callback(self.receiving.discard)
        task.add_done_callback(self.must_not_fail)

    def must_not_fail(self, task: asyncio.Future[Any]) -> None:
        """Nobody waits for it: what ends it would go unseen."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed.append(repr(error))

    # ---- A user's actor, and the end -------------------------------------------------------------

    async def tally(self, host: ActorHost) -> None:
        tally = host.actor(Tally, "t")
        try:
            self.asked += 1
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
        if self.traveller is not None:
            await self.traveller.rows_are_sound(self.disk)
            self.traveller.check()
        for instance in self.instances.values():
            await instance.promises.hold(calm=not self.storm)
            instance.disk.schedules.hold()
            instance.disk.pulled.hold()
            instance.disk.acts.hold()
        assert self.record.broken == [], self.record.broken[:3]
        assert self.failed == [], self.failed[:3]
        assert len(self.counted) == len(set(self.counted)), "an update was lost"
        stored = self.disk.maps.get(str(COUNTER))
        if stored is not None:
            assert int(stored.get(b"n") or b"0") <= self.asked, "what was asked once was done twice"
        if not self.storm and stored is not None:
            assert int(stored.get(b"n") or b"0") == len(self.counted), "a failed turn left a trace"

    async def go_on(self) -> None:
        """Behind the end: the store is lost, and what comes after it meets a receiver that remembers."""
        if self.memory is None or self.traveller is not None or self.random.random() < 0.5:
            return
        restored = self.backup is not None and self.random.random() < 0.6
        disk = self.backup if restored and self.backup is not None else RecordedDisk(self.record)
        self.note(f"the store is {'restored' if restored else 'made anew'}")
        sequel = Sequel(disk, self.memory, list(self.instances), self.clock, self.random, SECRET)
        self.numbers = await sequel.run(self.numbers)
        assert self.record.broken == [], self.record.broken[:3]


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
    await world.go_on()
    promises = [instance.promises for instance in world.instances.values()]
    delivered, wished = sum(sum(one.delivered.values()) for one in promises), sum(len(one.wishes) for one in promises)
    world.note(f"{delivered} delivered of {wished} in {', '.join(world.instances)}")
    return world.trace
