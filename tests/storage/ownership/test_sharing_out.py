"""Hosts that come and go share the slots of a store out among them."""

from __future__ import annotations

import asyncio
from functools import partial
from math import ceil

import pytest

from tests.storage.ownership.members import World, in_world, names, until
from tocsin.errors import StoreLocked
from tocsin.storage.api import Owned
from tocsin.storage.ownership.engine import SLOTS, slot_of
from tocsin.storage.ownership.ring import Ring


def test_a_host_knows_who_belongs_to_its_store() -> None:
    async def main(world: World) -> None:
        one, two = await world.join(), await world.join()
        await until(lambda: world.shared_out(one, two))
        gone = two.provider.owner

        assert one.provider.is_host(gone) and one.provider.is_host(one.provider.owner)
        assert not one.provider.is_host("0" * 32)
        await world.kill(two)
        await until(lambda: not one.provider.is_host(gone))

    in_world(main)


def test_one_host_takes_all_serves_and_leaves_nothing_owned() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        assert one.slots == set(range(SLOTS))
        assert one.provider.locate("a:1").here
        for name in names(20):
            await one.write(name, b"v")
        await world.stop(one)

        assert world.owners() == {None: SLOTS}
        assert not world.disk.state.leases
        assert not one.provider.locate("a:1").here

    in_world(main)


def test_a_host_that_joins_is_handed_its_share_in_steps() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        two = await world.join()
        took = await until(lambda: world.shared_out(one, two))

        assert took < 3.0
        assert 1800 < len(two.slots) < 2300
        assert len(one.leaving) == ceil(len(two.slots) / one.provider.timing.step)

    in_world(main)


def test_an_actor_that_is_handed_over_is_nowhere_for_a_moment_only() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        for name in names(40):
            await one.write(name, b"1")
        gaps: dict[str, float] = {}
        loop = asyncio.get_running_loop()

        async def watch(name: str) -> None:
            gone: float | None = None
            while True:
                if any(member.has(name) for member in world.members):
                    if gone is not None:
                        gaps[name] = max(gaps.get(name, 0.0), loop.time() - gone)
                        gone = None
                elif gone is None:
                    gone = loop.time()
                await asyncio.sleep(0.001)

        watching = [asyncio.create_task(watch(name)) for name in names(40)]
        two = await world.join()
        await until(lambda: world.shared_out(one, two))
        await asyncio.sleep(0.1)
        await world.stop(one)
        await until(lambda: world.shared_out(two))
        await asyncio.sleep(0.1)
        for task in watching:
            task.cancel()

        assert len(gaps) == 40
        assert max(gaps.values()) < 0.2
        for name in names(40):
            await two.write(name, b"2")

    in_world(main)


def test_hosts_that_start_at_once_share_out_and_each_slot_has_one() -> None:
    async def main(world: World) -> None:
        members = await asyncio.gather(*(world.join() for _ in range(3)))
        await until(lambda: world.shared_out(*members))

        assert sum(len(member.slots) for member in members) == SLOTS
        assert all(1100 < len(member.slots) < 1650 for member in members)

    in_world(main)


def test_a_host_of_weight_0_owns_nothing_and_one_of_weight_3_three_times_as_much() -> None:
    async def main(world: World) -> None:
        idle = await world.join(weight=0)
        light = await world.join(weight=1)
        heavy = await world.join(weight=3)
        await until(lambda: world.shared_out(light, heavy))

        assert not idle.slots
        assert 2.4 < len(heavy.slots) / len(light.slots) < 3.7
        found = idle.provider.locate("a:1")
        assert await idle.provider.relocated("a:1", found, 0.0) == found
        with pytest.raises(StoreLocked):
            await idle.provider.open("a:1")

    in_world(main)


def test_a_host_that_joins_while_another_one_drains_gets_what_that_one_had() -> None:
    async def main(world: World) -> None:
        one, two = await world.join(), await world.join()
        await until(lambda: world.shared_out(one, two))
        going = asyncio.create_task(world.stop(two))
        three = await world.join()
        await going
        await until(lambda: world.shared_out(one, three))

        assert 1800 < len(three.slots) < 2300

    in_world(main)


def test_a_host_that_was_drained_owns_nothing_and_goes_on_reading() -> None:
    async def main(world: World) -> None:
        one, two = await world.join(), await world.join()
        await until(lambda: world.shared_out(one, two))
        assert await one.provider.drain_host(two.provider.owner)
        took = await until(lambda: world.shared_out(one))

        assert took < 2.0
        assert not await one.provider.drain_host(two.provider.owner)
        assert not await one.provider.drain_host("0" * 32)
        await one.write("a:7", b"7")
        assert await two.provider.view("a:7").get([b"k"]) == {b"k": b"7"}
        await until(lambda: two.provider.locate("a:7").host == one.provider.owner)

    in_world(main)


def test_whoever_hands_over_returns_when_all_is_gone() -> None:
    async def main(world: World) -> None:
        one, two = await world.join(), await world.join()
        await until(lambda: world.shared_out(one, two))
        began = asyncio.get_running_loop().time()
        await two.provider.hand_over()

        assert not two.slots
        assert asyncio.get_running_loop().time() - began < 0.2
        await until(lambda: world.shared_out(one), 0.2)

    in_world(main)


def test_nobody_has_a_slot_for_no_longer_than_its_hand_over_takes_statements() -> None:
    """Each statement takes 0.1 s here, as on a busy machine. What is let go of waits for its release, the hint, a look
    at who is there, and its taking; what else there is to read of the store comes before or after."""

    async def main(world: World) -> None:
        one, two = await world.join(), await world.join()
        await until(lambda: world.shared_out(one, two))
        for phase in range(10):  # of the looks, which come by themselves every 0.5 s
            for member in (one, two):
                member.engine.faults.latencies_s = (0.1,)
            await asyncio.sleep(0.05 * phase)
            handing = asyncio.create_task(two.provider.hand_over())
            await until(partial(world.leaving, two), 2.0)
            gap = await until(lambda: world.shared_out(one), 2.0)
            await handing

            assert gap < 0.8, f"phase {phase}"
            await world.stop(two)
            for member in world.members:
                member.engine.faults.latencies_s = (0.001,)
            two = await world.join()
            await until(partial(world.shared_out, one, two))

    in_world(main)


def test_slots_whose_actors_do_not_let_go_are_handed_over_all_the_same() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        one.lets_go = False
        two = await world.join()
        await until(lambda: len(two.slots) == one.provider.timing.step)

        assert one.lost()
        assert one.provider.counts.lost == one.provider.timing.step
        one.lets_go = True

    in_world(main)


def test_the_actors_of_slots_that_come_are_told_with_their_wake_times() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        for name in names(30):
            await one.write(name, b"", wake_at=5)
        await one.write("a:never", b"")
        two = await world.join()
        await until(lambda: world.shared_out(one, two))
        await asyncio.sleep(0.2)

        assert two.owned() == {name: 5 for name in names(30) if slot_of(name) in two.slots}
        assert isinstance(one.news[0], Owned)

    in_world(main)


def test_everyone_computes_the_same_ring_and_few_slots_move() -> None:
    three = Ring({"one": 1, "two": 1, "three": 1})
    assert three.winners == Ring({"three": 1, "one": 1, "two": 1}).winners
    four = Ring({"one": 1, "two": 1, "three": 1, "four": 1})

    moved = [slot for slot in range(SLOTS) if three.winners[slot] != four.winners[slot]]
    assert {four.winners[slot] for slot in moved} == {"four"}
    assert 900 < len(moved) < 1150
    assert Ring({"one": 0, "two": 0}).winners == Ring({"one": 1, "two": 1}).winners, "none else is there to own them"
    assert not Ring({"one": 0, "two": 1}).won_by("one")
