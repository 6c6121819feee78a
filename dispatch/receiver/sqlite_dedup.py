"""Dedup in one SQLite file, shared by all processes of an app on one machine."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from tocsin.dispatch.receiver.dedup import (
    PRUNED_AT_ONCE,
    RETENTION_S,
    Claim,
    Found,
    Row,
    State,
    claimed,
    finished,
    held,
    is_forgotten,
    released,
    retention_ms,
)
from tocsin.errors import SettingsError, StoreClosed, StoreError, StoreFull, StoreUnavailable

T = TypeVar("T")
BUSY_S: Final = 10.0
"""How long to wait for another process's transaction; each is one commit long."""
AGAIN_S: Final = 0.02
BATCH: Final = 64
"""Calls in one transaction at most."""

_making = threading.Lock()
"""Closing a file gives up all locks this process has on it: none of ours may be open while one is made."""
os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_making.release)

_Asked = tuple[Callable[[sqlite3.Connection], Any], "Future[Any]"]

# The layout is part of the names: another one gets another table, and a rolling deploy uses both.
_SCHEMA: Final = (
    """
    CREATE TABLE IF NOT EXISTS tocsin_dedup_1 (
        webhook_id TEXT PRIMARY KEY, lease TEXT NOT NULL, sent_ms INTEGER NOT NULL, state INTEGER NOT NULL,
        until_ms INTEGER NOT NULL, touched_ms INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX IF NOT EXISTS tocsin_dedup_1_touched ON tocsin_dedup_1 (touched_ms)",
    # Beside it, since older programs that share the file write whole rows of the first table.
    """
    CREATE TABLE IF NOT EXISTS tocsin_dedup_answers_1 (
        webhook_id TEXT PRIMARY KEY, lease TEXT NOT NULL, touched_ms INTEGER NOT NULL, answer BLOB NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS tocsin_dedup_answers_1_touched ON tocsin_dedup_answers_1 (touched_ms)",
)
_GET: Final = "SELECT lease, sent_ms, state, until_ms, touched_ms FROM tocsin_dedup_1 WHERE webhook_id = ?"
_PUT: Final = "INSERT OR REPLACE INTO tocsin_dedup_1 VALUES (?, ?, ?, ?, ?, ?)"
_PRUNE: Final = f"""
DELETE FROM tocsin_dedup_1 WHERE webhook_id IN (
    SELECT webhook_id FROM tocsin_dedup_1
    WHERE touched_ms <= ? AND NOT (state = {State.RUNNING.value} AND until_ms > ?)
    ORDER BY touched_ms LIMIT {PRUNED_AT_ONCE})
"""
_PUT_ANSWER: Final = "INSERT OR REPLACE INTO tocsin_dedup_answers_1 VALUES (?, ?, ?, ?)"
_DROP_ANSWER: Final = "DELETE FROM tocsin_dedup_answers_1 WHERE webhook_id = ?"
_GET_ANSWER: Final = "SELECT answer FROM tocsin_dedup_answers_1 WHERE webhook_id = ? AND lease = ?"
"""Of the lease that is on record: where an older program has run the job since, it is not its answer."""
_PRUNE_ANSWERS: Final = f"""
DELETE FROM tocsin_dedup_answers_1 WHERE webhook_id IN (
    SELECT webhook_id FROM tocsin_dedup_answers_1 WHERE touched_ms <= ? ORDER BY touched_ms LIMIT {PRUNED_AT_ONCE})
"""


class SQLiteDedup:
    """Claims in a file of their own, safe for several processes (`uvicorn --workers 4`) on one machine.

    Done is durable when `finish` returns (WAL, `synchronous=FULL`). A process that dies leaves its claims behind
    until they lapse. All of it runs in one thread of its own, so the event loop never waits for the disk. The file
    is opened at the first use; it holds what came within `retention_s`, about 200 bytes each and what they came to.
    """

    def __init__(self, path: str | Path, *, retention_s: float = RETENTION_S) -> None:
        if str(path) in ("", ":memory:"):
            raise SettingsError("path must name a file; to keep nothing take MemoryDedup")
        self.path = Path(path).absolute()  # a later chdir must not open another file
        self._retention_ms = retention_ms(retention_s)
        self._opening = threading.Lock()
        self._file: _File | None = None
        self._closed = False

    async def claim(self, claim: Claim, *, now_ms: int) -> Found:
        def take(db: sqlite3.Connection) -> Found:
            db.execute(_PRUNE, (now_ms - self._retention_ms, now_ms))
            db.execute(_PRUNE_ANSWERS, (now_ms - self._retention_ms,))
            found, row = claimed(self._get(db, claim.webhook_id, now_ms), claim, now_ms)
            _put(db, claim.webhook_id, row)
            return found

        return await self._do(take)

    async def hold(self, webhook_id: str, lease: str, *, until_ms: int, now_ms: int) -> bool:
        return await self._change(webhook_id, now_ms, lambda row: held(row, lease, until_ms, now_ms))

    async def finish(self, webhook_id: str, lease: str, *, now_ms: int, answer: bytes | None = None) -> bool:
        def end(db: sqlite3.Connection) -> bool:
            if not _put(db, webhook_id, finished(self._get(db, webhook_id, now_ms), lease, now_ms)):
                return False
            if answer is None:
                db.execute(_DROP_ANSWER, (webhook_id,))
            else:
                db.execute(_PUT_ANSWER, (webhook_id, lease, now_ms, answer))
            return True

        return await self._do(end)

    async def answer(self, webhook_id: str, *, now_ms: int) -> bytes | None:
        def look(db: sqlite3.Connection) -> bytes | None:
            row = self._get(db, webhook_id, now_ms)
            if row is None or row.state is not State.DONE:
                return None
            found = db.execute(_GET_ANSWER, (webhook_id, row.lease)).fetchone()
            return None if found is None else bytes(found[0])

        return await self._do(look)

    async def release(self, webhook_id: str, lease: str, *, now_ms: int) -> bool:
        return await self._change(webhook_id, now_ms, lambda row: released(row, lease, now_ms))

    def reopen(self) -> None:
        """Let the next use open the file again, after `aclose`."""
        self._closed = False

    def move(self, path: Path) -> None:
        """Let the next use open another file. What was asked of this one is done first, while the caller waits."""
        with self._opening:
            file, self._file, self.path = self._file, None, path
        if file is not None and file.pid == os.getpid():
            file.close()
            file.thread.shutdown()

    async def aclose(self) -> None:
        """Close the file; calls after it raise StoreClosed, until `reopen`."""
        self._closed = True
        with self._opening:
            file, self._file = self._file, None
        if file is not None and file.pid == os.getpid():
            await _to_its_end(file.close)
            file.thread.shutdown(wait=False)

    async def _change(self, webhook_id: str, now_ms: int, rule: Callable[[Row | None], Row | None]) -> bool:
        return await self._do(lambda db: _put(db, webhook_id, rule(self._get(db, webhook_id, now_ms))))

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        file = self._opened()
        return await _to_its_end(lambda: file.submit(work))

    def _opened(self) -> _File:
        """Return the file of this process: neither connections nor threads survive a fork."""
        with self._opening:
            if self._closed:
                raise closed(self.path)
            if self._file is None or self._file.pid != os.getpid():
                self._file = _File(self.path)
            return self._file

    def _get(self, db: sqlite3.Connection, webhook_id: str, now_ms: int) -> Row | None:
        found = db.execute(_GET, (webhook_id,)).fetchone()
        if found is None:
            return None
        lease, sent_ms, state, until_ms, touched_ms = found
        row = Row(lease, sent_ms, State(state), until_ms, touched_ms)
        return None if is_forgotten(row, now_ms, self._retention_ms) else row


def closed(path: Path) -> StoreClosed:
    return StoreClosed(f"the dedup store on {path} is closed")


def _put(db: sqlite3.Connection, webhook_id: str, row: Row | None) -> bool:
    if row is None:
        return False
    db.execute(_PUT, (webhook_id, row.lease, row.sent_ms, row.state.value, row.until_ms, row.touched_ms))
    return True


# ---- The file ------------------------------------------------------------------------------------


class _File:
    """One connection on one thread, of one process. What waits for the thread shares one transaction, and one fsync."""

    def __init__(self, path: Path) -> None:
        self.path, self.pid = path, os.getpid()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="tocsin-dedup")
        self._waiting: deque[_Asked] = deque()
        self._db: sqlite3.Connection | None = None
        self._closed = False

    def submit(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        asked: Future[T] = Future()
        self._waiting.append((work, asked))
        try:
            self.thread.submit(self._serve)
        except RuntimeError as error:  # after `aclose`, at the end of the interpreter, or if no thread can be had
            if asked.cancel():  # or a later call would commit it: a claim without an owner
                raise closed(self.path) if self._closed else self._unserved(error) from None
        return asked

    def close(self) -> Future[None]:
        try:
            return self.thread.submit(self._close)
        except RuntimeError:  # no thread can be had, so there never was one, and nothing is open
            self._closed = True
            done: Future[None] = Future()
            done.set_result(None)
            return done

    def _serve(self) -> None:
        """Commit all that waits together, or none of it; it is done when it is durable."""
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH))]
        batch = [each for each in taken if each[1].set_running_or_notify_cancel()]
        if not batch:
            return  # an earlier one took it along
        try:
            if self._closed:
                raise closed(self.path)
            self._db = self._db or self._open()
            with _transaction(self._db):
                answers = [work(self._db) for work, _ in batch]
        except BaseException as error:  # whatever it is, a caller waits for it
            told = self._translated(error) if isinstance(error, sqlite3.Error) else error
            for _, asked in batch:
                asked.set_exception(told)
        else:
            for (_, asked), answer in zip(batch, answers, strict=True):
                asked.set_result(answer)

    def _open(self) -> sqlite3.Connection:
        _make_private(self.path)
        db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        try:
            _into_wal(db)
            db.execute("PRAGMA synchronous = FULL")
            with _transaction(db):
                for statement in _SCHEMA:
                    db.execute(statement)
        except BaseException:
            db.close()
            raise
        return db

    def _close(self) -> None:
        db, self._db, self._closed = self._db, None, True
        if db is not None:
            db.close()

    def _unserved(self, error: RuntimeError) -> StoreError:
        return StoreUnavailable(f"the dedup store {self.path.name} cannot be used: {error}")

    def _translated(self, error: sqlite3.Error) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = StoreFull if code == sqlite3.SQLITE_FULL else StoreUnavailable
        translated = kind(f"the dedup store {self.path.name} cannot be used: {error}")
        translated.__cause__ = error
        return translated


def _make_private(path: Path) -> None:
    """Make an empty file that only its owner reads, if there is none; SQLite gives -wal and -shm the same rights."""
    with _making, suppress(OSError):  # it is there already, or SQLite says what is wrong
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Take the right to write at once: two that first read and then write would both be refused."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk, for one, has ended it already
            db.execute("ROLLBACK")
        raise


def _into_wal(db: sqlite3.Connection) -> None:
    """Try again, since SQLite's own waiting leaves this statement out: processes that start together meet here."""
    pause = threading.Event()
    for left in range(int(BUSY_S / AGAIN_S), -1, -1):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not left or getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            pause.wait(AGAIN_S)


async def _to_its_end(start: Callable[[], Future[T]]) -> T:
    """Wait for its result, also when this task is cancelled: what is on the thread cannot be called back.

    The task can still tell that it was cancelled (`cancelling()`), when it has put away the result.
    """
    future = asyncio.wrap_future(start())
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    return future.result()
