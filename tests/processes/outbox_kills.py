"""Drains killed with SIGKILL while rows are written: each committed row is one job, each rolled-back one is none.

python -m tests.processes.outbox_kills --kills 10 --rows 500
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import click

from tests.cli.processes import environment, tocsin_serve
from tests.postgres import postgres_server
from tests.processes.draining import HOLD_S
from tests.waiting import wait_until
from tocsin import ActorHost, Outbox
from tocsin.actors.outbox.entry import OutboxEntry

DEADLINE_S = 30
Write = Callable[[OutboxEntry, bool], None]


class Receiver:
    """Counts the incarnations that came for each number."""

    def __init__(self) -> None:
        self.came: defaultdict[int, set[str]] = defaultdict(set)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                receiver.came[body["args"]].add(self.headers["webhook-id"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        class Server(ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, 256

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def draining(database: str, place: str) -> Iterator[subprocess.Popen[str]]:
    """Killed at the end."""
    command = [sys.executable, "-m", "tests.processes.draining", database, place]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def started(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "draining\n"


@contextmanager
def writing(database: str) -> Iterator[Write]:
    """How the app writes a row, and commits or rolls back."""
    if database.startswith("postgresql:"):
        loop = asyncio.new_event_loop()
        connection = loop.run_until_complete(asyncpg.connect(database))

        def write_pg(entry: OutboxEntry, commit: bool) -> None:
            async def work() -> None:
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute(*entry.dollar)
                await (transaction.commit() if commit else transaction.rollback())

            loop.run_until_complete(work())

        for sql in Outbox().schema("postgresql"):
            loop.run_until_complete(connection.execute(sql))
        yield write_pg
        loop.run_until_complete(connection.close())
        loop.close()
        return
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for sql in Outbox().schema("sqlite"):
            db.execute(sql)

        def write(entry: OutboxEntry, commit: bool) -> None:
            db.execute("BEGIN IMMEDIATE")
            db.execute(*entry.qmark)
            db.execute("COMMIT" if commit else "ROLLBACK")

        yield write


def write(write_one: Write, committed: set[int], rows: int, **options: Any) -> None:
    """Some more rows; every other one is rolled back."""
    first = 2 * len(committed)
    for n in range(first, first + rows, 2):
        write_one(Outbox().run_after(0, "a:b", n, **options), True)
        write_one(Outbox().run_after(0, "a:b", n + 1, **options), False)
        committed.add(n)


def kill_drains(database: str, folder: Path, *, kills: int, rows: int) -> tuple[Counter[int], set[int]]:
    """Of drains that bring rows to one server: how many jobs came for each number, and the numbers committed."""
    random, committed = Random(20261129), set[int]()
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        server = stack.enter_context(tocsin_serve("--origin-url", receiver.url, "--insecure", cwd=folder))
        drains = [stack.enter_context(draining(database, place)) for place in [server.url()] * (kills + 1)]
        write_one = stack.enter_context(writing(database))
        for process in drains:
            started(process)
        for process in drains[1:]:
            write(write_one, committed, rows)
            time.sleep(random.uniform(0.0, 0.03))
            process.kill()
        wait_until(lambda: receiver.came.keys() >= committed)
        time.sleep(2 * HOLD_S)  # what was held when one died comes again, and changes nothing
        return Counter({n: len(came) for n, came in receiver.came.items()}), committed


def kill_hosts(database: str, folder: Path, *, kills: int, rows: int) -> tuple[Counter[int], set[int]]:
    """Of a host and its drain in one process, one after the other. Jobs of a queue, so that none of them runs: they
    are counted in the store."""
    random, committed, store = Random(20261129), set[int](), folder / "jobs.db"
    with writing(database) as write_one:
        for _ in range(kills):
            with draining(database, f"store:{store}") as process:
                write(write_one, committed, rows, queue="q")
                started(process)
                time.sleep(random.uniform(0.0, 0.06))
    with draining(database, f"store:{store}") as process, closing(sqlite3.connect(database)) as db:
        started(process)
        wait_until(lambda: db.execute("SELECT count(*) FROM tocsin_outbox").fetchone() == (0,))
        process.terminate()
        process.wait()

    async def found() -> Counter[int]:
        async with ActorHost.open(f"sqlite:///{store}") as host:
            return Counter([record.args async for record in host.scheduler().list_all()])

    return asyncio.run(found()), committed


@click.command()
@click.option("--kills", default=10)
@click.option("--rows", default=500, help="Written before each kill; half of them are rolled back.")
def main(kills: int, rows: int) -> None:
    """Drains killed while rows are written, in SQLite and PostgreSQL; hosts killed with their drains."""
    with postgres_server() as server:
        for name, kill, database in (
            ("drains, SQLite", kill_drains, ""),
            ("drains, PostgreSQL", kill_drains, server.url(server.database())),
            ("hosts, SQLite", kill_hosts, ""),
        ):
            with TemporaryDirectory() as folder:
                came, committed = kill(database or f"{folder}/app.db", Path(folder), kills=kills, rows=rows)
            assert came == Counter(committed), f"{name}: {came - Counter(committed)} {Counter(committed) - came}"
            print(f"{name}: {kills} kills, {len(committed)} rows committed and as many rolled back, one job each")


if __name__ == "__main__":
    main()
