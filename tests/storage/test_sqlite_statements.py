"""A transaction of SQLite takes few statements: each lets go of the GIL, which an app may keep busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.storage.api import Batch
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio
ROWS = 100


async def test_rows_are_put_and_deleted_many_at_a_time(tmp_path: Path) -> None:
    provider = SQLiteProvider(tmp_path / "s.db")
    await provider.start()
    try:
        one, other = await provider.open("one"), await provider.open("other")
        for store in (one, other):
            await store.commit(Batch({b"old%03d" % n: b"%d" % n for n in range(ROWS)}))
        ran: list[str] = []
        await provider._writer.run(provider._file._db.set_trace_callback, ran.append)
        commits = [
            store.commit(Batch({b"new%03d" % n: b"" for n in range(ROWS)}, {b"old%03d" % n for n in range(1, ROWS)}))
            for store in (one, other)
        ]
        for commit in commits:
            await commit

        rows = 2 * (ROWS + ROWS - 1)
        of_rows = [sql for sql in ran if " kv " in sql]
        assert len(of_rows) <= rows / 16 + 4
        assert len(ran) - len(of_rows) <= 2 * 3  # of one or two transactions: begin, the number, commit
        for store in (one, other):
            left = await store.scan(b"", b"\xff", limit=2 * ROWS)
            assert [key for key, _ in left] == [*(b"new%03d" % n for n in range(ROWS)), b"old000"]
    finally:
        await provider.stop()
