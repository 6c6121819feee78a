"""Repairing the rows of a stopped scheduler: interrupted anywhere, a repair loses nothing and can be run again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from tests.actors.scheduler.turn_runner import TurnRunner
from tocsin.actors.scheduler.integrity import repair
from tocsin.actors.scheduler.integrity.findings import Findings
from tocsin.actors.scheduler.integrity.invariants import check, examine
from tocsin.actors.scheduler.integrity.repair import repair_rows
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import InstanceRow, LinesRow, RedriveRow, decode, encode, timer_key
from tocsin.actors.scheduler.transitions.claim import claim
from tocsin.actors.scheduler.transitions.settle import AttemptResult, settle
from tocsin.actors.scheduler.transitions.submit import submit
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.errors import StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk, MemoryProvider, SortedMap

NAME = "scheduler/runner"
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
    runner = await TurnRunner.open(provider)
    await runner.turn(lambda turn: submit(turn, [runner.job(f"j{n}", pool="p") for n in range(JOBS)]))
    await run_some(runner)
    rows = await runner.view.scan(b"line/", b"line0", limit=100)
    twice = {key.replace(b"/09/", b"/03/"): value for key, value in rows[:4]}
    strays = {b"args/nobody%d/00" % n: b"x" for n in range(5)} | {b"at/j1": b"garbage", b"dead/j2": b"garbage"}
    await runner.store.commit(Batch(twice | strays, {key for key, _ in rows[4:7]}))
    await provider.stop()
    return disk


async def run_some(runner: TurnRunner) -> None:
    """Beside those in line: letters, a lease, expiries, a job that was tried, one with pieces of args, a redrive."""
    expiring = [runner.job(f"e{n}", expires_at=runner.now + 10**9, priority=n) for n in range(4)]
    big = new_job_with_pieces(runner)
    await runner.turn(lambda turn: submit(turn, [*expiring, big]))
    claims = {one.job.id: one for one in await runner.turn(lambda turn: claim(turn, 5))}
    ends = {"e3": Verdict.DEAD, "e2": Verdict.FAILED, "e1": Verdict.DEAD, "e0": Verdict.ACCEPTED}
    finished = [
        AttemptResult(claims[name].job, claims[name].token, AttemptOutcome(ends[name]))
        for name in ends
        if name in claims
    ]
    assert len(finished) >= 3
    await runner.turn(lambda turn: settle(turn, finished))
    row = RedriveRow(before=runner.now + 10, rate=1, matched=2, next_at=runner.now + 5)
    await runner.store.commit(
        Batch(
            {b"redrive/r": encode(row), timer_key(row.next_at, "redrive", "r"): b"", b"instance": encode(InstanceRow())}
        )
    )


def new_job_with_pieces(runner: TurnRunner) -> NewJob:
    made = runner.job("big", delay=5)
    job = msgspec.structs.replace(made.job, args=b'{"a":"', args_rows=2)
    return msgspec.structs.replace(made, job=job, rest_of_args=(b"x" * 10, b'y"}'))


async def repaired(disk: MemoryDisk, commits: int) -> bool:
    """Whether it came to its end within so many commits."""
    provider = Failing(disk, commits)
    await provider.start()
    try:
        await repair_rows(await provider.open(NAME))
        return True
    except StoreUnavailable:
        return False
    finally:
        await provider.stop()


async def examined(disk: MemoryDisk) -> tuple[Findings, dict[bytes, bytes]]:
    """Findings, and all rows."""
    provider = MemoryProvider(disk)
    await provider.start()
    view = provider.view(NAME)
    rows = dict(await view.scan(b"\x01", b"\xff", limit=5_000))
    found = await examine(view, disk.wakes[NAME])
    await provider.stop()
    return found, rows


async def state_of(disk: MemoryDisk) -> tuple[list[str], dict[bytes, bytes]]:
    """Faults, and all rows."""
    found, rows = await examined(disk)
    return [fault.message for fault in found.faults], rows


@pytest.mark.parametrize("at_once", [1, 3, 5_000])
def test_stopped_at_any_commit_it_loses_nothing_and_is_done_again(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "KEYS_AT_ONCE", at_once)

    async def main() -> None:
        commits = 0
        while True:
            disk = await broken()
            _, before = await state_of(disk)
            waiting = sum(key.startswith(b"job/") for key in before) - len(holders(before))
            done = await repaired(disk, commits)
            _, between = await state_of(disk)
            assert said(before) <= said(between), f"after {commits} commits something is lost"
            if not done:
                assert await repaired(disk, 1_000)
            faults, after = await state_of(disk)
            assert faults == []
            assert said(before) <= said(after)
            assert sum(key.startswith(b"line/") for key in after) == waiting
            if done:
                break
            commits += 1
        assert commits >= 2 or at_once > 100

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_done_to_its_rows_no_job_is_lost_and_it_is_sound_again(seed: int) -> None:
    """Bytes flipped in keys and values, rows dropped, doubled and swapped, a few at a time."""

    async def main() -> None:
        random = Random(seed)
        disk = await broken()
        assert await repaired(disk, 1_000)
        _, sound = await state_of(disk)
        for _ in range(5):
            rows = dict(sound)
            for _ in range(random.randint(1, 6)):
                vandalise(rows, random)
            disk.maps[NAME] = SortedMap()
            disk.maps[NAME].apply(dict(rows))
            if rows.get(b"meta/layout", b"1") != b"1":
                continue  # not judged, and not repaired
            assert await repaired(disk, 1_000)
            found, after = await examined(disk)
            assert {fault.code for fault in found.faults if not fault.kind.for_people} == set(), found.faults
            jobs = {(key, value) for key, value in rows.items() if key.startswith(b"job/")}
            assert jobs <= {(key.removeprefix(b"bad/"), value) for key, value in after.items()}

    asyncio.run(main())


def vandalise(rows: dict[bytes, bytes], random: Random) -> None:
    key = random.choice(sorted(rows))
    other = random.choice(sorted(rows))
    what = random.randrange(6)
    if what == 0:
        rows[key] = flipped(rows[key], random)
    elif what == 1:
        rows[flipped(key, random)] = rows[key] if key.startswith(b"job/") else rows.pop(key)
    elif what == 2 and not key.startswith(b"job/"):
        del rows[key]
    elif what == 3:
        rows[flipped(key, random)] = rows[key]
    elif what == 4:
        rows[key], rows[other] = rows[other], rows[key]
    else:
        rows[key] = rows[key][: random.randrange(len(rows[key]) + 1)]


def flipped(data: bytes, random: Random) -> bytes:
    if not data:
        return b"?"
    at = random.randrange(len(data))
    return data[:at] + bytes([random.randrange(1, 255)]) + data[at + 1 :]


def meaning(key: bytes, value: bytes) -> object:
    """The priorities of a line may be written in any order."""
    return decode(LinesRow, key, value).buckets if key.startswith(b"lines/") else value


def holders(rows: dict[bytes, bytes]) -> set[bytes]:
    """Ids of jobs that run or are dead. (The letter of j2 is garbage, and no entry tells of it: it waits.)"""
    return {key.split(b"/")[1] for key in rows if key.startswith((b"lease/", b"dead/"))} - {b"j2"}


def said(rows: dict[bytes, bytes]) -> set[tuple[bytes, bytes]]:
    """What rows say that follows from no other row, whether in its place or set aside."""
    derived = (b"line/", b"lines/", b"timer/", b"parked/", b"meta/")
    own = ((key.removeprefix(b"bad/"), value) for key, value in rows.items())
    return {(key, value) for key, value in own if not key.startswith(derived)}


def test_mending_what_is_sound_changes_nothing_but_the_wake_time() -> None:
    async def main() -> None:
        disk = await broken()
        assert await repaired(disk, 1_000)
        _, once = await state_of(disk)
        assert await repaired(disk, 1_000)
        faults, twice = await state_of(disk)
        assert faults == []
        assert {key: meaning(key, value) for key, value in twice.items()} == {
            key: meaning(key, value) for key, value in once.items()
        }
        assert disk.wakes[NAME] == 0

    asyncio.run(main())


def test_rows_that_were_set_aside_are_told_of_by_the_check_of_tests() -> None:
    async def main() -> None:
        disk = await broken()
        assert await repaired(disk, 1_000)
        provider = MemoryProvider(disk)
        await provider.start()
        told = await check(provider.view(NAME), 0)
        assert "set aside: bad/at/j1" in told
        assert "set aside: bad/dead/j2" in told

    asyncio.run(main())
