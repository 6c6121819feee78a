"""A WAL that is removed, moved, replaced, cut or overwritten while a host uses it, or behind its end: no commit is said
to be durable that a crash would take, no stop is in order that left something behind, and the next start says so."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.storage.host_on_file import trouble_over
from tests.storage.test_sqlite_crash import committing, killed
from tests.storage.wal_files import VALUE, emptied, keys_in, put, started, wal
from tests.storage.wal_files import looks_often as looks_often
from tests.storage.wal_files import nothing_goes_on as nothing_goes_on
from tocsin.errors import RolledBack
from tocsin.storage.api import Batch
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio


# ---- Behind a crash ------------------------------------------------------------------------------


def crashed(path: Path) -> None:
    """On a store that is new: whatever was committed is in its WAL only."""
    process = committing(path)
    assert process.stdout is not None
    for _ in range(40):
        process.stdout.readline()
    process.kill()
    killed(process)


def removed(path: Path) -> None:
    wal(path).unlink()


def headless(path: Path) -> None:
    with wal(path).open("r+b") as file:
        file.write(bytes(32))


def all_removed(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()


def file_emptied(path: Path) -> None:
    """Without its reserve, too, it looks like a file that somebody made for a new store."""
    all_removed(path)
    path.with_name(path.name + ".reserve").unlink()
    path.touch()


@pytest.mark.parametrize("happens", [removed, emptied, headless, all_removed, file_emptied])
async def test_a_new_store_that_lost_its_wal_behind_a_crash_is_no_new_store(
    happens: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    crashed(path)
    happens(path)
    said = r"but \d+ transactions were committed" if happens in (all_removed, file_emptied) else r"lacks the last \d+"
    for _ in range(2):
        with pytest.raises(RolledBack, match=said):
            await SQLiteProvider(path).start()

    path.with_name("store.db.lock").unlink()  # as the message says
    assert await keys_in(path) == []


async def test_a_file_or_a_pair_of_files_that_was_copied_elsewhere_opens(tmp_path: Path) -> None:
    """By hand, without the lock file: nothing tells how far the other one came."""
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"1")
    await provider.stop()
    provider = await started(path)
    await put(provider, b"2")
    for name, suffixes in (("alone", ("",)), ("pair", ("", "-wal"))):
        (tmp_path / name).mkdir()
        for suffix in suffixes:
            shutil.copy(tmp_path / f"store.db{suffix}", tmp_path / name / f"store.db{suffix}")
    await provider.stop()

    assert await keys_in(tmp_path / "alone" / "store.db") == [b"1"]
    assert await keys_in(tmp_path / "pair" / "store.db") == [b"1", b"2"]


# ---- In use --------------------------------------------------------------------------------------


def moved(path: Path) -> None:
    os.rename(wal(path), path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    path.with_name("other").write_bytes(b"of another store")
    os.replace(path.with_name("other"), wal(path))


def copied(path: Path) -> None:
    shutil.copy(wal(path), path.with_name("other"))
    os.replace(path.with_name("other"), wal(path))


def cut(path: Path) -> None:
    os.truncate(wal(path), wal(path).stat().st_size // 2)


NAMELESS, SPOILT = (removed, moved, replaced, copied), (emptied, cut)


@pytest.mark.parametrize("happens", NAMELESS + SPOILT)
@pytest.mark.parametrize("use", ["commit", "read"])
async def test_a_wal_that_goes_under_a_running_host_is_noticed_at_once_and_stays_noticed(
    use: str, happens: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"1", b"2")
    store = await provider.open("b")
    happens(path)
    said = "replaced or removed" if happens in NAMELESS else r"cut from [\d,]+ to [\d,]+ bytes"
    with pytest.raises(RolledBack, match=rf"store\.db-wal was {said}"):
        await (store.commit(Batch(puts={b"k": b"lost"})) if use == "commit" else store.get([b"k"]))
    await asyncio.sleep(0.05)  # looks for whether it is over, many times
    assert isinstance(provider.trouble, RolledBack)
    with suppress(RolledBack):  # how it stops has tests of its own
        await provider.stop()


@pytest.mark.parametrize("happens", NAMELESS)
async def test_a_stop_behind_a_wal_without_its_name_saves_what_it_holds_and_is_in_order(
    happens: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"1", b"2")
    happens(path)
    await provider.stop()
    if happens is replaced:
        assert path.with_name("store.db-wal.kept").read_bytes() == b"of another store"

    assert await keys_in(path) == [b"1", b"2"]


async def test_a_store_without_tables_that_lost_its_wal_is_no_new_store(tmp_path: Path) -> None:
    """As an older version left one that was killed before its first checkpoint: the file is a head and nothing else."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    lock = LockFile(path.with_name("store.db.lock"))
    lock.take()
    lock.note_commit(5)
    lock.let_go()

    with pytest.raises(RolledBack, match="lacks the last 5 transactions"):
        await SQLiteProvider(path).start()


@pytest.mark.parametrize("happens", SPOILT)
async def test_a_stop_behind_a_wal_that_was_cut_is_not_in_order(
    happens: Callable[[Path], None], tmp_path: Path
) -> None:
    """Nothing of it is moved into the file: holes would be taken for pages."""
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"kept")
    await provider.stop()
    provider = await started(path)
    before = path.read_bytes()
    await put(provider, b"1", b"2")
    happens(path)
    with pytest.raises(RolledBack, match="lacks the last 2 transactions that were committed"):
        await provider.stop()
    for _ in range(2):
        with pytest.raises(RolledBack, match="lacks the last 2 transactions"):
            await SQLiteProvider(path).start()
    assert path.read_bytes() == before

    path.with_name("store.db.lock").unlink()
    assert await keys_in(path) == [b"kept"]


async def test_a_wal_that_is_moved_away_and_back_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"1")
    moved(path)
    with pytest.raises(RolledBack, match="put that file back"):
        await put(provider, b"never")
    os.rename(path.with_name("elsewhere"), wal(path))
    await trouble_over(provider)
    await put(provider, b"2")
    await provider.stop()

    assert await keys_in(path) == [b"1", b"2"]


class CutIn:
    """A connection under which the WAL is cut just before its COMMIT: the frames behind the hole do not help."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql == "COMMIT":
            emptied(self._path)
        return self._connection.execute(sql, *arguments)  # type: ignore[arg-type]


async def test_a_wal_that_is_cut_in_the_middle_of_a_transaction_makes_it_an_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"1")
    store = await provider.open("a")
    provider._file._db = CutIn(provider._file._db, path)  # type: ignore[assignment]
    with pytest.raises(RolledBack, match=r"store\.db-wal was overwritten"):
        await store.commit(Batch(puts={b"2": VALUE}))
    assert wal(path).stat().st_size > 32, "it has grown again, and is as long as it was"
    for _ in range(2):  # the first look notes how long the files are now
        with pytest.raises(RolledBack, match=r"store\.db-wal was overwritten"):
            await store.get([b"1"])
    with pytest.raises(RolledBack, match="lacks the last"):
        await provider.stop()
