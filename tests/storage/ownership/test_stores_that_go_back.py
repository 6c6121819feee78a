"""A store that goes on from a replica that was behind: whoever owned its slots says that commits are lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.storage.ownership.members import World, in_world, until
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.engine import HostRow, SlotRow, slot_of

OTHER = "f" * 32


def test_a_store_that_went_back_is_noticed_and_its_actors_are_read_anew() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        store, other = await one.provider.open("a:1"), await one.provider.open("a:2")
        await store.commit(Batch({b"k": b"1"}))
        await other.commit(Batch({b"k": b"1"}))
        behind = world.disk.copied()
        for n in range(2, 5):
            await store.commit(Batch({b"k": b"%d" % n}))
        world.disk.roll_back(behind)
        with pytest.raises(StoreError) as lost:
            await store.commit(Batch({b"k": b"5"}))

        assert lost.value.owner_lost
        await other.commit(Batch({b"k": b"2"}))
        assert one.provider.counts.rolled_back == 1
        assert one.provider.counts.commits_lost == 3
        await until(lambda: one.has("a:1"))
        again = await one.provider.open("a:1")
        assert await again.get([b"k"]) == {b"k": b"1"}
        await again.commit(Batch({b"k": b"6"}))

    in_world(main)


@pytest.mark.parametrize("way", ["all goes on", "it stops", "the answer is lost", "work does not end"])
def test_a_store_that_went_back_is_noticed_by_who_gives_its_slots_away_before_it_writes_again(way: str) -> None:
    async def main(world: World) -> None:
        one = await world.join()
        store, other = await one.provider.open("a:1"), await one.provider.open("a:2")
        await other.commit(Batch({b"k": b"1"}))
        behind = world.disk.copied()
        await store.commit(Batch({b"k": b"1"}))
        await store.commit(Batch({b"k": b"2"}))
        world.disk.roll_back(behind)
        one.lets_go = way != "work does not end"
        if way == "it stops":
            await world.stop(one)
        else:
            if way == "the answer is lost":
                _break_off_one_release(one.engine)
            await one.provider.hand_over()
            await until(lambda: one.provider.counts.handed_over)

        assert (one.provider.counts.rolled_back, one.provider.counts.commits_lost) == (1, 2)
        assert not one.slots and {row.owner for row in world.disk.state.slots} == {None}

    in_world(main)


def test_a_store_that_went_back_is_noticed_by_who_had_a_slot_that_others_have_by_now() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        store = await one.provider.open("a:1")
        behind = world.disk.copied()
        await store.commit(Batch({b"k": b"1"}))
        world.disk.roll_back(behind)
        world.disk.release([slot_of("a:1")], one.provider.owner)
        world.disk.register(HostRow(OTHER, "other"), 60.0)
        world.disk.take([slot_of("a:1")], OTHER)
        with pytest.raises(StoreError) as lost:
            await store.commit(Batch({b"k": b"2"}))

        assert lost.value.owner_lost
        assert (one.provider.counts.rolled_back, one.provider.counts.commits_lost) == (1, 1)

    in_world(main)


def test_who_gives_away_what_it_wrote_finds_nothing_lost() -> None:
    async def main(world: World) -> None:
        one = await world.join()
        await one.write("a:1", b"1")
        world.disk.release([slot_of("a:2")], one.provider.owner)  # as an operator does
        _break_off_one_release(one.engine)
        await one.provider.hand_over()

        assert (one.provider.counts.rolled_back, one.provider.counts.commits_lost, one.lost()) == (0, 0, [])

    in_world(main)


def _break_off_one_release(engine: DiskEngine) -> None:
    """Have the next release done without an answer."""
    whole = engine.release

    async def release(slots: Sequence[int], host: str) -> list[SlotRow]:
        engine.release = whole  # type: ignore[method-assign]
        await whole(slots, host)
        raise StoreUnavailable("the answer is lost")

    engine.release = release  # type: ignore[method-assign]
