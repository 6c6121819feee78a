"""Mending the rows of a scheduler that nobody runs: stopped anywhere, it loses nothing and can be done again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.actors.scheduler.desk import Desk
from tocsin.actors.scheduler import mending
from tocsin.actors.scheduler.invariants import check, examine
from tocsin.actors.scheduler.mending import mend
from tocsin.actors.scheduler.submit import submit
from tocsin.errors import StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk, MemoryProvider

NAME = "scheduler/desk"
JOBS = 12


class Failing(MemoryProvider):
    """Dies at the nth commit."""

    def __init__(self, disk: MemoryDisk, commits: int) -> None:
        super().__init__(disk)
        self._left = commits
        self.asked = 0

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        self.asked += 1
        if self.asked > self._left:
            raise StoreUnavailable("the process died")
        await super().write(writes)


async def broken() -> MemoryDisk:
    """Lines, args, places and letters that do not fit together."""
    disk = MemoryDisk()
    provider = MemoryProvider(disk)
    await provider.start()
    desk = await Desk.open(provider)
    await desk.turn(lambda turn: submit(turn, [desk.job(f"j{n}", pool="p") for n in range(JOBS)]))
    rows = await desk.view.scan(b"line/", b"line0", limit=100)
    twice = {key.replace(b"/09/", b"/03/"): value for key, value in rows[:4]}
    strays = {b"args/nobody%d/00" % n: b"x" for n in range(5)} | {b"at/j1": b"garbage", b"dead/j2": b"garbage"}
    await desk.store.commit(Batch(twice | strays, {key for key, _ in rows[4:7]}))
    await provider.stop()
    return disk


async def mended(disk: MemoryDisk, commits: int) -> bool:
    """Whether it came to its end within so many commits."""
    provider = Failing(disk, commits)
    await provider.start()
    try:
        await mend(await provider.open(NAME))
        return True
    except StoreUnavailable:
        return False
    finally:
        await provider.stop()


async def state_of(disk: MemoryDisk) -> tuple[list[str], dict[bytes, bytes]]:
    """Faults, and all rows."""
    provider = MemoryProvider(disk)
    await provider.start()
    view = provider.view(NAME)
    rows = dict(await view.scan(b"\x01", b"\xff", limit=5_000))
    faults = [fault.message for fault in (await examine(view, disk.wakes[NAME])).faults]
    await provider.stop()
    return faults, rows


@pytest.mark.parametrize("at_once", [1, 3, 5_000])
def test_stopped_at_any_commit_it_loses_nothing_and_is_done_again(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mending, "KEYS_AT_ONCE", at_once)

    async def main() -> None:
        commits = 0
        while True:
            disk = await broken()
            _, before = await state_of(disk)
            done = await mended(disk, commits)
            _, between = await state_of(disk)
            assert said(before) <= said(between), f"after {commits} commits something is lost"
            if not done:
                assert await mended(disk, 1_000)
            faults, after = await state_of(disk)
            assert faults == []
            assert said(before) <= said(after)
            assert sum(key.startswith(b"line/") for key in after) == JOBS
            if done:
                break
            commits += 1
        assert commits >= 2 or at_once > 100

    asyncio.run(main())


def said(rows: dict[bytes, bytes]) -> set[tuple[bytes, bytes]]:
    """What rows say that follows from no other row, whether in its place or set aside."""
    derived = (b"line/", b"lines/", b"timer/", b"parked/", b"meta/")
    own = ((key.removeprefix(b"bad/"), value) for key, value in rows.items())
    return {(key, value) for key, value in own if not key.startswith(derived)}


def test_mending_what_is_sound_changes_nothing_but_the_wake_time() -> None:
    async def main() -> None:
        disk = await broken()
        assert await mended(disk, 1_000)
        _, once = await state_of(disk)
        assert await mended(disk, 1_000)
        faults, twice = await state_of(disk)
        assert (faults, twice) == ([], once)
        assert disk.wakes[NAME] == 0

    asyncio.run(main())


def test_rows_that_were_set_aside_are_told_of_by_the_check_of_tests() -> None:
    async def main() -> None:
        disk = await broken()
        assert await mended(disk, 1_000)
        provider = MemoryProvider(disk)
        await provider.start()
        told = await check(provider.view(NAME), 0)
        assert "set aside: bad/at/j1" in told
        assert "set aside: bad/dead/j2" in told

    asyncio.run(main())
