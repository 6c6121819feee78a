"""Files that SQLite cannot use, or should not: each is a named error, and the file is left as it was."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.file_modes import rights_in
from tocsin.errors import RolledBack, StoreCorrupt, StoreError, StoreSchema, StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.sqlite import reader as sqlite_reader
from tocsin.storage.sqlite import writer as sqlite_file
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.reserve import Reserve
from tocsin.storage.sqlite.wal import keep_wal

NOBODY = 65534


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """A folder of a user whom the rights of files bind; root they do not."""
    folder = Path(tempfile.mkdtemp())
    me = os.geteuid()
    if me == 0:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(me)
        shutil.rmtree(folder)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


async def write_and_stop(path: Path, values: int = 0) -> None:
    provider = SQLiteProvider(path)
    await provider.start()
    store = await provider.open("a")
    await store.commit(Batch(puts={b"%04d" % n: b"v" * 500 for n in range(values)}))
    await provider.stop()


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def not_a_database(path: Path) -> None:
    path.write_bytes(b"something else entirely\n" * 1_000)


def of_another_program(path: Path) -> None:
    change(path, "CREATE TABLE users (id INTEGER)")


def with_another_meta(path: Path) -> None:
    change(path, "CREATE TABLE meta (name TEXT, value TEXT)")


def newer(path: Path) -> None:
    asyncio.run(write_and_stop(path))
    change(path, "UPDATE meta SET v = 7 WHERE k = 'layout'", "DROP TABLE kv", "CREATE TABLE kv2 (a, b)")


def cut_short(path: Path) -> None:
    asyncio.run(write_and_stop(path))
    path.write_bytes(path.read_bytes()[:100])


def a_folder(path: Path) -> None:
    path.mkdir()


UNUSABLE: list[tuple[Callable[[Path], None], type[StoreError], str]] = [
    (not_a_database, StoreCorrupt, r"the file /.*store\.db is not a SQLite database"),
    (of_another_program, StoreSchema, "not one of tocsin's"),
    (with_another_meta, StoreSchema, "not one of tocsin's"),
    (newer, StoreSchema, r"newer tocsin \(layout 7\); this one reads up to layout 1"),
    (cut_short, StoreCorrupt, "damaged|not a database"),
    (a_folder, StoreUnavailable, "is a folder: name a file"),
]


def nothing_is_left(path: Path, before: set[threading.Thread]) -> None:
    """No thread of a connection, and no lock."""
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()
    lock = LockFile(path.with_name(path.name + ".lock"))
    lock.take()
    lock.let_go()


@pytest.mark.parametrize(("make", "kind", "message"), UNUSABLE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_was(
    make: Callable[[Path], None], kind: type[StoreError], message: str, tmp_path: Path
) -> None:
    """A thread that dies of an exception fails the test: pytest makes a warning of it, and warnings are errors."""
    path = tmp_path / "store.db"
    make(path)
    content = path.read_bytes() if path.is_file() else None
    before = set(threading.enumerate())
    provider = SQLiteProvider(path)
    for _ in range(2):
        with pytest.raises(kind, match=message):
            asyncio.run(provider.start())
        nothing_is_left(path, before)
    asyncio.run(provider.stop())

    assert (path.read_bytes() if path.is_file() else None) == content


@pytest.mark.parametrize("late", ["second reader", "reserve"])
def test_a_start_that_fails_late_leaves_nothing(late: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, before = tmp_path / "store.db", set(threading.enumerate())
    opened: list[sqlite3.Connection] = []

    def fail(*_: object) -> sqlite3.Connection:
        if late == "second reader" and not opened:
            opened.append(sqlite_file.connect(path, readonly=True))
            return opened[0]
        raise OSError("no more")

    with monkeypatch.context() as patched:
        owner, name = (sqlite_reader.Reader, "open") if late == "second reader" else (Reserve, "make")
        patched.setattr(owner, name, fail)
        with pytest.raises(OSError, match="no more"):
            asyncio.run(SQLiteProvider(path).start())
    nothing_is_left(path, before)
    asyncio.run(write_and_stop(path))


def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    async def cancelled_after(steps: int, path: Path) -> bool:
        provider = SQLiteProvider(path)
        starting = asyncio.create_task(provider.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await provider.stop()
        return starting.cancelled()

    results = []
    for steps in (0, 1, 2, 3, 5, 100, 400):
        path = tmp_path / f"{steps}.db"
        results.append(asyncio.run(cancelled_after(steps, path)))
        nothing_is_left(path, before)
    assert any(results)


@pytest.mark.anyio
@pytest.mark.usefixtures("usual_umask")
async def test_a_new_store_is_for_its_owner_only(tmp_path: Path) -> None:
    provider = SQLiteProvider(tmp_path / "tocsin.db")
    await provider.start()
    await (await provider.open("a")).commit(Batch(puts={b"k": b"args"}))
    keep_wal(tmp_path / "tocsin.db")
    rights = rights_in(tmp_path)
    await provider.stop()

    assert {"tocsin.db", "tocsin.db-wal", "tocsin.db-wal.kept", "tocsin.db-shm"} <= rights.keys()
    assert set(rights.values()) == {0o600}


@pytest.mark.anyio
async def test_the_rights_of_a_store_that_is_there_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tocsin.db"
    await write_and_stop(path)
    path.chmod(0o640)
    await write_and_stop(path)

    assert rights_in(tmp_path)[path.name] == 0o640


@pytest.mark.anyio
async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"the folder {tmp_path}/missing of the store does not exist"):
        await SQLiteProvider(tmp_path / "missing" / "store.db").start()


def test_a_file_that_is_read_only_is_unavailable() -> None:
    with ordinary_user() as folder:
        path = folder / "store.db"
        asyncio.run(write_and_stop(path))
        path.chmod(0o400)
        with pytest.raises(StoreUnavailable, match="read-only"):
            asyncio.run(SQLiteProvider(path).start())
        assert sorted(os.listdir(folder)) == ["store.db", "store.db.lock", "store.db.reserve"]
        path.chmod(0o600)
        asyncio.run(write_and_stop(path))


def test_a_folder_that_is_read_only_is_unavailable() -> None:
    with ordinary_user() as folder:
        folder.chmod(0o500)
        with pytest.raises(StoreUnavailable, match="Permission denied"):
            asyncio.run(SQLiteProvider(folder / "store.db").start())
        folder.chmod(0o700)


@pytest.mark.anyio
async def test_a_corrupt_page_is_found_by_who_needs_it_and_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await write_and_stop(path, values=4_000)
    pages = bytearray(path.read_bytes())
    at = pages.index(b"2000" + b"v" * 500) // sqlite_file.PAGE_SIZE * sqlite_file.PAGE_SIZE
    pages[at : at + 200] = b"\xee" * 200
    path.write_bytes(pages)
    provider = SQLiteProvider(path)
    await provider.start()
    damaged, other = await provider.open("a"), await provider.open("b")
    with pytest.raises(StoreCorrupt, match="damaged"):
        await damaged.scan(b"0", b"9", limit=10_000)
    assert len(await damaged.scan(b"0000", b"0100", limit=200)) == 100
    answers = await asyncio.gather(
        other.commit(Batch(puts={b"1": b""})),
        damaged.commit(Batch(puts={b"2000": b"new"})),
        other.commit(Batch(puts={b"2": b""})),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers] == [type(None), StoreCorrupt, type(None)]
    assert len(await other.scan(b"0", b"9", limit=9)) == 2
    await provider.stop()


def replace(path: Path, backup: Path) -> None:
    shutil.copy(backup, path.with_name("new"))
    os.replace(path.with_name("new"), path)


def remove(path: Path, backup: Path) -> None:
    path.unlink()


@pytest.mark.anyio
@pytest.mark.parametrize("happens", [replace, remove])
async def test_a_file_replaced_under_a_running_provider_loses_its_owner(
    happens: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    await write_and_stop(path)
    shutil.copy(path, backup)
    provider = SQLiteProvider(path)
    await provider.start()
    store = await provider.open("a")
    await store.commit(Batch(puts={b"k": b"1"}))
    other = await provider.open("b")
    happens(path, backup)
    for again in (store, other):
        with pytest.raises(RolledBack, match=r"replaced or removed") as caught:
            await again.commit(Batch(puts={b"k": b"2"}))
        assert caught.value.owner_lost
    with pytest.raises(RolledBack, match="Put it back before the next start"):
        await provider.stop()

    assert path.exists() == (happens is replace), "a removed file does not come back empty"


@pytest.mark.anyio
async def test_a_file_written_by_others_loses_its_owner(tmp_path: Path) -> None:
    provider = SQLiteProvider(tmp_path / "store.db")
    await provider.start()
    store = await provider.open("a")
    await store.commit(Batch(puts={b"k": b"1"}))
    change(tmp_path / "store.db", "UPDATE meta SET v = v + 1 WHERE k = 'seq'")
    with pytest.raises(RolledBack, match="written by others"):
        await store.commit(Batch(puts={b"k": b"2"}))

    assert await store.get([b"k"]) == {b"k": b"1"}
    await provider.stop()


@pytest.mark.anyio
async def test_names_of_files_may_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "a ?#%20&mode=ro é.db"
    await write_and_stop(path, values=1)

    assert set(os.listdir(tmp_path)) == {path.name + end for end in ("", ".lock", ".reserve")}
