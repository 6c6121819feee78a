"""The outbox examples, dying at every step and run again: each committed row is one job, the others are none."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from tests.examples.example_process import DEADLINE_S, EXAMPLES
from tests.postgres import Postgres

OF_APP, OF_DRAIN = 4, 11
"""Forks that are to die at a step of the app, and of the drain: more than either example has of them."""
FORKS = OF_APP + OF_DRAIN


@pytest.fixture(scope="module")
def folders(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the forks of each example worked; both at the same time, as they mostly wait."""
    asyncio.run(make_schemas(postgres.url("postgres")))
    databases = {"sqlalchemy": "", "asyncpg": postgres.url("postgres") + "&search_path=fork{n}"}
    folders = {name: tmp_path_factory.mktemp(name) for name in databases}
    running = [started(name, folders[name], database) for name, database in databases.items()]
    for process in running:
        said, _ = process.communicate(timeout=2 * DEADLINE_S)
        assert process.returncode == 0 and "Traceback" not in said, said
    return folders


def started(name: str, folder: Path, database: str) -> subprocess.Popen[str]:
    words = ["tests.examples.crashing", str(EXAMPLES / f"outbox_{name}.py"), str(folder), database]
    return subprocess.Popen(
        [sys.executable, "-m", *words, str(OF_APP), str(OF_DRAIN)],
        cwd=Path(__file__).parents[2], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def died_at(folder: Path) -> list[str]:
    """The steps."""
    found = [folder / str(n) / "died" for n in range(1, FORKS + 1)]
    assert not found[OF_APP - 1].exists() and not found[-1].exists(), "there are more steps than forks"
    died = [path.read_text() for path in found if path.exists()]
    assert {"before the app's INSERT", "before the submission", "after the submission"} <= {*died}
    assert {"before UPDATE", "before DELETE", "before COMMIT", "after COMMIT"} <= {*died}
    return died


def test_every_order_of_the_sqlalchemy_example_is_confirmed_once(folders: dict[str, Path]) -> None:
    died = died_at(folders["sqlalchemy"])

    for n in range(1, FORKS + 1):
        with closing(sqlite3.connect(folders["sqlalchemy"] / str(n) / "orders.db")) as db:
            orders = db.execute("SELECT item, confirmations FROM orders ORDER BY number").fetchall()
            assert db.execute("SELECT * FROM tocsin_outbox").fetchall() == []
        assert {confirmations for _, confirmations in orders} == {1}, (n, died)
        assert "regret" not in dict(orders)
        assert len(orders) in (2, 4)


def test_every_transfer_of_the_asyncpg_example_is_told_once(postgres: Postgres, folders: dict[str, Path]) -> None:
    died = died_at(folders["asyncpg"])

    async def look() -> None:
        connection = await asyncpg.connect(postgres.url("postgres"))
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
