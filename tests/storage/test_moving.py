"""A whole store to another engine: everything arrives as it is, also if the move is stopped anywhere on its way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tocsin.errors import ConflictError, StoreClosed, StoreCorrupt, StoreError, StoreLocked, StoreMoved
from tocsin.storage.api import Batch, OrderedStore, StoreProvider
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.storage.moving import Place, StoreMove, Sums, keep_all
from tocsin.storage.notes import NOTES, RESIDENCY, write_notes
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.ownership.ring import Ring
from tocsin.storage.residency.opening import fit_to_serve, named_stores
from tocsin.storage.shared_disk import SharedDisk
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio

ACTORS = {
    "scheduler/a": ({b"\x00epoch": b"\x07", b"job/1": b"one", b"\xff" * 900: b"last"}, 123),
    "scheduler/b": ({b"lease/x": b"held"}, None),
    "scheduler/empty": ({}, -5),
    "own/é": ({bytes([n]) * 3: b"v" * n for n in range(1, 40)}, 2**62),
}


class Mortal(MemoryProvider):
    """A store in memory whose process ends at the n-th transaction, which is applied or not."""

    left = 10**9
    applied = True

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        Mortal.left -= 1
        if Mortal.left == 0 and Mortal.applied:
            await super().write(writes)
        if Mortal.left <= 0:
            raise StoreClosed("the process was killed")
        await super().write(writes)


@pytest.fixture(autouse=True)
def _immortal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mortal, "left", 10**9)
    monkeypatch.setattr("tocsin.storage.moving.ACTORS_AT_ONCE", 2)
    monkeypatch.setattr("tocsin.storage.moving.ROWS_AT_ONCE", 7)


def filled() -> MemoryDisk:
    disk = MemoryDisk()
    disk.apply([ActorWrites(name, dict(rows), wake_at) for name, (rows, wake_at) in ACTORS.items()])
    return disk


def content(disk: MemoryDisk) -> dict[str, tuple[dict[bytes, bytes], int | None]]:
    return {
        name: (dict(rows.range(b"", b"\xff" * 1025, 10**6, False)), disk.wakes[name])
        for name, rows in disk.maps.items()
        if name != NOTES
    }


def quiet(doing: str, sums: Sums) -> None:
    """Print nothing."""


@asynccontextmanager
async def moving(
    source: Callable[[], StoreProvider], target: Callable[[], StoreProvider], to: str = "there"
) -> AsyncIterator[StoreMove]:
    here, there = source(), target()
    await here.start()
    await there.start()
    try:
        yield StoreMove(Place(here, "here"), Place(there, to), lambda: 1, quiet)
    finally:
        await here.stop()
        await there.stop()


async def is_served(disk: MemoryDisk) -> bool:
    provider = MemoryProvider(disk)
    await provider.start()
    try:
        await fit_to_serve(provider)
    except StoreMoved:
        return False
    finally:
        await provider.stop()
    return True


async def test_rows_wake_times_and_epochs_arrive_as_they_are_and_the_source_is_sealed() -> None:
    source, target = filled(), MemoryDisk()

    async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(target)) as move:
        sums = await move.run("m")

    assert content(target) == content(source) == ACTORS
    assert (sums.actors, sums.rows) == (4, 43)
    assert not await is_served(source)
    assert await is_served(target)
    async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(target)) as move:
        assert await move.run("again") == sums


@pytest.mark.parametrize("applied", [True, False])
async def test_a_move_that_is_killed_at_any_transaction_goes_on_and_one_store_at_most_is_served(
    applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mortal, "applied", applied)
    deaths = 0
    while True:
        source, target = filled(), MemoryDisk()
        Mortal.left = deaths + 1
        try:
            async with moving(lambda: Mortal(source), lambda: Mortal(target)) as move:  # noqa: B023
                await move.run("first")
        except StoreError:
            deaths += 1
        else:
            break
        Mortal.left = 10**9
        served = await is_served(source), await is_served(target)
        assert not (served[0] and content(target)), "what changes in the source now would be left behind"
        if served[1] and content(target):
            assert content(target) == ACTORS
        async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(target)) as move:  # noqa: B023
            await move.run("second")
        assert content(target) == ACTORS
        assert (await is_served(source), await is_served(target)) == (False, True)

    assert deaths > 10


async def test_what_was_copied_is_not_copied_again() -> None:
    opened: set[str] = set()

    class Noting(MemoryProvider):
        async def open(self, name: str, *, create: bool = True) -> OrderedStore:
            if create and name != NOTES:
                opened.add(name)
            return await super().open(name, create=create)

    for lives in range(1, 100):
        source, target = filled(), MemoryDisk()
        Mortal.left = lives
        with suppress(StoreError):
            async with moving(lambda: Mortal(source), lambda: Mortal(target)) as move:  # noqa: B023
                await move.run("m")
        if {"own/é", "scheduler/a"} < content(target).keys():
            break  # the third actor has begun
    Mortal.left = 10**9

    async with moving(lambda: MemoryProvider(source), lambda: Noting(target)) as move:
        await move.run("m")

    assert sorted(opened) == ["scheduler/b", "scheduler/empty"]
    assert content(target) == ACTORS


async def test_a_difference_is_found_before_anything_is_sealed() -> None:
    source, target = filled(), MemoryDisk()

    class Forgetful(MemoryProvider):
        async def write(self, writes: Sequence[ActorWrites]) -> None:
            for one in writes:
                one.rows.pop(b"lease/x", None)
            await super().write(writes)

    with pytest.raises(StoreCorrupt, match="scheduler/b has 1 rows here and 0 there"):
        async with moving(lambda: MemoryProvider(source), lambda: Forgetful(target)) as move:
            await move.run("m")

    assert not await is_served(target)
    async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(target)) as move:
        await move.give_up()
    assert (await is_served(source), await is_served(target)) == (True, False)
    with pytest.raises(ConflictError, match="part of another move"):
        async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(target)) as move:
            await move.run("m2")


async def test_a_wake_time_that_differs_is_found() -> None:
    source, target = filled(), MemoryDisk()

    class Late(MemoryProvider):
        async def write(self, writes: Sequence[ActorWrites]) -> None:
            for one in writes:
                one.wake_at = 124 if one.wake_at == 123 else one.wake_at
            await super().write(writes)

    with pytest.raises(StoreCorrupt, match="scheduler/a"):
        async with moving(lambda: MemoryProvider(source), lambda: Late(target)) as move:
            await move.run("m")


async def test_stores_that_are_no_pair_are_refused_and_left_as_they_are() -> None:
    source, target, other = filled(), MemoryDisk(), filled()

    with pytest.raises(ConflictError, match="not empty"):
        async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(other)) as move:
            await move.run("m")
    assert await is_served(source)
    async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(target)) as move:
        with pytest.raises(ConflictError, match="here is not being moved"):
            await move.give_up()
        await move.run("m")
        with pytest.raises(ConflictError, match="run the command without --abort"):
            await move.give_up()
    with pytest.raises(ConflictError, match="here was moved to there, not to elsewhere"):
        async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(MemoryDisk()), "elsewhere") as move:
            await move.run("m")
    with pytest.raises(ConflictError, match="nothing is there"):
        async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(MemoryDisk())) as move:
            await move.run("m")


async def test_a_preview_counts_and_changes_nothing() -> None:
    source, target = filled(), MemoryDisk()

    async with moving(lambda: MemoryProvider(source), lambda: MemoryProvider(target)) as move:
        sums = await move.preview()

    assert (sums.actors, sums.rows) == (4, 43)
    assert NOTES not in source.maps
    assert not target.maps


async def test_one_of_several_stores_is_itself_after_a_move() -> None:
    disks = {name: MemoryDisk() for name in ("default", "eu")}
    stores = named_stores({name: MemoryProvider(disk) for name, disk in disks.items()}, {"eu-*": "eu"})
    await stores.start()
    eu = await stores.open("scheduler/eu-1")
    await eu.commit(Batch({b"k": b"v"}))
    await stores.stop()
    target = MemoryDisk()

    async with moving(lambda: MemoryProvider(disks["eu"]), lambda: MemoryProvider(target)) as move:
        await move.run("m")

    assert target.maps[NOTES].get(RESIDENCY) == disks["eu"].maps[NOTES].get(RESIDENCY)
    moved = named_stores({"default": MemoryProvider(disks["default"]), "eu": MemoryProvider(target)}, {"eu-*": "eu"})
    await moved.start()
    assert await moved.exists("scheduler/eu-1")
    await moved.stop()


async def test_files_move_too_and_back(tmp_path: Path) -> None:
    first, memory, second = tmp_path / "a.db", MemoryDisk(), tmp_path / "b.db"
    provider = SQLiteProvider(first)
    await provider.start()
    for name, (rows, wake_at) in ACTORS.items():
        store = await provider.open(name)
        await store.commit(Batch(rows, wake_at=wake_at))
    await provider.stop()

    async with moving(lambda: SQLiteProvider(first), lambda: MemoryProvider(memory)) as move:
        there = await move.run("m")
    async with moving(lambda: MemoryProvider(memory), lambda: SQLiteProvider(second), "back") as move:
        back = await move.run("m2")

    assert content(memory) == ACTORS
    assert back == there


# ---- Stores that several hosts share -------------------------------------------------------------


def host_of(disk: SharedDisk) -> OwnedProvider:
    return OwnedProvider(DiskEngine(disk), durable=False)


def mover_of(disk: SharedDisk) -> OwnedProvider:
    provider = host_of(disk)
    keep_all(provider)
    return provider


async def shared_source() -> SharedDisk:
    """Return a shared store with the actors."""
    disk = SharedDisk()
    host = host_of(disk)
    await host.start()
    for name, (rows, wake_at) in ACTORS.items():
        store = await host.open(name)
        await store.commit(Batch(dict(rows), wake_at=wake_at))
        await store.close()
    await host.stop()
    return disk


async def test_a_host_that_comes_before_a_move_is_noted_is_seen_and_the_move_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tocsin.storage.moving.OPEN_S", 0.2)
    source, target = await shared_source(), MemoryDisk()
    came: list[OwnedProvider] = []

    async def late(provider: StoreProvider, notes: Mapping[bytes, bytes | None]) -> None:
        if not came:  # it read no note, and was not there when the move looked for hosts
            came.append(host_of(source))
            await came[0].start()
            await fit_to_serve(came[0])
        await write_notes(provider, notes)

    monkeypatch.setattr("tocsin.storage.moving.write_notes", late)
    async with moving(lambda: mover_of(source), lambda: MemoryProvider(target)) as move:
        with pytest.raises(StoreLocked, match=r"here is in use by .*: stop all hosts of it"):
            await move.run("m")

    await fit_to_serve(came[0])
    await came[0].stop()
    assert await is_served(target)
    assert not content(target)
    async with moving(lambda: mover_of(source), lambda: MemoryProvider(target)) as move:
        await move.run("m")
    assert content(target) == ACTORS


async def test_hosts_that_come_while_a_store_is_moved_are_refused_and_hold_nothing_up() -> None:
    source, target = await shared_source(), MemoryDisk()
    refused: list[str] = []

    class Visited(MemoryProvider):
        async def write(self, writes: Sequence[ActorWrites]) -> None:
            if len(refused) < 5:
                host = host_of(source)
                await host.start()
                ring = Ring({row.host: row.weight for row in await host.engine.hosts()})
                assert not ring.won_by(host.owner), "it would take actors from under the copy"
                with pytest.raises(StoreMoved) as said:
                    await fit_to_serve(host)
                refused.append(str(said.value))
                await host.stop()
            await super().write(writes)

    async with moving(lambda: mover_of(source), lambda: Visited(target)) as move:
        await move.run("m")

    assert content(target) == ACTORS
    assert len(refused) == 5
    assert "is being moved to there" in refused[0]


async def test_a_store_with_calls_in_its_mail_is_not_moved() -> None:
    source, target = await shared_source(), MemoryDisk()
    host = host_of(source)
    await host.start()
    await host.mailbox.send("scheduler/a", "a" * 32, b"accepted")
    await host.stop()

    async with moving(lambda: mover_of(source), lambda: MemoryProvider(target)) as move:
        with pytest.raises(ConflictError, match=r"wait in the mail of here \(1\)"):
            await move.preview()
        with pytest.raises(ConflictError, match=r"wait in the mail of here \(1\)"):
            await move.run("m")

    host = host_of(source)
    await host.start()
    await fit_to_serve(host)
    await host.stop()
