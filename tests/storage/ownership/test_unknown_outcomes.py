"""Commits that break off, and commits of several actors of which some are fenced: what is said of each is true."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from tests.storage.ownership.members import Member, World, in_world, names, until
from tocsin.errors import Fenced, StoreError
from tocsin.storage.api import Batch, OrderedStore
from tocsin.storage.disk_connection import Fate
from tocsin.storage.ownership.commits import _was_applied
from tocsin.storage.ownership.engine import Held, SlotRow, slot_of

NAME = "a:1"


def fates(member: Member, *each: Fate) -> None:
    """Have the next statements meet these ends, and all later ones succeed."""
    coming: Iterator[Fate] = iter(each)
    member.engine.faults.fate = lambda: next(coming, Fate.DONE)  # type: ignore[method-assign]


async def alone(world: World, name: str = NAME) -> tuple[Member, OrderedStore]:
    member = await world.join()
    store = await member.provider.open(name)
    await store.commit(Batch({b"k": b"0"}))
    return member, store


def value(world: World, name: str = NAME) -> bytes | None:
    return world.disk.state.rows.maps[name].get(b"k")


@pytest.mark.parametrize("fate", [Fate.UNHEARD, Fate.VANISHED, Fate.HOLDING, Fate.LATE], ids=lambda fate: fate.name)
def test_a_commit_that_breaks_off_is_applied_once(fate: Fate) -> None:
    async def main(world: World) -> None:
        member, store = await alone(world)
        seq = world.disk.state.slots[slot_of(NAME)].seq
        fates(member, fate)
        await store.commit(Batch({b"k": b"1"}))
        await asyncio.sleep(5)

        assert value(world) == b"1"
        assert world.disk.state.slots[slot_of(NAME)].seq == seq + 1
        await store.commit(Batch({b"k": b"2"}))
        assert value(world) == b"2"

    in_world(main)


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_that_breaks_off_before_a_steal_is_told_apart(applied: bool) -> None:
    async def main(world: World) -> None:
        member, store = await alone(world)
        slot, owner = slot_of(NAME), member.provider.owner
        fates(member, Fate.UNHEARD if applied else Fate.VANISHED)
        member.engine.faults.notice_s = (0.5,)
        commit = store.commit(Batch({b"k": b"1"}))
        await asyncio.sleep(0.2)
        assert value(world) == (b"1" if applied else b"0")
        for thief in ("1" * 32, "2" * 32):  # twice, so that the last take does not tell
            world.disk.release([slot], owner)
            world.disk.take([slot], thief)
            owner = thief
            if thief == "1" * 32:
                row = world.disk.state.slots[slot]
                assert world.disk.commit(thief, [Held(slot, row.epoch, row.seq)], []) == {slot}
        if applied:
            await commit
        else:
            with pytest.raises(StoreError) as refused:
                await commit
            assert refused.value.owner_lost
        assert value(world) == (b"1" if applied else b"0")

    in_world(main)


def test_a_commit_that_is_given_up_cannot_land_late() -> None:
    async def main(world: World) -> None:
        member, store = await alone(world)
        fates(member, Fate.LATE)
        member.engine.faults.late_s, member.engine.faults.notice_s = (2.0,), (0.0,)
        commit = store.commit(Batch({b"k": b"1"}))
        await asyncio.sleep(0.0015)  # it is on its way, and this host hears that it was declared dead
        member.provider._died(member.provider.owner)
        with pytest.raises(StoreError):
            await commit
        await asyncio.sleep(5)

        assert value(world) == b"0"

    in_world(main)


def test_one_actor_that_is_fenced_fails_alone() -> None:
    async def main(world: World) -> None:
        member = await world.join()
        stores = {name: await member.provider.open(name) for name in names(12)}
        for store in stores.values():
            await store.commit(Batch({b"k": b"0"}))
        fenced = names(12)[3]
        world.disk.release([slot_of(fenced)], member.provider.owner)
        commits = {name: store.commit(Batch({b"k": b"1"})) for name, store in stores.items()}
        for name, commit in commits.items():
            if name == fenced:
                with pytest.raises(Fenced):
                    await commit
            else:
                await commit

        assert [name for name in names(12) if value(world, name) != b"1"] == [fenced]
        assert member.provider.counts.fenced == 1
        before = member.provider.stats()
        assert before.failed == 1
        with pytest.raises(Fenced):  # by rule 3 of the seam
            await stores[fenced].commit(Batch({b"k": b"2"}))

    in_world(main)


def test_a_handle_of_an_earlier_tenure_writes_nothing_in_the_next_one() -> None:
    async def main(world: World) -> None:
        member, store = await alone(world)
        world.disk.release([slot_of(NAME)], member.provider.owner)
        member.provider._keeper.read_map()
        await until(lambda: member.provider.counts.taken > 4096 and member.has(NAME))
        later = await member.provider.open("a:2")
        with pytest.raises(StoreError):
            await store.commit(Batch({b"k": b"stale"}))

        assert value(world) == b"0"
        await later.commit(Batch({b"k": b"1"}))

    in_world(main)


def test_commits_of_different_lanes_do_not_wait_for_each_other() -> None:
    async def main(world: World) -> None:
        member = await world.join()
        even = next(name for n in count() if slot_of(name := f"a:{n}") % 2 == 0)
        odd = next(name for n in count() if slot_of(name := f"a:{n}") % 2 == 1)
        stores = [await member.provider.open(name) for name in (even, odd)]
        await asyncio.sleep(0.1)
        member.engine.faults.notice_s = (2.0,)
        fates(member, Fate.VANISHED)
        slow = stores[0].commit(Batch({b"k": b"1"}))
        await asyncio.sleep(0.0005)
        await stores[1].commit(Batch({b"k": b"1"}))

        assert not slow.done()
        await slow

    in_world(main)


def test_a_take_whose_answer_was_lost_is_found() -> None:
    async def main(world: World) -> None:
        member, _ = await alone(world)
        lost = sorted(member.slots)[:7]
        world.disk.release(lost, member.provider.owner)
        world.disk.take(lost, member.provider.owner)  # as the statement does of which this host has not heard
        member.provider._keeper.read_map()
        await asyncio.sleep(1.0)

        assert len(member.slots) == 4096
        assert all(member.provider.slots.held[slot].epoch == world.disk.state.slots[slot].epoch for slot in range(4096))

    in_world(main)


def test_a_row_tells_what_became_of_a_commit_as_far_back_as_it_remembers() -> None:
    sent = [Held(3, epoch=5, seq=10)]

    def row(epoch: int, seq: int, *bases: int, owner: str | None = "x") -> list[SlotRow]:
        return [SlotRow(3, owner, epoch, seq, bases[0] if bases else 0, bases[1:])]

    assert _was_applied(row(5, 11), "x", sent) is True
    assert _was_applied(row(5, 10), "x", sent) is False
    assert _was_applied(row(5, 9), "x", sent) is False
    assert _was_applied(row(4, 99), "x", sent) is False
    assert _was_applied(row(6, 40, 11), "x", sent) is True
    assert _was_applied(row(6, 40, 10), "x", sent) is False
    assert _was_applied(row(8, 40, 30, 20, 10), "x", sent) is False
    assert _was_applied(row(8, 40, 30, 20, 11), "x", sent) is True
    assert _was_applied(row(9, 40, 30, 20, 11), "x", sent) is None
    both = [Held(3, 5, 10), Held(4, 1, 1)]
    assert _was_applied([*row(9, 40, 30), SlotRow(4, "x", 1, 2)], "x", both) is True
    assert _was_applied(row(5, 11, owner=None), "x", sent) is True
    assert _was_applied(row(5, 11, owner="y"), "x", sent) is False
