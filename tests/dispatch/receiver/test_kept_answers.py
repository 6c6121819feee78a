"""What stores of claims keep of answers, how long and how much, and files that older versions made or share."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.dispatch.receiver.test_dedup import claim_of
from tocsin import MemoryDedup, SQLiteDedup
from tocsin.dispatch.receiver.dedup import AnswerKeeping, Found
from tocsin.errors import SettingsError

pytestmark = pytest.mark.anyio


async def done(dedup: AnswerKeeping, n: int, answer: bytes | None, now_ms: int = 0) -> None:
    assert await dedup.claim(claim_of(n), now_ms=now_ms) is Found.NEW
    assert await dedup.finish(f"job-{n}:1", f"1.{n}.x", now_ms=now_ms, answer=answer)


async def test_memory_keeps_so_many_bytes_of_answers_and_their_jobs_stay_done() -> None:
    dedup = MemoryDedup(answer_bytes=250)
    for n in range(3):
        await done(dedup, n, b"%d" % n * 100)
    kept = [await dedup.answer(f"job-{n}:1", now_ms=0) for n in range(3)]

    assert kept == [None, b"1" * 100, b"2" * 100]
    assert await dedup.claim(claim_of(0), now_ms=0) is Found.DONE
    await done(dedup, 3, b"3" * 251)
    assert [await dedup.answer(f"job-{n}:1", now_ms=0) for n in range(4)] == [None] * 4
    await done(dedup, 4, b"4" * 250)
    assert await dedup.answer("job-4:1", now_ms=0) == b"4" * 250


async def test_memory_forgets_an_answer_with_its_job() -> None:
    dedup = MemoryDedup(retention_s=60, limit=1, answer_bytes=100)
    for n in range(5):
        await done(dedup, n, b"x" * 100)
    await dedup.claim(claim_of(9), now_ms=60_000)

    assert len(dedup._answers._by_id) == dedup._answers._size == 0


@pytest.mark.parametrize("answer_bytes", [-1, 1.5, True, "64 MiB"])
def test_a_bound_of_answers_that_is_none_is_refused(answer_bytes: Any) -> None:
    with pytest.raises(SettingsError, match="answer_bytes must be a number of bytes from 0 on"):
        MemoryDedup(answer_bytes=answer_bytes)


async def test_answers_in_a_file_are_pruned_by_what_comes_in(tmp_path: Path) -> None:
    dedup = SQLiteDedup(tmp_path / "dedup.db", retention_s=60)
    for n in range(100):
        await done(dedup, n, b"1{}")
    for n in range(100, 105):
        await done(dedup, n, b"1{}", now_ms=70_000)
    await dedup.aclose()

    with closing(sqlite3.connect(tmp_path / "dedup.db")) as db:
        assert db.execute("SELECT count(*) FROM tocsin_dedup_answers_1").fetchone() == (5,)


OLDER_FILE = """
CREATE TABLE tocsin_dedup_1 (
    webhook_id TEXT PRIMARY KEY, lease TEXT NOT NULL, sent_ms INTEGER NOT NULL, state INTEGER NOT NULL,
    until_ms INTEGER NOT NULL, touched_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tocsin_dedup_1_touched ON tocsin_dedup_1 (touched_ms);
INSERT INTO tocsin_dedup_1 VALUES ('job-1:1', '1.1.x', 0, 2, 1000, 0), ('job-2:1', '1.2.x', 0, 1, 1000, 0)
"""


async def test_a_file_of_an_older_version_goes_on_and_both_versions_may_share_it(tmp_path: Path) -> None:
    """As while a new version is rolled out: what the older one writes is what it wrote before there were answers."""
    path = tmp_path / "dedup.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OLDER_FILE)
    dedup = SQLiteDedup(path, retention_s=60)

    assert await dedup.claim(claim_of(1), now_ms=1) is Found.DONE
    assert await dedup.answer("job-1:1", now_ms=1) is None
    assert await dedup.finish("job-2:1", "1.2.x", now_ms=1, answer=b"1{}")
    assert await dedup.answer("job-2:1", now_ms=1) == b"1{}"
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        older.execute("INSERT OR REPLACE INTO tocsin_dedup_1 VALUES ('job-2:1', '1.9.x', 1, 2, 1000, 2)")
    assert await dedup.answer("job-2:1", now_ms=3) is None, "of another run, which the older version has answered"
    await dedup.aclose()
