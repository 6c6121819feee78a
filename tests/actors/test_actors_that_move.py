"""Actors that go from host to host of a shared store: each has one host at a time, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

import pytest

from tests.actors.counter import Counter, call
from tocsin.actors.runtime.events import Call
from tocsin.actors.runtime.going import TURN_S
from tocsin.actors.runtime.host import Host, Kind
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.testing.clock import VirtualClock
from tocsin.actors.testing.loop import simulate
from tocsin.errors import ActorBrokenError, StoreError, StoreLocked, TocsinError
from tocsin.storage.api import StoreProvider
from tocsin.storage.disk_connection import Faults
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.engine import slot_of
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.shared_disk import SharedDisk

T = TypeVar("T")
TIMING = Timing(ttl_s=3.0, beat_s=1.0, margin_s=0.5, leave_s=1.5, step=4096)
MANY = [ActorId("Counter", str(n)) for n in range(12)]


class Hosts:
    """Two hosts of one store; the second one starts when a test says so."""

    def __init__(self, random: Random) -> None:
        self.disk, self.random, self.clock = SharedDisk(), random, VirtualClock(look_again_s=0.2)
        self.engines: list[DiskEngine] = []
        self.open: list[Host] = []

    async def join(self) -> Host:
        self.engines.append(DiskEngine(self.disk, Faults(self.random, latencies_s=(0.002,), notice_s=(0.0,))))
        shared = OwnedProvider(self.engines[-1], timing=TIMING, random=self.random, durable=False)
        provider: StoreProvider = shared
        host = Host(provider, {"Counter": Kind(Counter)}, clock=self.clock, random=self.random)
        await host.start()
        self.open.append(host)
        return host


@asynccontextmanager
async def _hosts(random: Random) -> AsyncIterator[Hosts]:
    hosts = Hosts(random)
    try:
        yield hosts
    finally:
        for host in hosts.open:
            await host.stop()


def among_hosts(main: Callable[[Hosts], Coroutine[object, object, T]]) -> T:
    async def whole(random: Random) -> T:
        async with _hosts(random) as hosts:
            return await main(hosts)

    return simulate(7, whole)


def provider_of(host: Host) -> OwnedProvider:
    assert isinstance(host.provider, OwnedProvider)
    return host.provider


def has(host: Host, actor: ActorId) -> bool:
    return provider_of(host).locate(str(actor)).here


async def moved(to: Host) -> list[ActorId]:
    """Wait until these actors have found their places; return which are there."""
    await asyncio.sleep(1.0)
    return [actor for actor in MANY if has(to, actor)]


async def error_of(answer: asyncio.Future[object]) -> BaseException:
    try:
        async with asyncio.timeout(60):
            await answer
    except TocsinError as error:
        return error
    raise AssertionError("it was answered")


def test_an_actor_of_another_host_is_refused_at_once_and_served_there() -> None:
    async def main(hosts: Hosts) -> None:
        one = await hosts.join()
        for actor in MANY:
            assert await call(one, actor, "add", 1) == 1
        two = await hosts.join()
        gone = await moved(two)
        assert 0 < len(gone) < len(MANY)

        for actor in MANY:
            here, there = (two, one) if actor in gone else (one, two)
            with pytest.raises(StoreLocked):
                await call(there, actor, "add", 1)
            with pytest.raises(StoreLocked):
                await call(there, actor, "add", 1, create=False)
            assert await call(here, actor, "add", 1) == 2

    among_hosts(main)


def test_what_runs_ends_here_and_what_waits_is_told_to_go_there() -> None:
    async def main(hosts: Hosts) -> None:
        one = await hosts.join()
        door = asyncio.Event()
        running = {actor: one.call(actor, Call("put_around", (door,))) for actor in MANY}
        await asyncio.sleep(0.1)
        waiting = {actor: one.call(actor, Call("add", (1,))) for actor in MANY}
        two = await hosts.join()
        await asyncio.sleep(0.3)
        leaving = [actor for actor in MANY if not has(one, actor)]
        assert leaving
        assert not any(has(two, actor) for actor in leaving)  # until those turns have ended
        for actor in leaving:
            assert isinstance(await error_of(waiting[actor]), StoreLocked)
        door.set()

        for actor in MANY:
            await running[actor]
        await asyncio.sleep(0.3)
        for actor in leaving:
            assert await call(two, actor, "rows", b"before", b"behind") == (
                [b"before", b"behind"],
                [b"before", b"behind"],
            )
            assert await call(two, actor, "value") == 0

    among_hosts(main)


def test_a_turn_that_takes_long_holds_nobody_up_and_leaves_nothing() -> None:
    async def main(hosts: Hosts) -> None:
        one = await hosts.join()
        door = asyncio.Event()
        endless = {actor: one.call(actor, Call("put_around", (door,))) for actor in MANY}
        await asyncio.sleep(0.1)
        two = await hosts.join()
        await asyncio.sleep(TURN_S + 0.3)
        gone = [actor for actor in MANY if has(two, actor)]
        assert gone
        assert provider_of(one).counts.lost == 0, "they were handed over in time"
        for actor in gone:
            assert await call(two, actor, "rows", b"before", b"behind") == ([], [])
        door.set()
        for actor in MANY:
            if actor in gone:
                assert isinstance(await error_of(endless[actor]), StoreLocked)
            else:
                await endless[actor]

    among_hosts(main)


def test_a_handler_outside_of_its_turn_is_not_waited_for() -> None:
    async def main(hosts: Hosts) -> None:
        one = await hosts.join()
        outside = {actor: one.call(actor, Call("add_outside", (1,))) for actor in MANY}
        await asyncio.sleep(0.1)
        two = await hosts.join()
        gone = await moved(two)
        for actor in MANY:
            if actor not in gone:
                await call(one, actor, "open_door")
                assert await outside[actor] == 2
        for actor in gone:
            assert await call(two, actor, "add", 5) == 6
            outside[actor].cancel()

    among_hosts(main)


def test_alarms_go_with_their_actors_and_ring_once() -> None:
    async def main(hosts: Hosts) -> None:
        one = await hosts.join()
        due = hosts.clock.now_ms() + 5_000
        for actor in MANY:
            await call(one, actor, "ring_at", due)
        two = await hosts.join()
        gone = await moved(two)
        assert {str(actor) for actor in two.alarms.due} == {str(actor) for actor in gone}
        assert len(one.alarms.due) == len(MANY) - len(gone)
        await asyncio.sleep(6.0)

        for actor in MANY:
            assert await call(two if actor in gone else one, actor, "rung") == 1

    among_hosts(main)


def test_a_commit_that_is_in_the_store_is_answered_although_the_actor_is_gone() -> None:
    async def main(hosts: Hosts) -> None:
        one, two = await hosts.join(), await hosts.join()
        await asyncio.sleep(1.0)
        actor = next(each for each in MANY if has(one, each))
        heard: list[int] = []
        await call(one, actor, "add", 1)
        # The answer to the commit comes after this host has heard that it was declared dead.
        hosts.engines[0].faults.latencies_s = (0.3,)
        answer = one.call(actor, Call("tell_after", (heard, 1)))
        while hosts.disk.state.rows.maps[str(actor)].get(b"n") != b"2":  # noqa: ASYNC110 - no disk tells
            await asyncio.sleep(0.01)
        assert not answer.done()
        hosts.disk.state.leases[provider_of(one).owner].until_s = 0.0
        assert hosts.disk.reap()
        provider_of(one)._died(provider_of(one).owner)
        await answer

        assert heard == [-2]  # what was to follow is the new owner's
        await asyncio.sleep(6.0)  # on a store that takes so long for each statement
        hosts.engines[0].faults.latencies_s = (0.0,)
        there = two if has(two, actor) else one
        assert await call(there, actor, "value") == 2

    among_hosts(main)


def test_a_commit_that_was_fenced_is_refused_and_leaves_nothing() -> None:
    async def main(hosts: Hosts) -> None:
        one = await hosts.join()
        actor, other = MANY[0], MANY[1]
        await call(one, actor, "add", 1)
        await call(one, other, "add", 1)
        hosts.disk.release([slot_of(str(actor))], provider_of(one).owner)  # as an operator does
        heard: list[int] = []
        refused = one.call(actor, Call("tell_after", (heard, 1)))
        good = one.call(other, Call("add", (1,)))
        error = await error_of(refused)

        assert isinstance(error, StoreError) and error.owner_lost
        assert await good == 2
        await asyncio.sleep(1.0)
        assert heard == [-2]
        assert await call(one, actor, "add", 1) == 2

    among_hosts(main)


def test_nothing_rings_or_is_answered_from_memory_while_the_store_is_away_and_all_goes_on_after() -> None:
    async def main(hosts: Hosts) -> None:
        one, two = await hosts.join(), await hosts.join()
        await asyncio.sleep(1.0)
        placed = {actor: one if has(one, actor) else two for actor in MANY}
        for actor, host in placed.items():
            await call(host, actor, "add", 1)
            await call(host, actor, "ring_at", hosts.clock.now_ms() + 6_000)
        hosts.disk.go_away()
        await asyncio.sleep(5.0)
        for actor, host in placed.items():
            with pytest.raises(StoreLocked):
                await call(host, actor, "value")
        await asyncio.sleep(5.0)  # the alarms are due meanwhile
        assert not one.alarms.failing and not two.alarms.failing
        hosts.disk.come_back()
        await asyncio.sleep(1.5)

        for actor, host in placed.items():
            assert await call(host, actor, "memory") == [1]  # what was in memory is still true
            assert await call(host, actor, "rung") == 1
        assert not provider_of(one).counts.died + provider_of(two).counts.died

    among_hosts(main)


def test_a_turn_that_is_under_way_when_its_actor_is_lost_writes_nothing() -> None:
    async def main(hosts: Hosts) -> None:
        one = await hosts.join()
        door = asyncio.Event()
        actor = MANY[0]
        running = one.call(actor, Call("put_around", (door,)))
        outside = one.call(MANY[1], Call("add_outside", (1,)))
        await asyncio.sleep(0.1)
        provider_of(one)._died(provider_of(one).owner)
        await asyncio.sleep(0.1)
        door.set()

        assert isinstance(await error_of(running), StoreLocked)
        assert str(actor) not in hosts.disk.state.rows.maps or not hosts.disk.state.rows.maps[str(actor)].get(b"before")
        active = one.active(MANY[1])
        assert active is None
        outside.cancel()

    among_hosts(main)


def test_a_handler_that_comes_back_to_an_actor_that_is_gone_is_told() -> None:
    async def main(hosts: Hosts) -> None:
        one = await hosts.join()
        actor = MANY[0]
        await call(one, actor, "value")
        counter = one.active(actor)
        assert counter is not None and isinstance(counter.actor, Counter)
        door, inside = counter.actor.door, counter.actor.inside
        outside = one.call(actor, Call("add_outside", (1,)))
        await inside.wait()
        provider_of(one)._died(provider_of(one).owner)
        await asyncio.sleep(0.1)
        door.set()

        assert isinstance(await error_of(outside), ActorBrokenError)

    among_hosts(main)
