"""The outbox examples, dying at every step and run again: each committed row is one job, the others are none."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import asyncpg

from tests.examples.running import DEADLINE_S, EXAMPLES
from tests.postgres import Postgres

FORKS = 14


def run_forks(example: str, folder: Path, database: str = "") -> list[str]:
    """At which steps they died."""
    words = ["tests.examples.crashing", str(EXAMPLES / example), str(folder), database, str(FORKS)]
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=2 * DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    found = [folder / str(n) / "died" for n in range(1, FORKS + 1)]
    died = [path.read_text() for path in found if path.exists()]
    assert len(died) < FORKS, "there are more steps than forks"
    assert {"before the app's INSERT", "before the submission", "after the submission"} <= {*died}
    assert {"before UPDATE", "before DELETE", "before COMMIT", "after COMMIT"} <= {*died}
    return died


def test_every_order_of_the_sqlalchemy_example_is_confirmed_once(tmp_path: Path) -> None:
    died = run_forks("outbox_sqlalchemy.py", tmp_path)

    for n in range(1, FORKS + 1):
        with closing(sqlite3.connect(tmp_path / str(n) / "orders.db")) as db:
            orders = db.execute("SELECT item, confirmations FROM orders ORDER BY number").fetchall()
            assert db.execute("SELECT * FROM tocsin_outbox").fetchall() == []
        assert {confirmations for _, confirmations in orders} == {1}, (n, died)
        assert "regret" not in dict(orders)
        assert len(orders) in (2, 4)


def test_every_transfer_of_the_asyncpg_example_is_told_once(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.url(postgres.database())
    asyncio.run(make_schemas(url))
    died = run_forks("outbox_asyncpg.py", tmp_path, url + "&search_path=fork{n}")

    async def look() -> None:
        connection = await asyncpg.connect(url)
        for n in range(1, FORKS + 1):
            transfers = await connection.fetch(f"SELECT payee, told FROM fork{n}.transfers")
            assert {(row["payee"], row["told"]) for row in transfers} == {("bob", 1)}, (n, died)
            balance = await connection.fetchval(f"SELECT balance FROM fork{n}.accounts WHERE owner = 'bob'")
            assert balance == 10 * len(transfers)
            assert await connection.fetch(f"SELECT * FROM fork{n}.tocsin_outbox") == []
        await connection.close()

    asyncio.run(look())


async def make_schemas(url: str) -> None:
    connection = await asyncpg.connect(url)
    for n in range(1, FORKS + 1):
        await connection.execute(f"CREATE SCHEMA fork{n}")
    await connection.close()
