"""The stores of claims against one model, and what is particular to each."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.file_modes import rights_in
from tocsin import MemoryDedup, SQLiteDedup
from tocsin.dispatch.receiver.dedup import AnswerKeeping, Claim, Found
from tocsin.errors import SettingsError, StoreClosed, StoreUnavailable

pytestmark = pytest.mark.anyio

RETENTION_S = 100
IDS = st.sampled_from(["a:1", "b:1"])
LEASES = st.sampled_from(["1.1.x", "1.2.x", "1.3.x"])


@dataclass
class Known:
    """The model's memory of one webhook-id, in plain words."""

    holder: str | None = None
    until: int = 0
    done: bool = False
    last: str = ""
    newest: int = 0
    touched: int = 0
    answer: bytes | None = None


@dataclass
class Model:
    """What a store of claims must answer, written without looking at the rules."""

    known: dict[str, Known] = field(default_factory=dict)

    def of(self, webhook_id: str, now: int) -> Known | None:
        known = self.known.get(webhook_id)
        return None if known is None or self.is_old(known, now) else known

    def is_old(self, known: Known, now: int) -> bool:
        return now >= known.touched + RETENTION_S * 1000 and not (known.holder and now < known.until)

    def claim(self, claim: Claim, now: int) -> Found:
        known = self.of(claim.webhook_id, now)
        if known and known.done:
            return Found.DONE
        if known and known.holder and now < known.until:
            return Found.RUNNING
        if known and (claim.lease == known.last or claim.sent_ms < known.newest):
            return Found.SEEN
        self.known[claim.webhook_id] = Known(claim.lease, claim.until_ms, False, claim.lease, claim.sent_ms, now)
        return Found.NEW

    def change(
        self, webhook_id: str, lease: str, now: int, how: str, until: int = 0, answer: bytes | None = None
    ) -> bool:
        known = self.of(webhook_id, now)
        if known is None or known.last != lease or (how != "finish" and known.holder is None):
            return False
        known.touched = now
        if how == "hold":
            known.until = until
            return True
        known.holder, known.done, known.answer = None, how == "finish", answer
        return True

    def answer(self, webhook_id: str, now: int) -> bytes | None:
        known = self.of(webhook_id, now)
        return known.answer if known and known.done else None


class BothStores(RuleBasedStateMachine):
    """Every call is made of the model, of memory and of a file, and they must agree."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.model, self.now = Model(), 1_000_000
        self.path = Path(self.folder.name, "dedup.db")
        self.stores: list[AnswerKeeping] = [
            MemoryDedup(retention_s=RETENTION_S),
            SQLiteDedup(self.path, retention_s=RETENTION_S),
            SQLiteDedup(self.path, retention_s=RETENTION_S),  # another process's handle on the same file
        ]
        self.turn = 0

    def both(self, call: Callable[[AnswerKeeping], Any]) -> Any:
        self.turn += 1
        answers = [self.runner.run(call(store)) for store in (self.stores[0], self.stores[1 + self.turn % 2])]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(ms=st.sampled_from([1, 50, 900, 30_000, 100_000]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @precondition(lambda self: not any(self.model.is_old(known, self.now) for known in self.model.known.values()))
    @rule(ms=st.sampled_from([5, 2_000]))
    def the_clock_steps_back(self, ms: int) -> None:
        """Not over the end of a retention: what is old may be forgotten already, or not."""
        self.now -= ms

    @rule(webhook_id=IDS, lease=LEASES, ago=st.sampled_from([0, 0, 1, 60_000]), lasts=st.sampled_from([100, 40_000]))
    def claim(self, webhook_id: str, lease: str, ago: int, lasts: int) -> None:
        claim = Claim(webhook_id, lease, self.now - ago, self.now + lasts)
        assert self.both(lambda store: store.claim(claim, now_ms=self.now)) is self.model.claim(claim, self.now)

    @rule(webhook_id=IDS, lease=LEASES, lasts=st.sampled_from([0, 50_000, 200_000]))
    def hold(self, webhook_id: str, lease: str, lasts: int) -> None:
        until = self.now + lasts
        answer = self.both(lambda store: store.hold(webhook_id, lease, until_ms=until, now_ms=self.now))
        assert answer == self.model.change(webhook_id, lease, self.now, "hold", until)

    @rule(webhook_id=IDS, lease=LEASES)
    def release(self, webhook_id: str, lease: str) -> None:
        answer = self.both(lambda store: store.release(webhook_id, lease, now_ms=self.now))
        assert answer == self.model.change(webhook_id, lease, self.now, "release")

    @rule(webhook_id=IDS, lease=LEASES, kept=st.sampled_from([None, b"1{}", b"0no"]))
    def finish(self, webhook_id: str, lease: str, kept: bytes | None) -> None:
        answer = self.both(lambda store: store.finish(webhook_id, lease, now_ms=self.now, answer=kept))
        assert answer == self.model.change(webhook_id, lease, self.now, "finish", answer=kept)

    @invariant()
    def the_answers_are_those_of_the_ends_that_hold(self) -> None:
        for webhook_id in ("a:1", "b:1"):
            found = self.both(lambda store, of=webhook_id: store.answer(of, now_ms=self.now))  # type: ignore[misc]
            assert found == self.model.answer(webhook_id, self.now)

    @invariant()
    def nothing_is_kept_for_ever(self) -> None:
        memory = self.stores[0]
        assert isinstance(memory, MemoryDedup) and len(memory) <= 2

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.aclose())
        self.runner.close()
        self.folder.cleanup()


TestBothStores = BothStores.TestCase
TestBothStores.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


def claim_of(n: int, until_ms: int = 1_000) -> Claim:
    return Claim(f"job-{n}:1", f"1.{n}.x", 0, until_ms)


async def test_memory_forgets_what_is_old_and_the_oldest_over_its_limit_but_never_work() -> None:
    dedup = MemoryDedup(retention_s=60, limit=10)
    assert await dedup.claim(claim_of(0, until_ms=10_000_000), now_ms=0) is Found.NEW  # stays at work
    for n in range(1, 50):
        assert await dedup.claim(claim_of(n, until_ms=10_000_000), now_ms=n) is Found.NEW
        assert await dedup.finish(f"job-{n}:1", f"1.{n}.x", now_ms=n)

    assert len(dedup) == 10
    assert await dedup.claim(claim_of(0), now_ms=60) is Found.RUNNING
    assert await dedup.claim(claim_of(49), now_ms=60) is Found.DONE
    assert await dedup.claim(claim_of(1), now_ms=60) is Found.NEW, "forgotten over the limit"

    await dedup.finish("job-0:1", "1.0.x", now_ms=61)
    await dedup.claim(claim_of(99), now_ms=200_000)
    assert len(dedup) == 1


async def test_a_file_is_pruned_by_what_comes_in(tmp_path: Path) -> None:
    dedup = SQLiteDedup(tmp_path / "dedup.db", retention_s=60)
    await dedup.claim(claim_of(999, until_ms=100_000), now_ms=0)
    for n in range(100):
        await dedup.claim(claim_of(n), now_ms=0)
    for n in range(100, 105):
        await dedup.claim(claim_of(n, until_ms=100_000), now_ms=70_000)
    assert await dedup.claim(claim_of(999), now_ms=70_000) is Found.RUNNING, "work is kept as long as it may go on"
    await dedup.aclose()

    with closing(sqlite3.connect(tmp_path / "dedup.db")) as db:
        assert db.execute("SELECT count(*) FROM tocsin_dedup_1").fetchone() == (6,)


async def test_a_file_forgets_at_its_retention_what_is_not_pruned_yet(tmp_path: Path) -> None:
    """Only so many rows are pruned at once."""
    dedup = SQLiteDedup(tmp_path / "dedup.db", retention_s=60)
    await dedup.claim(claim_of(1), now_ms=0)
    await dedup.finish("job-1:1", "1.1.x", now_ms=0, answer=b"a result")

    assert await dedup.answer("job-1:1", now_ms=59_000) == b"a result"
    assert await dedup.answer("job-1:1", now_ms=61_000) is None
    assert not await dedup.hold("job-1:1", "1.1.x", until_ms=90_000, now_ms=61_000)
    await dedup.aclose()


async def test_what_is_said_to_be_done_is_on_the_disk(tmp_path: Path) -> None:
    """2 is FULL: with NORMAL a power failure takes back what was answered."""
    dedup = SQLiteDedup(tmp_path / "dedup.db")
    pragmas = await dedup._do(
        lambda db: [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]
    )
    await dedup.aclose()

    assert pragmas == [2, "wal"]


async def test_the_right_to_write_is_taken_before_anything_is_read(tmp_path: Path) -> None:
    """Of two that read and then write one would be refused in its middle, however long it waited."""
    dedup = SQLiteDedup(tmp_path / "dedup.db")

    def look(db: sqlite3.Connection) -> None:
        db.execute("SELECT count(*) FROM tocsin_dedup_1").fetchone()
        other = sqlite3.connect(tmp_path / "dedup.db", timeout=0, isolation_level=None)
        with closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")

    await dedup._do(look)
    await dedup.aclose()


async def test_what_was_done_outlives_the_process_and_so_does_a_claim(tmp_path: Path) -> None:
    path = tmp_path / "dedup.db"
    first = SQLiteDedup(path)
    await first.claim(claim_of(1), now_ms=0)
    await first.finish("job-1:1", "1.1.x", now_ms=0)
    await first.claim(claim_of(2), now_ms=0)
    await first.aclose()

    second = SQLiteDedup(path)
    assert await second.claim(claim_of(1), now_ms=1) is Found.DONE
    newer = Claim("job-2:1", "1.7.x", 0, 9_000)
    assert await second.claim(newer, now_ms=999) is Found.RUNNING
    assert await second.claim(newer, now_ms=1_000) is Found.NEW, "stale, so taken over"
    assert not await second.finish("job-2:1", "1.2.x", now_ms=1_001), "superseded: too late"
    assert not await second.release("job-2:1", "1.2.x", now_ms=1_001)
    assert await second.finish("job-2:1", "1.7.x", now_ms=1_001)
    await second.aclose()


async def test_a_cancelled_call_is_made_to_its_end(tmp_path: Path) -> None:
    """Otherwise a claim could be taken that nobody knows of."""
    dedup = SQLiteDedup(tmp_path / "dedup.db")
    for n in range(20):
        task = asyncio.create_task(dedup.claim(claim_of(n), now_ms=0))
        for _ in range(n % 4):
            await asyncio.sleep(0)
        begun = n % 4 > 0
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() is not begun
        if begun:
            assert task.result() is Found.NEW
    await dedup.aclose()


async def test_a_store_that_cannot_be_used_says_so_and_recovers(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    dedup = SQLiteDedup(folder / "dedup.db")

    with pytest.raises(StoreUnavailable, match=r"dedup\.db"):
        await dedup.claim(claim_of(1), now_ms=0)
    folder.mkdir()
    assert await dedup.claim(claim_of(1), now_ms=0) is Found.NEW
    await dedup.aclose()
    with pytest.raises(StoreClosed):
        await dedup.claim(claim_of(2), now_ms=0)
    await dedup.aclose()


async def test_a_new_file_is_for_its_owner_only_and_one_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        dedup = SQLiteDedup(tmp_path / "received.db")
        await dedup.claim(claim_of(1), now_ms=0)
        rights = rights_in(tmp_path)
        await dedup.aclose()
    finally:
        os.umask(before)
    dedup.path.chmod(0o640)
    again = SQLiteDedup(dedup.path)
    await again.claim(claim_of(2), now_ms=0)
    await again.aclose()

    assert rights == dict.fromkeys(("received.db", "received.db-wal", "received.db-shm"), 384)
    assert rights_in(tmp_path)["received.db"] == 0o640


async def test_a_file_that_is_no_database_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes " * 1000)
    dedup = SQLiteDedup(path)

    with pytest.raises(StoreUnavailable, match="not a database"):
        await dedup.claim(claim_of(1), now_ms=0)
    await dedup.aclose()
    assert path.read_text() == "my notes " * 1000


async def test_a_lock_held_by_another_program_does_not_stop_the_event_loop(tmp_path: Path) -> None:
    dedup = SQLiteDedup(tmp_path / "dedup.db")
    await dedup.claim(claim_of(1), now_ms=0)
    with closing(sqlite3.connect(tmp_path / "dedup.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.create_task(dedup.claim(claim_of(2), now_ms=0))
        turns = 0
        while turns < 1_000:
            await asyncio.sleep(0)
            turns += 1
        assert not waiting.done()
        other.execute("ROLLBACK")
    assert await waiting is Found.NEW
    await dedup.aclose()


async def test_a_fork_opens_the_file_anew(tmp_path: Path) -> None:
    dedup = SQLiteDedup(tmp_path / "dedup.db")
    await dedup.claim(claim_of(1), now_ms=0)
    before = dedup._opened()
    before.pid = os.getpid() + 1  # as the child sees it

    assert await dedup.claim(claim_of(1), now_ms=0) is Found.RUNNING
    assert dedup._opened() is not before
    await dedup.aclose()
    before.pid = os.getpid()
    await asyncio.wrap_future(before.close())


@pytest.mark.parametrize("retention_s", [0, -1, float("nan"), float("inf"), "1d", True])
def test_a_retention_that_is_none_is_refused(retention_s: Any) -> None:
    with pytest.raises(SettingsError, match="retention_s"):
        MemoryDedup(retention_s=retention_s)
    with pytest.raises(SettingsError, match="retention_s"):
        SQLiteDedup("unused.db", retention_s=retention_s)


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_file_needs_a_name(path: str) -> None:
    with pytest.raises(SettingsError, match="path"):
        SQLiteDedup(path)


WORKER = """
import asyncio, sys
from tocsin import SQLiteDedup
from tocsin.dispatch.receiver.dedup import Claim, Found

async def main(path, me, jobs):
    dedup = SQLiteDedup(path)
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(jobs):
        claim = Claim(f"job-{n}:1", f"1.{me}.x", 0, 60_000)
        if await dedup.claim(claim, now_ms=0) is Found.NEW:
            print(n, flush=True)
            assert await dedup.finish(claim.webhook_id, claim.lease, now_ms=0)
    await dedup.aclose()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


def test_processes_that_share_a_file_from_its_first_moment_run_each_job_once(tmp_path: Path) -> None:
    jobs = 40
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "dedup.db"), str(me), str(jobs)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for me in range(4)
    ]  # fmt: skip
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]

    assert [worker.returncode for worker in workers] == [0] * 4
    assert sorted(int(n) for output in outputs for n in output.split()) == list(range(jobs))
