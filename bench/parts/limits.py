"""What bounds the figures, measured in the same rounds: the disk's commits, our client alone, a bare client."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from random import Random, SystemRandom

from bench.cpu import spent
from bench.figures import Row
from bench.lease import now_ms
from bench.setting import SECRET, Part, Setting
from bench.wire import ok, post, posted
from tocsin.dispatch.builtin_transport import BuiltinTransport
from tocsin.dispatch.callback import Callback, Verdict
from tocsin.dispatch.dispatcher import Dispatcher
from tocsin.dispatch.signing import Signer

ROWS = (
    Row("commit/1", "bare SQLite: jobs put, 1 a commit"),
    Row("commit/32", "bare SQLite: jobs put, 32 a commit"),
    Row("commit/32/own", "bare SQLite: jobs put, 32 a commit, ids in no order"),
    Row("commit/1000", "bare SQLite: jobs put, 1,000 a commit"),
    Row("fire/64", "bare SQLite: claims and settlements, 64 a commit each"),
    Row("client/64", "our client alone: signed posts, 64 at once"),
    Row("client/1", "our client alone: signed posts, 1 at once"),
    Row("bare/64", "bare asyncio client: posts, 64 at once"),
    Row("bare/32", "bare asyncio client: posts, 32 at once"),
    Row("bare/1", "bare asyncio client: posts, 1 at once"),
)
TABLE = (
    "CREATE TABLE kv (actor INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (actor, key))"
    " WITHOUT ROWID"
)
ROW = b"x" * 310
"""About as long as the row of a job."""
BODY = b'{"id":"bare-%06d","scheduledFor":%d,"args":"' + b"x" * 140 + b'"}'


class Disk:
    """A file with our table and our pragmas, written without anything between."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("page_size = 4096", "journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 20000"):
            self.db.execute(f"PRAGMA {pragma}").fetchall()
        self.db.execute("PRAGMA cache_size = -65536")
        self.db.execute(TABLE)

    def commit(self, puts: list[bytes], deletes: list[bytes] | None = None) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        if deletes:
            self.db.executemany("DELETE FROM kv WHERE actor = 1 AND key = ?", [(key,) for key in deletes])
        for start in range(0, len(puts), 64):
            some = puts[start : start + 64]
            values = ", ".join(["(1, ?, ?)"] * len(some))
            given = [value for key in some for value in (key, ROW if key.startswith(b"job") else b"")]
            self.db.execute(f"INSERT OR REPLACE INTO kv (actor, key, value) VALUES {values}", given)
        self.db.execute("COMMIT")


def _keys(number: int, name: bytes) -> list[bytes]:
    """Of the row of a job and of its place in the line."""
    return [b"job/" + name, b"line/%015d/%b" % (number, name)]


def commits(path: Path, count: int, batch: int, random: Random | None) -> float:
    """Jobs a second."""
    disk = Disk(path)
    names = [b"%016x" % (random.getrandbits(64) if random else number) for number in range(count)]
    began = time.perf_counter()
    for start in range(0, count, batch):
        puts = [key for n, name in enumerate(names[start : start + batch], start) for key in _keys(n, name)]
        disk.commit(sorted(puts))
    taken = time.perf_counter() - began
    disk.db.close()
    return count / taken


def fires(path: Path, count: int, batch: int) -> float:
    """Jobs a second: a commit that moves jobs from the line into leases, and one that deletes both."""
    disk = Disk(path)
    names = [b"%016x" % number for number in range(count)]
    disk.commit(sorted(key for n, name in enumerate(names) for key in _keys(n, name)))
    began = time.perf_counter()
    for start in range(0, count, batch):
        some = list(enumerate(names[start : start + batch], start))
        jobs, leases = [b"job/" + name for _, name in some], [b"lease/" + name for _, name in some]
        disk.commit(jobs + leases, [_keys(n, name)[1] for n, name in some])
        disk.commit([], jobs + leases)
    taken = time.perf_counter() - began
    disk.db.close()
    return count / taken


async def client(bench: Setting, count: int, lanes: int) -> None:
    """What a lane does around a callback, without a scheduler: make its body, sign it, post it, judge the answer."""
    dispatcher = Dispatcher(BuiltinTransport(), Signer([SECRET]), bench.receiver, random=SystemRandom())
    args, now = b'{"invoice":42,"text":"' + b"x" * 160 + b'"}', now_ms()
    numbers = iter(range(count))

    async def lane() -> None:
        for number in numbers:
            callback = Callback(
                id=f"alone{number}", incarnation="1-1", args=args, scheduled_for=now, attempt=1, lease="l" * 22,
                instance="bench", function_path="bench:due",
            )  # fmt: skip
            outcome = await dispatcher.attempt(callback, now_ms=now)
            if outcome.verdict is not Verdict.DONE:
                raise RuntimeError(f"the receiver answered {outcome}")

    with spent() as cost:
        await asyncio.gather(*(lane() for _ in range(lanes)))
    await dispatcher.aclose()
    bench.book.note(f"client/{lanes}", count / cost.seconds, cost.per(count))


async def bare(bench: Setting, count: int, lanes: int) -> None:
    now = now_ms()
    requests = [post("/", BODY % (number, now)) for number in range(count)]
    with spent() as cost:
        await posted(bench.receiver, requests, lanes, ok)
    bench.book.note(f"bare/{lanes}", count / cost.seconds, cost.per(count))


async def measure(bench: Setting) -> None:
    note = bench.book.note
    for batch, usual in ((1, 600), (32, 8_000), (1_000, 20_000)):
        note(f"commit/{batch}", commits(bench.store(), bench.count(usual), batch, None))
    note("commit/32/own", commits(bench.store(), bench.count(8_000), 32, bench.random))
    note("fire/64", fires(bench.store(), bench.count(8_000), 64))
    await bench.forget()
    for lanes, usual in ((64, 10_000), (1, 2_000)):
        await client(bench, bench.count(usual), lanes)
    for lanes, usual in ((64, 15_000), (32, 15_000), (1, 3_000)):
        await bare(bench, bench.count(usual), lanes)


PART = Part("limits", "What bounds them", ROWS, measure)
