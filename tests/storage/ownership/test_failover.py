"""Hosts that die, stand still, or lose the store: others take over in time, and never before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from tests.storage.ownership.members import TIMING, Member, World, in_world, names, until
from tocsin.errors import StoreError, StoreLocked, StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.moving import OWNS_ALL
from tocsin.storage.notes import MOVE, MoveNote, Part, write_notes
from tocsin.storage.ownership.engine import SLOTS, HostRow, HostState, slot_of


async def pair(world: World) -> tuple[Member, Member]:
    """Two hosts that have been connected for long enough to judge others."""
    one, two = await world.join(), await world.join()
    await until(lambda: world.shared_out(one, two))
    await asyncio.sleep(TIMING.ttl_s)
    return one, two


def test_a_host_that_is_killed_is_replaced_as_soon_as_its_session_is_seen_to_be_gone() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        await world.kill(two)
        took = await until(lambda: len(one.slots) == SLOTS)

        assert TIMING.second_look_s <= took < TIMING.look_s + 2 * TIMING.second_look_s
        assert one.provider.counts.reaped == 1
        await asyncio.sleep(2 * TIMING.beat_s)
        assert len(world.disk.state.leases) == 1  # nothing is left of the dead one

    in_world(main)


def test_a_host_that_starts_a_second_after_the_last_one_was_killed_takes_over_soon() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        await one.write("a:1", b"1")
        await asyncio.sleep(5)
        await world.kill(one)
        await asyncio.sleep(1.0)
        two = await world.join()
        took = await until(lambda: len(two.slots) == SLOTS)

        assert took < 2.0
        assert await two.provider.view("a:1").get([b"k"]) == {b"k": b"1"}

    in_world(main)


def test_a_machine_that_goes_dark_is_replaced_when_its_lease_ends() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        session = two.engine.session
        await world.kill(two)
        world.disk.sessions[session] = two.engine  # the server has not noticed: no packet says that it is gone
        took = await until(lambda: len(one.slots) == SLOTS)

        assert TIMING.ttl_s - TIMING.beat_s <= took < TIMING.ttl_s + 1.0

    in_world(main)


def test_a_session_that_comes_back_before_the_second_look_costs_nothing() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        for _ in range(4):
            two.engine.lose_session(TIMING.second_look_s * 0.8)
            await asyncio.sleep(1.3)

        assert not one.provider.counts.reaped
        assert world.shared_out(one, two)

    in_world(main)


@pytest.mark.parametrize("noticed", [True, False])
def test_a_session_that_comes_back_after_others_acted_makes_nobody_sure(noticed: bool) -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        name = next(name for name in names(50) if two.has(name))
        await two.provider.engine.beat(two.provider.owner, TIMING.ttl_s)
        two.engine.faults.notice_s = (0.0,) if noticed else (9.0,)  # it is busy, and sees nothing of it
        before, both = two.provider.owner, 0
        one.provider.engine.hint = two.provider.engine.hint = _no_hint  # type: ignore[method-assign]
        two.engine.lose_session(60.0)
        await until(lambda: any(row.owner == one.provider.owner for row in [world.disk.state.slots[slot_of(name)]]))
        two.engine.lock()
        assert two.engine.session_lost_at is None
        while two.provider.owner == before:
            both += one.has(name) and two.has(name)
            await asyncio.sleep(0.001)

        assert not both

    in_world(main)


def test_a_host_is_sure_again_as_soon_as_a_session_that_was_gone_is_there() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        await asyncio.sleep(TIMING.beat_s)
        two.engine.faults.notice_s = (0.0,)
        two.engine.lose_session(TIMING.second_look_s * 0.8)
        await asyncio.sleep(0.001)
        assert not two.provider.lease_good
        took = await until(lambda: two.provider.lease_good)

        assert took < TIMING.second_look_s
        assert not one.provider.counts.reaped

    in_world(main)


async def _no_hint(hosts: Sequence[str]) -> None:
    """Lose a hint."""


def test_a_host_whose_session_is_gone_for_longer_trusts_its_memory_no_more() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        name = next(name for name in names(50) if two.has(name))
        two.engine.faults.notice_s = (0.0,)
        two.engine.hinted = lambda: None  # type: ignore[method-assign]  # nobody tells that it was declared dead
        two.engine.lose_session(60.0)
        both: list[float] = []

        async def watch() -> None:
            while True:
                if one.has(name) and two.has(name):
                    both.append(asyncio.get_running_loop().time())
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        await until(lambda: one.has(name))
        await asyncio.sleep(5)
        watching.cancel()

        assert not both
        assert two.provider.counts.died >= 1

    in_world(main)


def test_a_machine_that_was_suspended_trusts_no_memory_although_its_clock_stood_still() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        name = next(name for name in names(50) if two.has(name))
        asleep_s = two.provider._membership.slept()
        two.provider._membership.slept = lambda: asleep_s + TIMING.ttl_s
        assert not two.has(name) and not two.provider.lease_good
        assert one.provider.lease_good

        await until(lambda: two.has(name), TIMING.beat_s + 0.1)  # the next sign of life tells that nobody acted on it
        assert not one.provider.counts.reaped

    in_world(main)


def test_a_host_that_stood_still_begins_anew_and_writes_nothing_old() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        name = next(name for name in names(50) if two.has(name))
        await two.write(name, b"old")
        old = await two.provider.open(name)
        before = two.provider.owner
        two.engine.cut(60.0)  # nothing of it reaches the store, as if it did not run
        await until(lambda: one.has(name))
        await one.write(name, b"new")
        assert not two.has(name)
        two.engine.mend()
        with pytest.raises(StoreError) as refused:
            await old.commit(Batch({b"k": b"stale"}))

        assert refused.value.owner_lost or isinstance(refused.value, StoreLocked)
        await until(lambda: world.shared_out(one, two))
        assert two.provider.owner != before
        assert two.provider.counts.died == 1
        assert two.lost()
        assert await one.provider.view(name).get([b"k"]) == {b"k": b"new"}

    in_world(main)


def test_a_host_that_stood_still_while_the_store_was_moved_away_does_not_begin_anew() -> None:
    async def main(world: World) -> None:
        host = await world.join()
        await host.write("a:1", b"old")
        host.engine.cut(60.0)
        mover = Member(world.disk, Random(7), weight=OWNS_ALL)
        await mover.start()
        await until(lambda: mover.has("a:1"))
        left = MoveNote(Part.LEFT, "m", "sqlite:///there.db")
        await write_notes(mover.provider, {MOVE: left.written()})
        await mover.stop()
        host.engine.mend()
        await until(lambda: host.provider.counts.died)
        await asyncio.sleep(30)

        assert not host.slots
        assert world.owners() == {None: SLOTS}
        assert not [row for row in await host.engine.hosts() if row.state != "dead"]
        with pytest.raises(StoreError):
            await host.write("a:1", b"new")

        notes = await world.join(weight=OWNS_ALL)  # the move is given up
        await write_notes(notes.provider, {MOVE: None})
        await world.stop(notes)
        await until(lambda: host.has("a:1"))
        await host.write("a:1", b"new")

    in_world(main)


@pytest.mark.parametrize("away_s", [1.0, 30.0])
def test_a_store_that_is_away_makes_nobody_dead(away_s: float) -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        ids = {one.provider.owner, two.provider.owner}
        world.disk.go_away()
        await asyncio.sleep(away_s)
        if away_s > TIMING.ttl_s:
            assert not one.provider.lease_good
            assert isinstance(one.provider.trouble, StoreUnavailable)
            with pytest.raises(StoreUnavailable):
                await one.write(next(name for name in names(50) if slot_of(name) in one.slots), b"1")
        world.disk.come_back()
        took = await until(lambda: one.provider.lease_good and two.provider.lease_good)
        await asyncio.sleep(2 * TIMING.ttl_s)

        assert took < 1.0
        assert {one.provider.owner, two.provider.owner} == ids
        assert world.shared_out(one, two)
        assert not one.lost() and not two.lost()
        assert one.provider.trouble is None

    in_world(main)


def test_sessions_that_come_back_after_the_rows_make_nobody_begin_anew() -> None:
    async def main(world: World) -> None:
        hosts = await pair(world)
        ids = [host.provider.owner for host in hosts]
        locks = [host.engine.lock for host in hosts]
        for host in hosts:
            host.engine.lock = lambda: None  # type: ignore[method-assign]  # its session waits for its turn
        world.disk.go_away()
        await asyncio.sleep(10 * TIMING.ttl_s)
        world.disk.come_back()
        await asyncio.sleep(TIMING.beat_s / 2)
        assert all(host.engine.session_lost_at is not None for host in hosts)
        for lock in locks:
            lock()
        await until(lambda: all(host.provider.lease_good for host in hosts))

        assert [host.provider.owner for host in hosts] == ids
        assert not any(host.provider.counts.died for host in hosts)

    in_world(main)


def test_a_clock_of_the_store_that_jumps_makes_nobody_dead() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        world.disk.clock_ahead_s += 3600.0
        await asyncio.sleep(2 * TIMING.ttl_s)

        assert world.shared_out(one, two)
        assert not one.provider.counts.died + two.provider.counts.died

    in_world(main)


def test_commits_wait_for_a_store_that_is_away_for_less_than_the_lease() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        store = await one.provider.open("a:1")
        await store.commit(Batch({b"k": b"1"}))
        world.disk.go_away()
        waiting = store.commit(Batch({b"k": b"2"}))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        world.disk.come_back()
        await waiting

        assert await store.get([b"k"]) == {b"k": b"2"}

    in_world(main)


def test_slots_that_an_operator_takes_away_find_an_owner_again() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        mine = sorted(one.slots)[:5]
        assert await two.provider.release_slots([*mine, *mine]) == mine
        await until(lambda: world.shared_out(one, two))

        assert one.provider.counts.lost == 5

    in_world(main)


def test_the_facts_tell_who_is_there_and_what_each_has() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        facts = await one.provider.facts()

        assert facts.host == one.provider.owner
        assert {(each.host, each.slots, each.state) for each in facts.hosts} == {
            (member.provider.owner, len(member.slots), HostState.UP) for member in (one, two)
        }
        assert facts.unowned == facts.mail == 0
        assert 0 <= facts.beat_ms <= TIMING.beat_s * 1000 + 100
        assert one.provider.store_ms is not None
        assert abs(one.provider.store_ms - world.disk.now_ms()) < 10

    in_world(main)


def test_a_host_that_cannot_say_goodbye_leaves_no_later_than_a_ttl() -> None:
    async def main(world: World) -> None:
        one, two = await pair(world)
        two.engine.cut(60.0)
        began = asyncio.get_running_loop().time()
        await world.stop(two)

        assert asyncio.get_running_loop().time() - began < 2 * TIMING.ttl_s + 1.0
        await until(lambda: len(one.slots) == SLOTS)

    in_world(main)


def test_a_host_that_could_not_start_believes_to_own_nothing() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        await world.stop(one)
        member = Member(world.disk, world.random)
        looks: list[str] = []

        async def hosts() -> list[HostRow]:
            looks.append("look")
            raise asyncio.CancelledError

        member.engine.hosts = hosts  # type: ignore[method-assign]
        with pytest.raises(asyncio.CancelledError):
            await member.start()

        assert looks and not member.has("a:1") and not member.provider.lease_good

    in_world(main)
