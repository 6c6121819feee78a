"""A WAL that is removed, moved, replaced, cut or overwritten while a host uses it, or behind its end: no commit is said
to be durable that a crash would take, no stop is in order that left something behind, and the next start says so."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.storage.hosted import trouble_over
from tests.storage.test_sqlite_crash import committing, killed
from tocsin.errors import RolledBack, StoreError
from tocsin.storage.api import Batch
from tocsin.storage.sqlite import upkeep as sqlite_upkeep
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio
VALUE = b"v" * 3_000


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_upkeep, "LOOK_S", 0.01)


async def put(provider: SQLiteProvider, *keys: bytes) -> None:
    store = await provider.open("a")
    for key in keys:
        await store.commit(Batch(puts={key: VALUE}))


_started: list[SQLiteProvider] = []


async def started(path: Path) -> SQLiteProvider:
    provider = SQLiteProvider(path)
    await provider.start()
    _started.append(provider)
    return provider


@pytest.fixture(autouse=True)
async def nothing_goes_on() -> AsyncIterator[None]:
    """A test that fails in its middle leaves no store behind that looks for ever whether its trouble is over."""
    yield
    for provider in _started:
        with suppress(StoreError):
            await provider.stop()
    _started.clear()


async def keys_in(path: Path) -> list[bytes]:
    provider = await started(path)
    found = await provider.view("a").scan(b"0", b"z", limit=10_000)
    await provider.stop()
    return [key for key, _ in found]


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


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


def emptied(path: Path) -> None:
    os.truncate(wal(path), 0)


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
    for _ in range(2):
        with pytest.raises(RolledBack, match=r"lacks the last \d+ transactions|but \d+ transactions were committed"):
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


def cut(path: Path) -> None:
    os.truncate(wal(path), wal(path).stat().st_size // 2)


NAMELESS, SPOILT = (removed, moved, replaced), (emptied, cut)


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


@pytest.mark.parametrize("happens", SPOILT)
async def test_a_stop_behind_a_wal_that_was_cut_is_not_in_order(
    happens: Callable[[Path], None], tmp_path: Path
) -> None:
    """Nothing of it is moved into the file: holes would be taken for pages."""
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"kept")
    await provider.stop()
    before = path.read_bytes()
    provider = await started(path)
    await put(provider, b"1", b"2")
    happens(path)
    with pytest.raises(RolledBack, match="lacks the last 3 transactions that were committed"):
        await provider.stop()
    for _ in range(2):
        with pytest.raises(RolledBack, match="lacks the last 3 transactions"):
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
    with pytest.raises(RolledBack, match="lacks the last"):
        await provider.stop()


# ---- No false alarm ------------------------------------------------------------------------------


OTHERS = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
for _ in range(int(sys.argv[3])):
    connection.execute(sys.argv[2]).fetchall()
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("sql", ["PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_checkpoint(RESTART)", "VACUUM"])
async def test_a_program_that_moves_the_wal_beside_the_host_is_no_trouble(sql: str, tmp_path: Path) -> None:
    """As those do that copy a store all the time. The WAL gets shorter, and begins anew, under commits and reads."""
    path = tmp_path / "store.db"
    provider = await started(path)
    store, view = await provider.open("a"), provider.view("a")
    await store.commit(Batch(puts={b"big/%d" % n: bytes(60_000) for n in range(50)}))
    await store.commit(Batch(deletes={b"big/%d" % n for n in range(50)}))  # there is something to vacuum
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OTHERS, str(path), sql, "40",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert other.stdout is not None and other.stdin is not None
    ending = asyncio.create_task(other.stdout.readline())
    n = 0
    while not ending.done() or n < 100:
        await store.commit(Batch(puts={b"%06d" % n: VALUE}))
        assert (await view.get([b"%06d" % n])) == {b"%06d" % n: VALUE}
        n += 1
    assert await ending == b"done\n"
    await provider.stop()  # while the other one has the file open: nothing is moved then
    other.stdin.write(b"\n")
    await other.wait()

    assert len(await keys_in(path)) == n


async def test_a_wal_that_another_program_empties_just_behind_a_commit_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the commit and the look at the WAL, again and again: with every commit moved into the file."""
    path = tmp_path / "store.db"
    provider = await started(path)
    note, emptied_wals = provider._lock.note_commit, []

    def noted(seq: int) -> None:
        note(seq)
        with closing(sqlite3.connect(path, timeout=30)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        emptied_wals.append(wal(path).stat().st_size == 0)

    monkeypatch.setattr(provider._lock, "note_commit", noted)
    await put(provider, *(b"%d" % n for n in range(5)))
    monkeypatch.setattr(provider._lock, "note_commit", note)
    await put(provider, b"5", b"6")
    assert (emptied_wals, provider.trouble) == ([True] * 5, None)
    await provider.stop()

    assert await keys_in(path) == [b"%d" % n for n in range(7)]


async def test_a_loss_of_power_in_the_middle_of_a_checkpoint_is_no_trouble(tmp_path: Path) -> None:
    """The lock file may reach the disk before what a checkpoint has written: the WAL still holds that."""
    path, lost = tmp_path / "store.db", tmp_path / "lost" / "store.db"
    lost.parent.mkdir()
    provider = await started(path)
    await put(provider, b"1")
    await provider.stop()
    provider = await started(path)
    await put(provider, b"2")
    unwritten = path.read_bytes()
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM meta").fetchall()  # the WAL does not begin anew while this snapshot is open
        await provider._upkeep.move_wal()
        await put(provider, b"3")
        assert path.read_bytes() != unwritten
        lost.write_bytes(unwritten)
        for suffix in ("-wal", ".lock"):
            shutil.copy(f"{path}{suffix}", f"{lost}{suffix}")
    await provider.stop()

    assert await keys_in(lost) == [b"1", b"2", b"3"]


async def test_a_wal_that_is_cut_just_behind_a_commit_is_noticed_with_that_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file holds all but the last transaction, so a checkpoint has not emptied it."""
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"1")
    await provider._upkeep.move_wal()
    note = provider._lock.note_commit

    def noted(seq: int) -> None:
        note(seq)
        emptied(path)

    monkeypatch.setattr(provider._lock, "note_commit", noted)
    with pytest.raises(RolledBack, match=r"-wal was (overwritten|cut)"):
        await put(provider, b"2")
    monkeypatch.setattr(provider._lock, "note_commit", note)
    with pytest.raises(RolledBack, match="lacks the last"):
        await provider.stop()


async def test_a_long_wal_that_is_cut_when_it_begins_anew_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.storage.sqlite.writer.WAL_KEPT_BYTES", 64 * 1024)
    path = tmp_path / "store.db"
    provider = await started(path)
    lengths = []
    for n in range(20):
        await put(provider, *(b"%02d/%02d" % (n, m) for m in range(30)))
        lengths.append(wal(path).stat().st_size)
        await provider._upkeep.move_wal()
    await provider.stop()

    assert min(lengths[1:]) < max(lengths)
    assert len(await keys_in(path)) == 600


async def test_a_stop_behind_the_last_reader_of_another_program_is_found_whole_by_the_next_start(
    tmp_path: Path,
) -> None:
    """SQLite leaves the WAL to whoever closes the file last."""
    path = tmp_path / "store.db"
    provider = await started(path)
    await put(provider, b"1")
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader:
        assert reader.execute("SELECT count(*) FROM kv").fetchone() == (1,)
        await provider.stop()
        assert wal(path).stat().st_size > 0
        lone = path.with_name("lone")
        lone.mkdir()
        for suffix in ("", "-wal", ".lock"):
            shutil.copy(f"{path}{suffix}", lone)
    assert await keys_in(lone / "store.db") == [b"1"]

    (lone / "store.db-wal").unlink(missing_ok=True)
    assert await keys_in(path) == [b"1"]
