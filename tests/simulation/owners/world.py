"""Several processes on one shared store, and all that may happen to them: who owns what, without anything above it.

A run is a function of its seed. At its end the weather is good, and everything must be owned and written again.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from itertools import count
from random import Random

import pytest

from tests.simulation.hosts_loop import HostsLoop
from tests.simulation.owners.process import Process
from tests.simulation.owners.watched import OP, Ledger, WatchedDisk
from tocsin.errors import StoreError
from tocsin.storage.ownership.timing import Timing

NAMES, SLOTS = 12, 24
AGAIN_S = 6.0
"""After a ttl and so long, everything must have an owner again."""
DISASTERS = ("kill", "pause", "cut", "blink", "outage", "drain", "stop", "release", "jump", "roll back")


class World:
    """One run."""

    def __init__(self, loop: HostsLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.ledger = Ledger()
        self.disk = WatchedDisk(self.ledger)
        self.disk.history = random.choice(("", "first"))
        self.timing = Timing.of(random.choice((3.0, 10.0)))
        self.kinds = random.sample(DISASTERS, random.randint(1, 5))
        self._share = random.choice((0.0, 0.0, 0.05, 0.2))
        if random.random() < 0.5:  # what one kind of trouble must not bring about is seen where there is no other
            self.kinds, self._share = [random.choice((*DISASTERS, "stop"))], 0.0
        self.quiet = False
        """Nobody writes at present."""
        self.calm = self.drained = False
        self.names = [f"actor/{n}" for n in range(NAMES)]
        self.processes: list[Process] = []
        self._numbers, self._operations = count(1), count(1)
        self.trace: list[str] = []
        self.disk.note = self.note
        self.disk.may_be_reaped = self.may_be_reaped
        self.disk.least_look_s = self.timing.second_look_s * 0.99
        if self._share or "jump" in self.kinds or "roll back" in self.kinds:
            self.disk.may_be_reaped, self.disk.least_look_s = lambda host: True, 0.0

    def share(self) -> float:
        return 0.0 if self.calm else self._share

    def note(self, what: str) -> None:
        self.trace.append(f"{self.loop.time():.3f} {what}")

    def operation(self, name: str) -> bytes:
        return OP + f"{next(self._operations):06d}".encode()

    def must_not_fail(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            where = "".join(traceback.format_tb(error.__traceback__)[-2:])
            self.ledger.broken.append(f"a task ended: {error!r} {where}")

    # ---- Who is there ------------------------------------------------------------------------------

    def start(self) -> None:
        process = Process(self, next(self._numbers))
        self.processes.append(process)
        self.note(f"{process.name} starts")
        process.begin()

    def running(self) -> list[Process]:
        return [one for one in self.processes if one.alive and not self.loop.is_stopped(one.name)]

    def may_be_reaped(self, host: str) -> bool:
        for one in self.processes:
            if one.engine.host == host:
                recent = self.loop.time() - one.troubled_at < 2 * self.timing.ttl_s
                return not one.alive or one.stopping or recent or self.loop.is_stopped(one.name)
        return True

    def one_is_here(self, name: str) -> None:
        """Nobody but its owner may believe that an actor is its own. (Who lost a session may not know of it yet.)"""
        if not {"blink", "cut", "jump", "outage", "roll back", "release"}.intersection(self.kinds):
            here = [one.name for one in self.running() if one.provider.locate(name).here]
            self.ledger.must(len(here) <= 1, f"{name} is at {here} at once")

    # ---- Disasters ---------------------------------------------------------------------------------

    async def strike(self) -> None:
        there = [one for one in self.running() if not one.stopping]
        kind = self.random.choice(self.kinds)
        if not there:
            return
        victim = self.random.choice(there)
        self.note(f"{kind}: {victim.name}")
        victim.troubled_at = self.loop.time() if kind not in ("outage", "jump", "roll back") else victim.troubled_at
        match kind:
            case "kill":
                self.kill(victim)
                self.loop.call_later(self.random.choice((0.1, 3, 8)), self.start)
            case "stop":
                victim.spawn(victim.stop())
                self.loop.call_later(self.random.choice((0.1, 3, 8)), self.start)
            case "pause":
                self.loop.stop_host(victim.name)
                await asyncio.sleep(self.random.choice((0.05, 1, self.timing.ttl_s, 3 * self.timing.ttl_s)))
                victim.troubled_at = self.loop.time()
                self.loop.continue_host(victim.name)
            case "cut":
                victim.engine.cut(self.random.choice((0.0, 1.0, 60.0)))
                await asyncio.sleep(self.random.choice((0.05, 1, self.timing.ttl_s, 3 * self.timing.ttl_s)))
                victim.troubled_at = self.loop.time()
                victim.engine.mend()
            case "blink":
                victim.engine.lose_session(self.random.choice((0.01, self.timing.second_look_s * 0.9, 1, 20)))
            case "outage":
                self.disk.go_away()
                await asyncio.sleep(self.random.choice((0.05, 1, self.timing.ttl_s, 3 * self.timing.ttl_s)))
                self.disk.come_back()
            case "jump":
                self.disk.clock_ahead_s += self.random.choice((-3600, -5, 5, 3600))
            case "roll back":
                behind = self.disk.copied()
                await asyncio.sleep(self.random.choice((0.1, 0.5, 2)))
                self.disk.roll_back(behind)
                if self.kinds == [kind]:
                    await self.idle_owners_notice()
            case _:
                victim.spawn(self.ask(victim, kind))

    async def idle_owners_notice(self) -> None:
        """Who owns what was rolled back notices although nothing is written: its memory is newer than the store."""
        self.quiet = True
        await asyncio.sleep(self.timing.ttl_s + AGAIN_S)
        for one in self.running():
            for name, found in one.open.items():
                if one.provider.locate(name).here and not found.under_way:
                    stored = self.disk.count(name)
                    self.ledger.must(found.n == stored, f"{one.name} has {name} at {found.n}, in the store is {stored}")
        self.quiet = False

    async def ask(self, victim: Process, kind: str) -> None:
        """What an operator does, by one of the hosts."""
        try:
            if kind == "drain":
                target = self.random.choice(self.processes)
                await victim.provider.drain_host(target.engine.host)
                self.drained = True
            else:
                for _ in range(6):
                    await asyncio.sleep(0.2)
                    names = self.random.sample(self.names, 4)
                    await victim.provider.release_slots(sorted({self.disk.slot_of(name) for name in names}))
        except StoreError as error:
            self.note(f"{kind}: {error!r}")

    def kill(self, victim: Process) -> None:
        victim.alive = False
        self.loop.stop_host(victim.name)
        victim.engine.die()

    # ---- A run -------------------------------------------------------------------------------------

    async def live(self) -> None:
        for _ in range(self.random.choice((2, 3, 3, 4))):
            self.start()
            await asyncio.sleep(self.random.choice((0, 0.1, 5)))
        for _ in range(self.random.randint(2, 6)):
            await asyncio.sleep(self.random.choice((0.05, 1, 5, 15)))
            await self.strike()
        await asyncio.sleep(10)
        self.calm = True
        self.note("calm")
        if self.drained or not [one for one in self.running() if not one.stopping]:
            self.start()  # those who drain take nothing any more
        await asyncio.sleep(self.timing.ttl_s + AGAIN_S)
        await self.all_is_well()

    async def all_is_well(self) -> None:
        there = self.running()
        for one in there:
            lost_at = one.engine.session_lost_at
            self.note(f"{one.name} is {one.provider.owner[:6]}, stopping: {one.stopping}, session lost: {lost_at}")
        for name in self.names:
            here = [one.name for one in there if one.provider.locate(name).here]
            row = self.disk.state.slots[self.disk.slot_of(name)]
            self.ledger.must(len(here) == 1, f"in good weather {name} is at {here}, by the store {row}")
        before = {name: self.disk.count(name) for name in self.names}
        await asyncio.sleep(25)  # writers choose among the names: in half of this, one in 10,000 is not chosen
        for name, n in before.items():
            self.ledger.must(self.disk.count(name) > n, f"in good weather nobody writes to {name}")
        in_store = self.disk.operations(self.names)
        missing = self.ledger.acknowledged.keys() - in_store - self.ledger.lost
        self.ledger.must(not missing, f"acknowledged and gone: {sorted(missing)[:5]}")
        for op in sorted(self.ledger.refused.keys() & in_store)[:5]:
            self.ledger.broken.append(f"{op!r} is in the store, and was refused: {self.ledger.refused[op]}")
        self.roll_backs_are_loud()
        if self.kinds == ["stop"] and not self._share:  # hosts come and go, and nothing else happens
            refused = [why for why in self.ledger.refused.values() if not why.startswith("StoreClosed")]  # opened anew
            self.ledger.must(not refused, f"refused in a hand-over: {refused}")

    def roll_backs_are_loud(self) -> None:
        undone = self.ledger.lost & self.ledger.acknowledged.keys()
        counts = [one.provider.counts for one in self.processes]
        heard = sum(one.rolled_back + one.fenced + one.lost + one.died for one in counts)
        stayed = all(one.alive for one in self.processes)
        self.ledger.must(heard or not stayed or not undone, f"{len(undone)} operations were lost, and nobody said so")

    async def end(self) -> None:
        for one in self.processes:
            one.engine.bury()
            self.loop.continue_host(one.name)


def few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give stores few slots: what a run does with each of them it does with all."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tocsin.storage.") and hasattr(module, "SLOTS"):
            monkeypatch.setattr(module, "SLOTS", SLOTS)


async def run(loop: HostsLoop, random: Random) -> list[str]:
    world = World(loop, random)
    world.note(f"ttl {world.timing.ttl_s} share {world._share} {world.kinds}")
    try:
        await world.live()
    finally:
        await world.end()
    assert world.ledger.broken == [], (world.ledger.broken[:5], world.trace)
    world.note(f"{len(world.ledger.acknowledged)} acknowledged, {len(world.ledger.refused)} refused")
    return world.trace
