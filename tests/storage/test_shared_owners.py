"""Who owns what, and who lives, on every engine that several hosts share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.storage.shared_places import (
    LONG_S,
    ONE,
    SHORT_S,
    THREE,
    TWO,
    Connect,
    opened,
    slots_of,
    taken,
    until,
    writes,
)
from tocsin.storage.ownership.engine import SLOTS, HostRow, HostState, SlotRow, slot_of

pytestmark = pytest.mark.anyio


async def test_a_new_store_has_all_slots_and_nobody_owns_them(connect: Connect) -> None:
    async with opened(connect) as engine:
        assert sorted((row.slot, row.owner, row.epoch, row.seq) for row in await engine.slots()) == [
            (slot, None, 0, 0) for slot in range(SLOTS)
        ]
        assert await engine.hosts() == []


async def test_all_connections_know_one_secret(connect: Connect) -> None:
    async with opened(connect) as engine, opened(connect) as other:
        assert await engine.secret() == await other.secret() != b""


async def test_a_slot_of_a_living_owner_is_not_taken(connect: Connect) -> None:
    async with opened(connect, ONE, TWO) as engine:
        assert [(row.owner, row.epoch) for row in await engine.take(slots_of("a", "b"), ONE)] == [(ONE, 1), (ONE, 1)]
        await engine.drain(ONE)

        assert [row.slot for row in await engine.take(slots_of("a", "b", "c"), TWO)] == slots_of("c")
        assert await engine.take(slots_of("a"), ONE) == []
        assert {row.owner for row in await engine.settle(slots_of("a", "b"))} == {ONE}


async def test_a_slot_that_was_given_up_is_taken_in_a_new_epoch_where_its_commits_end(connect: Connect) -> None:
    async with opened(connect, ONE, TWO) as engine:
        held = await taken(engine, ONE, "a")
        await engine.commit(ONE, held, [writes("a", {b"k": b""})])
        assert await engine.release(slots_of("a", "b"), TWO) == []
        released = await engine.release(slots_of("a", "b"), ONE)
        assert [replace(row, earlier_bases=()) for row in released] == [SlotRow(slot_of("a"), None, 1, 1, 0)]
        assert [row.owner for row in await engine.settle(slots_of("a"))] == [None]

        [row] = await engine.take(slots_of("a"), TWO)

        assert replace(row, earlier_bases=()) == SlotRow(slot_of("a"), TWO, 2, 1, 1)
        assert row.earlier_bases in ((), (0,)), "as many as the engine keeps"


async def test_a_beat_lengthens_the_lease_and_tells_the_time_of_the_store(connect: Connect) -> None:
    async with opened(connect) as engine:
        await engine.register(HostRow(ONE, "one", "http://one", 3, session=0), SHORT_S)
        [row] = await engine.hosts()
        assert (row.host, row.name, row.url, row.weight, row.state) == (ONE, "one", "http://one", 3, HostState.UP)
        assert row.lease_left_ms <= SHORT_S * 1000

        beat = await engine.beat(ONE, LONG_S)

        assert beat is not None and beat.state is HostState.UP
        again = await engine.beat(ONE, LONG_S)
        assert again is not None and beat.now_ms <= again.now_ms < beat.now_ms + 10_000
        [row] = await engine.hosts()
        assert LONG_S * 1000 - 10_000 < row.lease_left_ms <= LONG_S * 1000
        assert await engine.beat(TWO, LONG_S) is None


async def test_who_lets_the_lease_end_is_declared_dead_for_good(connect: Connect) -> None:
    async with opened(connect, TWO) as engine:
        await engine.register(HostRow(ONE, "one"), SHORT_S)
        await taken(engine, ONE, "a", "b")

        assert await until(engine.reap) == [ONE]

        assert await engine.reap() == []
        assert await engine.beat(ONE, LONG_S) is None
        await engine.register(HostRow(ONE, "one"), LONG_S)
        assert {row.host: row.state for row in await engine.hosts()} == {ONE: HostState.DEAD, TWO: HostState.UP}
        assert await engine.drain(ONE) is False
        assert [row.slot for row in await engine.take(slots_of("a"), TWO)] == slots_of("a")


async def test_a_lease_that_ended_may_be_lengthened_until_somebody_reaps(connect: Connect) -> None:
    async with opened(connect) as engine:
        await engine.register(HostRow(ONE, "one"), SHORT_S)

        async def ended() -> bool:
            return (await engine.hosts())[0].lease_left_ms < 0

        assert await until(ended)
        assert await engine.beat(ONE, LONG_S) is not None
        assert await engine.reap() == []


async def test_the_dead_are_listed_as_long_as_they_own_slots(connect: Connect) -> None:
    async with opened(connect, TWO) as engine:
        await engine.register(HostRow(ONE, "one"), SHORT_S)
        await taken(engine, ONE, "a")
        await until(engine.reap)
        assert {row.host for row in await engine.hosts()} == {ONE, TWO}

        await engine.take(slots_of("a"), TWO)

        assert {row.host for row in await engine.hosts()} == {TWO}


async def test_who_drains_says_so_and_lives_on(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        assert await engine.drain(ONE) is True
        assert await engine.drain(ONE) is False
        assert await engine.drain(TWO) is False

        beat = await engine.beat(ONE, LONG_S)
        assert beat is not None and beat.state is HostState.DRAINING
        await engine.register(HostRow(ONE, "one"), LONG_S)
        assert [row.state for row in await engine.hosts()] == [HostState.DRAINING]


async def test_only_a_host_that_owns_nothing_is_forgotten(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        await taken(engine, ONE, "a")
        await engine.forget(ONE)
        assert [row.host for row in await engine.hosts()] == [ONE]

        await engine.release(slots_of("a"), ONE)
        await engine.forget(ONE)

        assert await engine.hosts() == []
        assert await engine.beat(ONE, LONG_S) is None


async def test_a_host_is_dead_once_its_session_is_gone(connect: Connect) -> None:
    async with opened(connect, TWO) as engine:
        async with opened(connect) as other:
            await other.register(HostRow(ONE, "one", session=4711), LONG_S)
            assert await engine.reap_without_session(ONE) is False
            assert await engine.reap_without_session(THREE) is False
            assert {row.host: row.session_gone for row in await engine.hosts()} == {ONE: False, TWO: False}
            assert other.session_lost_at is None

        async def gone() -> bool:
            return {row.host: row.session_gone for row in await engine.hosts()} == {ONE: True, TWO: False}

        await until(gone)

        async def reaped() -> bool:
            return await engine.reap_without_session(ONE)

        assert await until(reaped)
        assert await engine.reap_without_session(ONE) is False
        assert await engine.beat(ONE, LONG_S) is None


async def test_who_holds_no_session_lock_is_not_judged_by_it(connect: Connect) -> None:
    async with opened(connect, ONE, TWO) as engine:
        assert await engine.reap_without_session(ONE) is False
        assert await engine.beat(ONE, LONG_S) is not None


async def test_where_the_commits_of_the_owners_before_ended_is_kept(connect: Connect) -> None:
    async with opened(connect, ONE, TWO) as engine:
        for host in (ONE, TWO, ONE, TWO, ONE):
            held = await taken(engine, host, "a")
            assert await engine.commit(host, held, [writes("a", {b"k": b""})])
            await engine.release(slots_of("a"), host)
        [row] = await engine.take(slots_of("a"), TWO)

        assert (row.epoch, row.base_seq, row.earlier_bases[:3]) == (6, 5, (4, 3, 2))
        assert await engine.settle(slots_of("a")) == [row]
