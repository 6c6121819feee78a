"""What a shared engine does with rows, and what its fence refuses, on every one of them."""

from __future__ import annotations

import pytest

from tests.storage.shared_places import (
    ONE,
    TWO,
    Connect,
    later,
    opened,
    slots_of,
    taken,
    writes,
)
from tocsin.storage.api import UNSET
from tocsin.storage.ownership.engine import Held, SlotRow, slot_of

pytestmark = pytest.mark.anyio


async def test_a_commit_of_the_owner_is_applied_and_counted(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        held = await taken(engine, ONE, "a", "b")

        assert await engine.commit(
            ONE, held, [writes("a", {b"k": b"1", b"l": b"2"}, 7), writes("b", {b"k": b"3"})]
        ) == set(slots_of("a", "b"))
        assert await engine.commit(ONE, later(held), [writes("a", {b"k": None}, None)]) == set(slots_of("a", "b"))

        assert await engine.get("a", [b"k", b"l", b"m"]) == {b"l": b"2"}
        assert await engine.get("b", [b"k"]) == {b"k": b"3"}
        assert [row.seq for row in await engine.settle(slots_of("a", "b"))] == [2, 2]


async def test_the_wake_time_is_kept_cleared_or_left(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        held = await taken(engine, ONE, "a")
        assert await engine.stored("a") == (False, None)
        for wake_at, expected in ((UNSET, None), (5, 5), (UNSET, 5), (0, 0), (None, None), (-3, -3)):
            assert await engine.commit(ONE, held, [writes("a", {}, wake_at)])
            held = later(held)

            assert await engine.stored("a") == (True, expected)


@pytest.mark.parametrize("wrong", ["owner", "epoch", "an older seq", "a newer seq"])
async def test_a_commit_that_is_not_as_said_changes_nothing(connect: Connect, wrong: str) -> None:
    async with opened(connect, ONE, TWO) as engine:
        held = await taken(engine, ONE, "a", "b")
        assert await engine.commit(ONE, held, [writes("a", {b"k": b"old"})])
        held, a = later(held), slot_of("a")
        by = {"owner": (TWO, 0, 0), "epoch": (ONE, 1, 0), "an older seq": (ONE, 0, -1), "a newer seq": (ONE, 0, 1)}
        owner, epoch, seq = by[wrong]
        said = [Held(one.slot, one.epoch + epoch, one.seq + seq) if one.slot == a else one for one in held]

        right = await engine.commit(owner, said, [writes("a", {b"k": b"new"}, 9), writes("b", {b"k": b"new"}, 9)])

        assert right == (set() if wrong == "owner" else {slot_of("b")})
        assert await engine.get("a", [b"k"]) == {b"k": b"old"}
        assert await engine.stored("b") == (False, None)
        assert await engine.settle(slots_of("a", "b")) == [SlotRow(one.slot, ONE, one.epoch, one.seq) for one in held]


async def test_who_lost_a_slot_to_another_host_and_got_it_back_commits_by_the_new_epoch_only(connect: Connect) -> None:
    async with opened(connect, ONE, TWO) as engine:
        before = await taken(engine, ONE, "a")
        await engine.release(slots_of("a"), ONE)
        await taken(engine, TWO, "a")
        await engine.release(slots_of("a"), TWO)
        now = await taken(engine, ONE, "a")

        assert await engine.commit(ONE, before, [writes("a", {b"k": b"old"})]) == set()
        assert await engine.commit(ONE, now, [writes("a", {b"k": b"new"})]) == set(slots_of("a"))


async def test_scans_are_of_one_actor_bounded_and_in_key_order(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        held = await taken(engine, ONE, "a", "b")
        keys = [b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]
        assert await engine.commit(
            ONE, held, [writes("a", dict.fromkeys(keys, b"12345")), writes("b", {b"\x7f": b"other"})]
        )
        everything = (b"", b"\xff\xff", 10)

        [rows] = await engine.scan_many("a", [everything], 10_000, False)
        assert rows == [(key, b"12345") for key in keys]
        assert await engine.scan_many("a", [(b"", b"\x80", 1), (b"\x7f", b"\xff", 10)], 10_000, True) == [
            [(b"\x7f", b"12345")],
            [(b"\x80", b"12345"), (b"\x7f", b"12345")],
        ]
        first, second = await engine.scan_many("a", [everything, everything], 1, False)
        assert (len(first), second) == (1, [])
        assert await engine.scan_many("strange", [everything], 10_000, False) == [[]]


async def test_names_and_wakes_tell_of_every_actor_once(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        names = sorted(["a", "b", "c", "a/é", "a/z", "Z"])
        held = await taken(engine, ONE, *names)
        assert await engine.commit(ONE, held, [writes(name, {b"k": b""}, n or None) for n, name in enumerate(names)])

        assert await engine.names("", 100) == names
        assert await engine.names(names[1], 2) == names[2:4]
        told = [one async for page in engine.wakes(slots_of(*names)) for one in page]
        assert sorted(told) == [(name, n or None) for n, name in enumerate(names)]
        assert [one async for page in engine.wakes(slots_of("b")) for one in page] == [("b", names.index("b"))]
