"""What a connection to a shared store in memory loses, and what goes on without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from tests.storage.shared_places import LONG_S, ONE, TWO, later, slots_of, taken, writes
from tocsin.actors.testing import simulate
from tocsin.errors import StoreUnavailable
from tocsin.storage.disk_connection import Fate, Faults
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.engine import HostRow, HostState, Unsettled
from tocsin.storage.shared_disk import SharedDisk

LATE_S = 2.0


class Scripted(Faults):
    """Gives the statements the fates that are named, then all is well."""

    def __init__(self) -> None:
        super().__init__(Random(0), latencies_s=(0.001,), late_s=(LATE_S,), notice_s=(0.1,))
        self.fates: list[Fate] = []

    def fate(self) -> Fate:
        return self.fates.pop(0) if self.fates else Fate.DONE


class Two:
    """Two hosts at one store."""

    def __init__(self) -> None:
        self.disk = SharedDisk()
        self.faults = Scripted()
        self.one, self.two = DiskEngine(self.disk, self.faults), DiskEngine(self.disk)

    async def open(self) -> None:
        for engine, host, session in ((self.one, ONE, 1), (self.two, TWO, 2)):
            await engine.open()
            await engine.register(HostRow(host, host[0], session=session), LONG_S)

    def value(self) -> bytes | None:
        rows = self.disk.state.rows.maps.get("a")
        return None if rows is None else rows.get(b"k")


def simulated(test: Callable[[Two], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main(random: Random) -> None:
        two = Two()
        await two.open()
        await test(two)

    def run() -> None:
        simulate(1, main)

    run.__name__ = test.__name__
    return run


WRITE = [writes("a", {b"k": b"new"})]
SLOTS_A = slots_of("a")


@simulated
async def test_a_refused_commit_is_not_done(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    two.faults.fates = [Fate.REFUSED]

    with pytest.raises(StoreUnavailable):
        await two.one.commit(ONE, held, WRITE)
    await asyncio.sleep(60)

    assert two.value() is None
    assert await two.one.commit(ONE, held, WRITE) == set(SLOTS_A)


@simulated
async def test_a_commit_whose_answer_is_lost_is_done_or_not_and_settle_tells(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    for fate, done in ((Fate.VANISHED, 0), (Fate.UNHEARD, 1)):
        two.faults.fates = [fate]

        with pytest.raises(Unsettled):
            await two.one.commit(ONE, held, WRITE)

        assert [row.seq for row in await two.one.settle(SLOTS_A)] == [done]
        assert (two.value() is not None) is bool(done)


@simulated
async def test_settle_waits_for_a_statement_that_holds_its_slots(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    two.faults.fates = [Fate.HOLDING]
    began = two.disk.now_s()
    with pytest.raises(Unsettled):
        await two.one.commit(ONE, held, WRITE)
    assert two.value() is None

    assert [row.seq for row in await two.two.settle(SLOTS_A)] == [1]

    assert two.value() == b"new" and two.disk.now_s() - began >= LATE_S


@simulated
async def test_slots_that_a_statement_holds_are_passed_over_by_who_takes_and_awaited_by_who_writes(two: Two) -> None:
    held = await taken(two.one, ONE, "a", "b")
    two.faults.fates = [Fate.HOLDING]
    with pytest.raises(Unsettled):
        await two.one.commit(ONE, held[:1], [])
    del two.disk.state.leases[ONE]  # so that others may take its slots

    assert [row.slot for row in await two.two.take(slots_of("a", "b"), TWO)] == [held[1].slot]
    assert await two.one.commit(ONE, later(held[:1]), []) == {held[0].slot}
    assert [row.slot for row in await two.two.take(slots_of("a", "b"), TWO)] == [held[0].slot]


@simulated
async def test_a_statement_that_comes_late_counts_only_if_all_is_still_as_it_says(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    two.faults.fates = [Fate.LATE]
    with pytest.raises(Unsettled):
        await two.one.commit(ONE, held, WRITE)
    assert [row.seq for row in await two.one.settle(SLOTS_A)] == [0]
    await asyncio.sleep(LATE_S)
    assert two.value() == b"new" and [row.seq for row in await two.one.settle(SLOTS_A)] == [1]

    held = later(held)
    two.faults.fates = [Fate.LATE]
    with pytest.raises(Unsettled):
        await two.one.commit(ONE, held, [writes("a", {b"k": b"late"})])
    await two.one.release(SLOTS_A, ONE)
    await taken(two.two, TWO, "a")
    await asyncio.sleep(LATE_S)

    assert two.value() == b"new"


@simulated
async def test_a_cancelled_commit_is_on_its_way_all_the_same(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    commit = asyncio.ensure_future(two.one.commit(ONE, held, WRITE))
    await asyncio.sleep(0)
    commit.cancel()
    await asyncio.wait([commit])

    await asyncio.sleep(1)

    assert commit.cancelled() and two.value() == b"new"


@simulated
async def test_who_is_cut_off_hears_nothing_and_does_nothing(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    commit = asyncio.ensure_future(two.one.commit(ONE, held, WRITE))
    await asyncio.sleep(0)
    two.one.cut(keepalive_s=5)

    with pytest.raises(Unsettled):
        await commit
    with pytest.raises(StoreUnavailable):
        await two.one.beat(ONE, LONG_S)
    assert two.value() is None and two.one.session_lost_at is None
    assert await two.two.reap_without_session(ONE) is False
    await asyncio.sleep(10)
    assert await two.two.reap_without_session(ONE) is True
    two.one.mend()

    assert await two.one.beat(ONE, LONG_S) is None
    assert await two.one.commit(ONE, held, WRITE) == set(SLOTS_A), "nobody has taken the slot yet"


@simulated
async def test_a_session_that_breaks_is_held_again_and_its_host_knows(two: Two) -> None:
    two.one.lose_session(1.0)
    await asyncio.sleep(0.5)

    gone = {row.host: row.session_gone for row in await two.two.hosts()}
    assert gone == {ONE: True, TWO: False} and two.one.session_lost_at is not None
    await asyncio.sleep(1)
    assert not any(row.session_gone for row in await two.two.hosts()) and two.one.session_lost_at is None


@simulated
async def test_the_dead_hear_nothing_and_lose_their_session_lock(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    commit = asyncio.ensure_future(two.one.commit(ONE, held, WRITE))
    await asyncio.sleep(0)

    two.one.die()
    await asyncio.sleep(60)

    assert not commit.done() and two.value() == b"new", "what had left the host is done"
    assert await two.two.reap_without_session(ONE) is True
    commit.cancel()


@simulated
async def test_when_the_server_is_away_nobody_does_anything(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    commit = asyncio.ensure_future(two.one.commit(ONE, held, WRITE))
    await asyncio.sleep(0)
    two.disk.go_away()

    with pytest.raises(Unsettled):
        await commit
    for engine in (two.one, two.two):
        with pytest.raises(StoreUnavailable):
            await engine.hosts()
    two.disk.come_back()
    await asyncio.sleep(1)

    assert two.value() is None
    assert [(row.host, row.session_gone) for row in await two.two.hosts()] == [(ONE, False), (TWO, False)]


@simulated
async def test_a_standby_that_was_behind_knows_nothing_of_what_came_after(two: Two) -> None:
    held = await taken(two.one, ONE, "a")
    assert await two.one.commit(ONE, held, [writes("a", {b"k": b"old"})])
    behind = two.disk.copied()
    assert await two.one.commit(ONE, later(held), WRITE)
    await two.one.drain(ONE)

    two.disk.roll_back(behind)

    assert two.value() == b"old"
    assert [row.seq for row in await two.one.settle(SLOTS_A)] == [1]
    assert [row.state for row in await two.one.hosts()] == [HostState.UP] * 2
    assert await two.one.commit(ONE, later(later(held)), WRITE) == set()


@simulated
async def test_one_commit_of_a_slot_is_under_way_at_a_time(two: Two) -> None:
    held = await taken(two.one, ONE, "a", "b")
    commit = asyncio.ensure_future(two.one.commit(ONE, held[:1], []))
    await asyncio.sleep(0)

    with pytest.raises(ValueError, match="under way"):
        await two.one.commit(ONE, held, [])
    with pytest.raises(ValueError, match="ascending"):
        await two.one.commit(ONE, held[::-1], [])
    with pytest.raises(ValueError, match="others"):
        await two.one.commit(ONE, [one for one in held if one.slot not in SLOTS_A], WRITE)
    assert await commit == {held[0].slot}


@simulated
async def test_where_the_commits_of_earlier_owners_ended_is_kept(two: Two) -> None:
    for host in (ONE, TWO, ONE, TWO, ONE):
        held = await taken(two.one, host, "a")
        assert await two.one.commit(host, held, WRITE)
        await two.one.release(SLOTS_A, host)
    [row] = await two.one.take(SLOTS_A, TWO)

    assert (row.epoch, row.base_seq, row.earlier_bases) == (6, 5, (4, 3, 2))
