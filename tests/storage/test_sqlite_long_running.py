"""What a long life asks: readers that do not hold up commits, a WAL that stays small, and nothing that leaks."""

from __future__ import annotations

import asyncio
import inspect
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path

import aiosqlite
import pytest

from tocsin.errors import StoreError
from tocsin.storage.api import Batch, OrderedStore
from tocsin.storage.sqlite import provider as sqlite_provider
from tocsin.storage.sqlite import reader as sqlite_reader
from tocsin.storage.sqlite import upkeep as sqlite_upkeep
from tocsin.storage.sqlite import writer as sqlite_file
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.thread import Thread

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SQLiteProvider]:
    provider = SQLiteProvider(tmp_path / "store.db")
    await provider.start()
    yield provider
    await provider.stop()


@asynccontextmanager
async def a_long_scan(provider: SQLiteProvider) -> AsyncIterator[asyncio.Task[None]]:
    """A view's scan that is in the middle of its snapshot until the block ends."""
    reading, go_on = threading.Event(), threading.Event()
    reader = provider._views.reader

    def scan() -> None:
        with reader._snapshot(several=True):
            reader._db.execute("SELECT count(*) FROM kv").fetchone()
            reading.set()
            assert go_on.wait(20)

    scanning = asyncio.create_task(provider._views.thread.run(scan))
    await asyncio.to_thread(reading.wait, 10)
    try:
        yield scanning
    finally:
        go_on.set()
        await scanning


def wal_bytes(provider: SQLiteProvider) -> int:
    return provider.path.with_name("store.db-wal").stat().st_size


async def write(store: OrderedStore, mib: int) -> None:
    for n in range(mib * 4):
        await store.commit(Batch(puts={b"%d" % (m + n % 8): b"v" * 64_000 for m in range(4)}))


async def upkeep_done(provider: SQLiteProvider) -> None:
    if (task := provider._upkeep._task) is not None:
        await asyncio.wait([task])


@pytest.fixture
def small_wal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixteenth of the real sizes, so that few commits show the same."""
    monkeypatch.setattr(sqlite_upkeep, "CHECKPOINT_BYTES", sqlite_upkeep.CHECKPOINT_BYTES // 16)
    monkeypatch.setattr(sqlite_upkeep, "TRUNCATE_BYTES", sqlite_upkeep.TRUNCATE_BYTES // 16)
    monkeypatch.setattr(sqlite_provider, "LOOK_EVERY", 4)
    monkeypatch.setattr(sqlite_upkeep, "LOOK_S", 0.02)


async def test_a_long_scan_of_a_view_does_not_hold_up_commits_nor_reads_of_actors(provider: SQLiteProvider) -> None:
    store = await provider.open("a")
    async with asyncio.timeout(10), a_long_scan(provider) as scanning:
        for n in range(50):
            await store.commit(Batch(puts={b"k": b"%d" % n}))
            assert await store.get([b"k"]) == {b"k": b"%d" % n}
        assert (await provider.open("a", create=False)).name == "a"
        assert not scanning.done()


@pytest.mark.usefixtures("small_wal")
async def test_the_wal_stays_small_under_many_commits(provider: SQLiteProvider) -> None:
    store = await provider.open("a")
    largest = 0
    for _ in range(30):
        await write(store, 1)
        largest = max(largest, wal_bytes(provider))

    assert largest < 2 * sqlite_upkeep.TRUNCATE_BYTES


@pytest.mark.usefixtures("small_wal")
async def test_the_log_begins_anew_in_place_although_commits_never_pause(
    provider: SQLiteProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit at the end of the file waits for the file system, too, which notes how long the file is now."""
    store, plain, moved = await provider.open("a"), provider._upkeep.move_wal, 0

    async def move_without_the_latest() -> None:
        """As it is for a host that commits while the log is moved; here a reader sees to that, which then ends."""
        nonlocal moved
        moved += 1
        with closing(sqlite3.connect(provider.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM meta").fetchone()
            await store.commit(Batch(puts={b"meanwhile": b"v"}))
            await plain()

    monkeypatch.setattr(provider._upkeep, "move_wal", move_without_the_latest)
    sizes: list[int] = []
    for n in range(200):
        await store.commit(Batch(puts={b"%d" % (n % 8): b"v" * 4_000}))
        await upkeep_done(provider)
        sizes.append(wal_bytes(provider))
    first = next(n for n, size in enumerate(sizes) if size >= sqlite_upkeep.CHECKPOINT_BYTES)
    longer = sum(after > before for before, after in pairwise(sizes[first:]))

    assert longer < (len(sizes) - first) / 5, "few commits make it longer"
    assert moved <= longer + 1, "and it is moved only when it became longer"


@pytest.mark.usefixtures("small_wal")
async def test_what_a_reader_kept_in_the_log_is_moved_at_the_next_look(provider: SQLiteProvider) -> None:
    store = await provider.open("a")
    with closing(sqlite3.connect(provider.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        await write(store, 1)
        await upkeep_done(provider)
        await provider._upkeep._bound_wal()
        assert provider._identity.lineage.moved_seq() < provider._file.seq
    await provider._upkeep._bound_wal()

    assert provider._identity.lineage.moved_seq() == provider._file.seq


@pytest.mark.usefixtures("small_wal")
async def test_behind_a_stuck_reader_commits_go_on_and_the_wal_is_cut_when_it_lets_go(provider: SQLiteProvider) -> None:
    """A checkpoint that waits for the reader would hold the write lock, and every commit, for the busy timeout."""
    store = await provider.open("a")
    busy_s = sqlite_file.BUSY_MS / 1000
    async with a_long_scan(provider) as scanning:
        async with asyncio.timeout(busy_s * 0.9):
            await write(store, 12)
        assert wal_bytes(provider) > sqlite_upkeep.TRUNCATE_BYTES
        assert not scanning.done()
    await write(store, 1)
    await upkeep_done(provider)
    await write(store, 1)
    await upkeep_done(provider)

    assert wal_bytes(provider) < sqlite_upkeep.TRUNCATE_BYTES


async def test_behind_a_reader_of_another_program_later_pages_come_into_a_new_file_first(
    provider: SQLiteProvider,
) -> None:
    """Its first page of ours then reads as zeros for long, and that is not a file that was overwritten."""
    store = await provider.open("a")
    await store.commit(Batch(puts={b"first": bytes(90_000)}))
    with closing(sqlite3.connect(provider.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        for n in range(3):
            await store.commit(Batch(puts={b"%d" % n: bytes(90_000)}))
            await provider._upkeep._thread.run(provider._upkeep._checkpoint)
        await store.commit(Batch(puts={b"k": b""}))
        assert provider.trouble is None
    await provider._upkeep._thread.run(provider._upkeep._checkpoint)
    await store.commit(Batch(puts={b"l": b""}))


async def test_a_scan_cut_short_does_not_keep_its_snapshot(provider: SQLiteProvider) -> None:
    store = await provider.open("a")
    await store.commit(Batch(puts={b"%d" % n: b"v" for n in range(100)}))
    for view in (store, provider.view("a")):
        assert len(await view.scan(b"0", b"9", limit=90, max_bytes=1)) == 1
    await provider._writer.run(provider._file.truncate_wal)

    assert wal_bytes(provider) == 0


async def test_what_a_connection_remembers_of_actors_is_bounded(
    provider: SQLiteProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite_file, sqlite_reader):
        monkeypatch.setattr(module, "MAX_IDS", 10)
    for n in range(35):
        await (await provider.open(f"{n}")).commit(Batch(puts={b"k": b"%d" % n}))
        assert await provider.view(f"{n}").get([b"k"]) == {b"k": b"%d" % n}
        assert len(provider._file._ids) <= 10
        assert len(provider._views.reader._ids) <= 10
    stores = [await provider.open(f"{n}") for n in range(35)]
    await asyncio.gather(*(store.commit(Batch(puts={b"k": b"again"})) for store in stores))

    assert [await provider.view(f"{n}").get([b"k"]) for n in range(35)] == [{b"k": b"again"}] * 35


async def test_a_log_that_grows_too_long_is_told_once_and_counted(
    provider: SQLiteProvider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_upkeep, "WARN_BYTES", 100_000)
    store = await provider.open("a")
    await write(store, 1)
    for _ in range(3):
        await provider._upkeep._bound_wal()

    assert provider.stats().wal_bytes == wal_bytes(provider) > 1_000_000
    assert [record.levelname for record in caplog.records if "the WAL of" in record.message] == ["WARNING"]


async def test_a_commit_is_synced_before_it_is_answered_also_after_a_second_start(provider: SQLiteProvider) -> None:
    """`synchronous` is a connection's own: what counts is that of the one that commits."""

    def pragma(name: str) -> object:
        return provider._file._db.execute(f"PRAGMA {name}").fetchone()[0]

    for _ in range(2):
        assert await provider._writer.run(pragma, "synchronous") == 2, "FULL"
        assert await provider._writer.run(pragma, "journal_mode") == "wal"
        await provider.stop()
        await provider.start()


async def test_rows_in_no_order_are_written_without_a_file_beside_the_log(provider: SQLiteProvider) -> None:
    """The pages that a statement changes are noted for the case that it fails: here that needs no file."""
    assert await provider._writer.run(lambda: provider._file._db.execute("PRAGMA temp_store").fetchone()) == (2,)


async def test_after_a_stop_there_is_one_file_and_no_wal(provider: SQLiteProvider) -> None:
    await (await provider.open("a")).commit(Batch(puts={b"k": b""}))
    await provider.stop()

    assert sorted(os.listdir(provider.path.parent)) == ["store.db", "store.db.lock", "store.db.reserve"]


async def test_a_hundred_starts_and_stops_leak_nothing(tmp_path: Path) -> None:
    async def live() -> None:
        provider = SQLiteProvider(tmp_path / "store.db")
        await provider.start()
        await (await provider.open("a")).commit(Batch(puts={b"k": b""}))
        await provider.view("a").get([b"k"])
        await provider.stop()

    async def held() -> tuple[int, int]:
        """Files, and threads but those of the loop's own pool."""
        pool = "asyncio"
        return len(os.listdir("/proc/self/fd")), sum(not t.name.startswith(pool) for t in threading.enumerate())

    def ended(threads: set[threading.Thread]) -> None:
        for thread in set(threading.enumerate()) - threads:
            if not thread.name.startswith("asyncio"):
                thread.join(5)

    threads = set(threading.enumerate())
    await live()
    ended(threads)
    before = await held()
    for _ in range(100):
        await live()
    ended(threads)

    assert await held() == before


async def test_a_provider_starts_again_after_a_stop(provider: SQLiteProvider) -> None:
    epochs = []
    for _ in range(3):
        store = await provider.open("a")
        epochs.append(store.grant.epoch)
        await store.commit(Batch(puts={b"k": b"%d" % len(epochs)}))
        await provider.stop()
        await provider.start()

    assert await provider.view("a").get([b"k"]) == {b"k": b"3"}
    assert epochs == [1, 2, 3]


async def test_a_stop_that_is_cancelled_stops_all_the_same(provider: SQLiteProvider) -> None:
    done = (await provider.open("a")).commit(Batch(puts={b"k": b""}))
    stopping = asyncio.create_task(provider.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait([stopping])

    assert stopping.cancelled() and done.done()
    again = SQLiteProvider(provider.path)
    await again.start()
    await again.stop()


async def test_a_caller_that_is_cancelled_does_not_interrupt_a_transaction(provider: SQLiteProvider) -> None:
    store = await provider.open("a")

    async def commit() -> None:
        await store.commit(Batch(puts={b"k": b"1"}))

    committing = asyncio.create_task(commit())
    await asyncio.sleep(0)
    committing.cancel()
    await asyncio.wait([committing])

    assert committing.cancelled()
    assert await (await provider.open("a")).get([b"k"]) == {b"k": b"1"}


async def test_a_transaction_that_breaks_off_leaves_none_open(provider: SQLiteProvider) -> None:
    """Not only SQLite's own errors end a transaction: values it cannot bind do too."""
    bad, good = await provider.open("bad"), await provider.open("good")
    unbindable = bad.commit(Batch(puts={b"k": "\ud800"}))  # type: ignore[dict-item]
    answers = await asyncio.gather(unbindable, return_exceptions=True)
    await good.commit(Batch(puts={b"k": b"1"}))

    assert isinstance(answers[0], StoreError)
    assert await good.get([b"k"]) == {b"k": b"1"}


async def test_a_statement_that_fails_after_its_commit_is_not_taken_for_a_failure(provider: SQLiteProvider) -> None:
    """SQLite may report the error of what comes after COMMIT, a checkpoint: `seq` tells that it is in the file."""

    class Late:
        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection, self.fails = connection, True

        def __getattr__(self, name: str) -> object:
            return getattr(self.connection, name)

        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            answer = self.connection.execute(sql, *arguments)  # type: ignore[arg-type]
            if sql == "COMMIT" and self.fails:
                self.fails = False
                raise sqlite3.OperationalError("disk I/O error")
            return answer

    provider._file._db = Late(provider._file._db)  # type: ignore[assignment]
    store = await provider.open("a")
    await store.commit(Batch(puts={b"k": b"1"}))
    await store.commit(Batch(puts={b"k": b"2"}))

    assert await store.get([b"k"]) == {b"k": b"2"}


async def test_another_program_that_holds_the_file_holds_everybody_once(
    provider: SQLiteProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    await provider._writer.run(provider._file._db.execute, "PRAGMA busy_timeout = 50")
    other = sqlite3.connect(provider.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    stores = [await provider.open(f"{n}") for n in range(200)]
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*(s.commit(Batch(puts={b"k": b""})) for s in stores), return_exceptions=True)
    assert {str(answer) for answer in answers} == {"the store is busy: another program holds it (database is locked)"}
    other.execute("ROLLBACK")
    other.close()
    await (await provider.open("0")).commit(Batch(puts={b"k": b""}))

    assert await provider.names("", 10) == ["0"]


async def test_aiosqlite_still_runs_a_function_in_one_hop_on_its_thread() -> None:
    """`storage/sqlite/thread.py` uses this private method: if it goes, this fails, and says where to look."""
    execute = getattr(aiosqlite.Connection, "_execute", None)
    assert inspect.iscoroutinefunction(execute), "aiosqlite.Connection._execute is gone: see storage/sqlite/thread.py"
    assert list(inspect.signature(execute).parameters)[:3] == ["self", "fn", "args"]

    thread = Thread()
    await thread.open(lambda: sqlite3.connect(":memory:"))
    used = {await thread.run(threading.current_thread) for _ in range(5)}
    assert len(used) == 1
    (own,) = used
    assert own is not threading.current_thread()
    assert own.daemon, "aiosqlite keeps its thread elsewhere: a program that forgets to stop would hang"
    await thread.close()
    own.join(5)
    assert not own.is_alive()
