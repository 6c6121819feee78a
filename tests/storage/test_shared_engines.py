"""What each statement of a shared engine does, on every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

import pytest

from tests.storage.shared_places import PLACES, Connect
from tocsin.storage.api import UNSET, Unset
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.ownership.engine import (
    SLOTS,
    Held,
    HostRow,
    HostState,
    Mail,
    SharedEngine,
    SlotRow,
    slot_of,
)

pytestmark = pytest.mark.anyio
T = TypeVar("T")
ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32
LONG_S, SHORT_S = 600.0, 0.05
NAMES = ("a", "b", "c")
assert len({slot_of(name) for name in NAMES}) == 3, "these tests want actors of three slots"


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def connect(request: pytest.FixtureRequest) -> Connect:
    place: Callable[[], Connect] = request.param
    return place()


@asynccontextmanager
async def opened(connect: Connect, *hosts: str) -> AsyncIterator[SharedEngine]:
    """Connect, with these hosts entered."""
    engine = connect()
    await engine.open()
    try:
        for host in hosts:
            await engine.register(HostRow(host, f"host {host[0]}"), LONG_S)
        yield engine
    finally:
        await engine.close()


async def until(condition: Callable[[], Awaitable[T]]) -> T:
    """Wait for what the clock of a server brings, which raises no event here."""
    async with asyncio.timeout(10):
        while True:
            if found := await condition():
                return found
            await asyncio.sleep(0.01)


def slots_of(*names: str) -> list[int]:
    return sorted(map(slot_of, names))


async def taken(engine: SharedEngine, host: str, *names: str) -> list[Held]:
    return [Held(row.slot, row.epoch, row.seq) for row in await engine.take(slots_of(*names), host)]


def writes(name: str, rows: dict[bytes, bytes | None], wake_at: int | Unset | None = UNSET) -> ActorWrites:
    return ActorWrites(name, rows, wake_at)


def later(held: list[Held]) -> list[Held]:
    return [Held(one.slot, one.epoch, one.seq + 1) for one in held]


# ---- Rows and the fence ----------------------------------------------------------------------------


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


# ---- Who owns what ---------------------------------------------------------------------------------


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
        assert await engine.release(slots_of("a", "b"), ONE) == slots_of("a")
        assert [row.owner for row in await engine.settle(slots_of("a"))] == [None]

        assert await engine.take(slots_of("a"), TWO) == [SlotRow(slot_of("a"), TWO, 2, 1, 1)]


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


# ---- Mail and hints --------------------------------------------------------------------------------


def letter(n: int, actor: str = "a") -> Mail:
    return Mail(slot_of(actor), 0, f"{n:032x}", actor, f"body {n}".encode(), TWO)


async def test_mail_stays_until_the_owner_ends_it(connect: Connect) -> None:
    async with opened(connect, ONE, TWO) as engine:
        await taken(engine, ONE, "a")
        assert await engine.put_mail([letter(1), letter(2), letter(3, "b")], 10, 10_000) == [True] * 3

        for _ in range(2):
            first, second = await engine.take_mail(slots_of("a"), 10)
            assert [(one.op, one.actor, one.body, one.sender) for one in (first, second)] == [
                (one.op, one.actor, one.body, one.sender) for one in (letter(1), letter(2))
            ]
            assert first.seq < second.seq and 0 <= first.age_ms < 10_000
        assert await engine.take_mail(slots_of("a"), 1) and len(await engine.take_mail(slots_of("a", "b"), 10)) == 3
        assert await engine.end_mail(TWO, [(first, b"not mine")]) == []
        assert [one.op for one in await engine.end_mail(ONE, [(first, b"done")])] == [first.op]

        assert [one.op for one in await engine.take_mail(slots_of("a"), 10)] == [second.op]
        assert await engine.answers([first.op, second.op]) == {first.op: b"done"}


async def test_mail_that_was_kept_is_not_kept_again(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        await taken(engine, ONE, "a")
        assert await engine.put_mail([letter(1)], 1, 10_000) == [True]
        assert await engine.put_mail([letter(1)], 1, 10_000) == [True]
        [mail] = await engine.take_mail(slots_of("a"), 10)
        await engine.end_mail(ONE, [(mail, b"done")])

        assert await engine.put_mail([letter(1)], 1, 10_000) == [True]

        assert await engine.take_mail(slots_of("a"), 10) == []
        assert await engine.answers([mail.op]) == {mail.op: b"done"}


async def test_a_slot_with_too_much_mail_takes_no_more(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        assert await engine.put_mail([letter(1), letter(2)], 2, 10_000) == [True, True]

        assert await engine.put_mail([letter(3), letter(4, "b"), letter(1)], 2, 10_000) == [False, True, True]

        assert sorted((one.slot, one.count) for one in await engine.backlogs()) == sorted(
            [(slot_of("a"), 2), (slot_of("b"), 1)]
        )


async def test_a_slot_whose_mail_is_too_old_takes_no_more(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        await engine.put_mail([letter(1)], 10, 20)

        numbers = count(2)

        async def refused() -> bool:
            return await engine.put_mail([letter(next(numbers))], 1_000, 20) == [False]

        assert await until(refused)
        assert next(one for one in await engine.backlogs() if one.slot == slot_of("a")).oldest_ms >= 20


@pytest.mark.parametrize("named", [True, False])
async def test_a_hint_wakes_a_host(connect: Connect, named: bool) -> None:
    async with opened(connect, ONE) as engine, opened(connect, TWO) as other:
        woken = asyncio.ensure_future(anext(engine.hints()))

        async def hinted() -> bool:  # the other side may not listen yet
            await other.hint([ONE] if named else [])
            return woken.done()

        assert await until(hinted)
        await woken


async def test_hints_end_with_the_connection(connect: Connect) -> None:
    async with opened(connect, ONE) as engine:
        listening = asyncio.ensure_future(_all(engine))
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await listening


async def _all(engine: SharedEngine) -> None:
    async for _ in engine.hints():
        pass
