"""A cluster in virtual time: the users, the receiver and the promises of one host, and several hosts of one store.

Each call of a user goes to any host. Hosts are killed, stopped, held up and cut off, and others join.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from itertools import count
from random import Random
from typing import Any, TypeVar

from tests.simulation.cluster.links import Links
from tests.simulation.cluster.machine import Balancer, Machine, network_of
from tests.simulation.hosts_loop import HostsLoop
from tests.simulation.instance import UNHEARD
from tests.simulation.tally import Tally
from tests.simulation.world import SECRET, World, end_tasks
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.model.rows import JobRow, job_key
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.shared_disk import SharedDisk

T = TypeVar("T")
DISASTERS = ("kill", "stop", "pause", "cut", "part", "blink", "outage", "drain")
SLACK_MS = 150
AGAIN_S = 8.0


class ClusterWorld(World):
    """One run."""

    def __init__(self, loop: HostsLoop, random: Random) -> None:
        self.loop = loop
        super().__init__(random, True)
        self.shared = SharedDisk(self.disk)
        self.links = Links(loop, random)
        self.timing = Timing.of(random.choice((3.0, 10.0)))
        self.machines: list[Machine] = []
        self.numbered = count(1)
        self.kinds = random.sample(DISASTERS, random.randint(1, 5))
        self.skewed = random.random() < 0.5
        self.weather.fault = random.choice((0.0, 0.02, 0.1))
        self.traveller = self.disk.traveller = None
        for instance in self.instances.values():
            instance.crowds = instance.claims_are_watched = False
            promises = instance.promises
            promises.steps, promises.late, promises.slack_ms, promises.crashes = False, True, SLACK_MS, 1
            instance.disk.pulled.late = True

    def apart(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        return self.loop.create_task(work, context=Context())

    def skew_ms(self) -> int:
        """How far a host's own clock is off; all of them go by the store's."""
        return self.random.choice((-60_000, -700, 0, 700, 60_000)) if self.skewed else 0

    def host_on(self, machine: Machine) -> ActorHost:
        return ActorHost.open(
            machine.provider,
            origin="https://receiver.example",
            secrets=[SECRET],
            transport=network_of(self),
            clock=machine.clock,
            random=Random(self.random.getrandbits(32)),
            peer_address=self.links.of(machine.name),
            dispatch=machine.dispatches,
            actors=[Tally],
            occurrences_kept=100_000,
            lanes=self.random.choice((1, 2, 8)),
            max_in_flight=self.random.choice((1, 4, 16)),
            idle_after_s=self.random.choice((0.1, 5.0, 60.0)),
            drain_s=self.random.choice((1.0, 10.0)),
        )

    # ---- Disasters ---------------------------------------------------------------------------------

    def start(self) -> Machine:
        machine = Machine(self, next(self.numbered))
        self.machines.append(machine)
        self.note(f"{machine.name} starts")
        machine.spawn(machine.begin())
        return machine

    def serving(self) -> list[Machine]:
        return [one for one in self.machines if one.serves and not self.loop.is_stopped(one.name)]

    def some_s(self) -> float:
        ttl_s = self.timing.ttl_s
        return self.random.choice((0.05, 1.0, ttl_s * 0.9, ttl_s * 2))

    async def trouble(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            await asyncio.sleep(self.random.choice((0.05, 0.5, 3, 10)))
            if there := self.serving():
                await self.strike(self.random.choice(self.kinds), self.random.choice(there))

    async def strike(self, kind: str, victim: Machine) -> None:
        self.note(f"{kind}: {victim.name}")
        match kind:
            case "kill":
                victim.kill()
                self.loop.call_later(self.random.choice((0.1, 3, 8)), self.start, context=Context())
            case "stop":
                victim.spawn(victim.stop())
                self.loop.call_later(self.random.choice((0.1, 3, 8)), self.start, context=Context())
            case "pause":
                self.loop.stop_host(victim.name)
                await asyncio.sleep(self.some_s())
                self.loop.continue_host(victim.name)
            case "cut":
                victim.engine.cut(self.random.choice((0.0, 1.0, 60.0)))
                await asyncio.sleep(self.some_s())
                victim.engine.mend()
            case "part":
                other = self.random.choice(self.machines).name
                self.links.cuts.add(frozenset((victim.name, other)))
                await asyncio.sleep(self.some_s())
                self.links.mend(victim.name, other)
            case "blink":
                victim.engine.lose_session(self.some_s())
            case "outage":
                self.shared.go_away()
                await asyncio.sleep(self.some_s())
                self.shared.come_back()
            case _:
                self.shared.drain(self.random.choice(self.machines).engine.host)
                self.start()

    async def is_read(self, instance: str, id: str) -> None:
        """A job that somebody was told of is there for all who ask, at any host."""
        disk = self.disk.watched[instance]
        before = disk.row(JobRow, job_key(id))
        if before is None or not (there := self.serving()):
            return
        machine = self.random.choice(there)
        try:
            found = await machine.ask(lambda host: host.ports(instance).reads.get(id))
        except UNHEARD:
            return
        after = disk.row(JobRow, job_key(id))
        if found is None and after is not None and after.incarnation == before.incarnation:
            self.record.broken.append(f"{machine.name} does not know of {id} of {instance}, which was accepted")

    # ---- A run -------------------------------------------------------------------------------------

    async def live(self, lives: int = 1) -> None:
        for _ in range(self.random.choice((2, 3, 3))):
            machine = self.start()
        await machine.ready.wait()
        self.current = balancer = Balancer(self)
        users = [
            user
            for instance in self.instances.values()
            for user in instance.begin(balancer, first=True, quiet=False)  # type: ignore[arg-type]
        ]
        trouble = self.apart(self.trouble())
        await asyncio.gather(*users, trouble)
        self.note("calm")
        self.weather.fault = 0.0
        while len([one for one in self.serving() if one.dispatches]) < 2:
            await self.start().ready.wait()
        await asyncio.sleep(self.timing.ttl_s + AGAIN_S)
        self.all_are_owned()
        await self.end_well(balancer, [], None)  # type: ignore[arg-type]

    def all_are_owned(self) -> None:
        for name in self.disk.maps:
            here = [one.name for one in self.serving() if one.provider.locate(name).here]
            assert len(here) == 1, f"in good weather {name} is at {here}"
            owner = next(one for one in self.serving() if one.name == here[0])
            assert owner.dispatches, f"{owner.name} starts nothing, and has {name} beside others"

    async def bury(self) -> None:
        for one in self.machines:
            one.engine.bury()
            self.loop.continue_host(one.name)
        await end_tasks()


async def run(loop: HostsLoop, random: Random) -> list[str]:
    """One whole run; its trace."""
    world = ClusterWorld(loop, random)
    world.note(f"ttl {world.timing.ttl_s} {world.kinds} skewed: {world.skewed}")
    try:
        await world.live()
        await world.bury()
        await world.check()
    except AssertionError as error:
        raise AssertionError(f"{error}", world.trace[-60:]) from error
    finally:
        await world.bury()
    return world.trace
