"""A file, or its lock, that is replaced, moved, overwritten, linked or inherited while a host uses it: nothing more is
said to be durable that will not be found again."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tests.storage.host_on_file import GatedTransport, hosting, trouble_over
from tests.storage.wal_files import copied_over, moved_over
from tests.storage.wal_files import looks_often as looks_often
from tocsin.errors import Fenced, RolledBack, StoreError, StoreLocked, StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio


async def put(provider: SQLiteProvider, value: bytes) -> None:
    await (await provider.open("a")).commit(Batch(puts={b"k": value}))


async def value_in(path: Path) -> bytes | None:
    """Read by another start; the file is sound."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    provider = SQLiteProvider(path)
    await provider.start()
    found = await provider.view("a").get([b"k"])
    await provider.stop()
    return found.get(b"k")


async def stopped_without_its_file(provider: SQLiteProvider) -> None:
    """That is no stop in order: it says so, and so does every start until somebody says to go on."""
    with pytest.raises(RolledBack, match=r"to go on without them, remove store\.db\.lock|lacks the last"):
        await provider.stop()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"lacks the last \d+ transactions|is missing, but"):
            await SQLiteProvider(provider.path).start()
    provider.path.with_name("store.db.lock").unlink()


async def with_a_backup(path: Path) -> tuple[SQLiteProvider, Path]:
    """A store that was backed up, and has gone on since."""
    backup = path.with_name("backup.db")
    provider = SQLiteProvider(path)
    await provider.start()
    await put(provider, b"backed up")
    await provider.stop()
    shutil.copy(path, backup)
    await provider.start()
    await put(provider, b"later")
    return provider, backup


@pytest.mark.parametrize("restored", [moved_over, copied_over])
@pytest.mark.parametrize("checkpointed", [True, False])
async def test_a_backup_restored_under_a_running_host_is_noticed_and_stays_whole(
    restored: Callable[[Path, Path], None], checkpointed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    provider, backup = await with_a_backup(path)
    if checkpointed:
        await provider._upkeep._thread.run(provider._upkeep._checkpoint)
        await put(provider, b"later still")
    elif restored is copied_over:
        await provider.stop()  # a copy over a file that nothing was moved into since changes nothing
        await provider.start()
        await put(provider, b"later still")
    store = await provider.open("b")
    restored(path, backup)
    with pytest.raises(RolledBack, match=r"replaced or removed|overwritten") as caught:
        await store.commit(Batch(puts={b"k": b"lost"}))
    assert caught.value.owner_lost
    await asyncio.sleep(0.05)  # looks for whether it is over, many times
    assert isinstance(provider.trouble, RolledBack), "memory is of another history: only a start helps"
    with pytest.raises(StoreError):
        await provider._upkeep._thread.run(provider._upkeep._checkpoint)
    await stopped_without_its_file(provider)

    assert await value_in(path) == b"backed up"


@pytest.mark.parametrize("restored", [moved_over, copied_over])
async def test_a_backup_restored_under_an_idle_host_survives_its_stop(
    restored: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    """Nothing was read or written since: closing must not move the WAL into it all the same."""
    path = tmp_path / "store.db"
    provider, backup = await with_a_backup(path)
    await provider.stop()
    await provider.start()
    await put(provider, b"later still")
    restored(path, backup)
    await stopped_without_its_file(provider)

    assert await value_in(path) == b"backed up"


async def test_nothing_is_read_from_a_file_that_is_no_longer_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    provider, backup = await with_a_backup(path)
    view, store = provider.view("a"), await provider.open("a")
    moved_over(path, backup)
    for read in (view.get([b"k"]), store.get([b"k"]), provider.exists("a"), provider.names("", 9)):
        with pytest.raises(RolledBack, match="replaced or removed"):
            await read
    assert isinstance(provider.trouble, RolledBack)
    await stopped_without_its_file(provider)


async def test_a_file_that_is_moved_away_and_back_goes_on(tmp_path: Path) -> None:
    path, transport = tmp_path / "store.db", GatedTransport()
    async with hosting(path, transport) as (host, provider):
        await host.scheduler().run_after(timedelta(milliseconds=100), "work:run", id="before")
        os.rename(path, tmp_path / "away.db")
        with pytest.raises(RolledBack, match="put that file back"):
            await host.scheduler().run_after(0, "work:run", id="meanwhile")
        await asyncio.sleep(0.2)  # past the instant at which the first one is due
        assert transport.arrived == []
        os.rename(tmp_path / "away.db", path)
        await trouble_over(provider)
        assert await host.scheduler().run_after(0, "work:run", id="after") == "after"
        await transport.until(lambda arrived: {"before", "after"} <= set(arrived))

    assert sorted(transport.arrived) == ["after", "before"]


class MovedIn:
    """A connection under which the file is moved away just before or after its COMMIT."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql == "COMMIT" and self._path.exists():
            os.rename(self._path, self._path.with_name("away.db"))
        return self._connection.execute(sql, *arguments)  # type: ignore[arg-type]


async def test_a_file_that_goes_in_the_middle_of_a_transaction_makes_it_an_error(tmp_path: Path) -> None:
    provider = SQLiteProvider(tmp_path / "store.db")
    await provider.start()
    store = await provider.open("a")
    provider._file._db = MovedIn(provider._file._db, provider.path)  # type: ignore[assignment]
    with pytest.raises(RolledBack, match="replaced or removed"):
        await store.commit(Batch(puts={b"k": b"v"}))
    await stopped_without_its_file(provider)

    assert not provider.path.exists()


# ---- The lock ------------------------------------------------------------------------------------


async def test_a_lock_file_that_is_removed_is_made_anew(tmp_path: Path) -> None:
    provider = SQLiteProvider(tmp_path / "store.db")
    await provider.start()
    await put(provider, b"1")
    (tmp_path / "store.db.lock").unlink()
    await put(provider, b"2")
    with pytest.raises(StoreLocked, match=f"process {os.getpid()}:"):
        await SQLiteProvider(tmp_path / "store.db").start()
    await provider.stop()

    assert await value_in(tmp_path / "store.db") == b"2"


async def test_who_was_too_slow_to_lock_anew_is_fenced(tmp_path: Path) -> None:
    provider = SQLiteProvider(tmp_path / "store.db")
    await provider.start()
    (tmp_path / "store.db.lock").unlink()
    other = LockFile(tmp_path / "store.db.lock")
    other.take()
    with pytest.raises(Fenced, match="another process has the store"):
        await put(provider, b"lost")
    assert isinstance(provider.trouble, Fenced)
    other.let_go()
    await trouble_over(provider)
    await put(provider, b"written")
    await provider.stop()


async def test_a_start_by_others_without_the_lock_fences_who_had_it(tmp_path: Path) -> None:
    """Even where file locks mean nothing, `seq` tells."""
    path = tmp_path / "store.db"
    provider = SQLiteProvider(path)
    await provider.start()
    await put(provider, b"1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET v = v + 1 WHERE k IN ('seq', 'starts')")  # as a start does
        connection.execute("UPDATE meta SET v = (SELECT v FROM meta WHERE k = 'lineage') WHERE k = 'parent'")
        connection.execute("UPDATE meta SET v = 1 WHERE k = 'lineage'")
    for _ in range(2):
        with pytest.raises(RolledBack, match="restored or written by others"):
            await put(provider, b"2")
    await provider.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of files that do not meet SQLite's own")
async def test_a_hard_link_is_the_same_store(tmp_path: Path) -> None:
    """With a WAL of its own: two of them would ruin the file."""
    provider = SQLiteProvider(tmp_path / "store.db")
    await provider.start()
    await put(provider, b"1")
    os.link(tmp_path / "store.db", tmp_path / "other.db")
    with pytest.raises(StoreLocked, match="in use under another name"):
        await SQLiteProvider(tmp_path / "other.db").start()
    await put(provider, b"2")
    await provider.stop()

    assert await value_in(tmp_path / "other.db") == b"2"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of files that do not meet SQLite's own")
async def test_a_start_that_is_refused_again_and_again_uses_up_no_descriptors(tmp_path: Path) -> None:
    """As a process does that waits until the store is free."""
    provider = SQLiteProvider(tmp_path / "store.db")
    await provider.start()
    os.link(tmp_path / "store.db", tmp_path / "other.db")
    other = SQLiteProvider(tmp_path / "other.db")
    used = []
    for _ in range(5):
        with pytest.raises(StoreLocked, match="in use under another name"):
            await other.start()
        used.append(len(os.listdir("/proc/self/fd")))
        await put(provider, b"1")
    assert used[1:] == used[:1] * 4
    await provider.stop()

    await other.start()
    await put(other, b"2")
    await other.stop()
    assert await value_in(tmp_path / "store.db") == b"2"


# ---- Names ---------------------------------------------------------------------------------------


async def test_a_relative_path_is_where_it_was_when_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    provider = SQLiteProvider("store.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await provider.start()
    await put(provider, b"1")
    await provider.stop()

    assert os.listdir(tmp_path / "elsewhere") == []
    assert await value_in(tmp_path / "store.db") == b"1"


@pytest.mark.parametrize("path", ["/dev/full", "/dev/null"])
async def test_what_is_not_a_file_is_refused_and_nothing_made_beside_it(path: str) -> None:
    before = os.listdir("/dev")
    with pytest.raises(StoreUnavailable, match=f"{path} is not a file"):
        await SQLiteProvider(path).start()
    assert os.listdir("/dev") == before


# ---- fork ----------------------------------------------------------------------------------------

FORKING = """
import asyncio, os, sys
from tocsin.errors import StoreClosed, StoreLocked
from tocsin.storage.api import Batch
from tocsin.storage.sqlite.provider import SQLiteProvider

async def main():
    provider = SQLiteProvider(sys.argv[1])
    await provider.start()
    await (await provider.open("a")).commit(Batch(puts={b"k": b"1"}))
    return provider

loop = asyncio.new_event_loop()
provider = loop.run_until_complete(main())
said, say = os.pipe()
child = os.fork()
if child == 0:
    async def refused():
        said = []
        for use in (lambda: provider.view("a").get([b"k"]), lambda: provider.open("a"), lambda: provider.names("", 1)):
            try:
                await use()
            except StoreClosed as error:
                said.append("forked" in str(error))
        await provider.stop()
        try:
            await SQLiteProvider(sys.argv[1]).start()
        except StoreLocked:
            said.append(True)
        return said
    done = asyncio.new_event_loop().run_until_complete(asyncio.wait_for(refused(), 10))
    print(done, flush=True)
    os.write(say, b".")
    sys.stdin.readline()  # outlives its parent
    os._exit(0)
os.read(said, 1)
async def more():
    await (await provider.open("a")).commit(Batch(puts={b"k": b"2"}))
loop.run_until_complete(more())
os._exit(0)  # without a stop: the child must not keep the lock
"""


def test_a_forked_child_uses_nothing_of_the_store_and_keeps_nobody_out(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    command = [sys.executable, "-c", FORKING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            said = process.stdout.readline()
            assert process.wait(10) == 0
            assert said == "[True, True, True, True]\n"
            assert asyncio.run(value_in(path)) == b"2", "the parent is gone, its child is not"
        finally:
            process.stdin.write("\n")


async def test_a_file_that_another_program_makes_shorter_in_order_is_no_trouble(tmp_path: Path) -> None:
    """A vacuum moves what is there to the front and cuts off the rest, page by page as the file's head says."""
    path = tmp_path / "store.db"
    provider = SQLiteProvider(path)
    await provider.start()
    store = await provider.open("a")
    await store.commit(Batch(puts={b"big/%d" % n: bytes(60_000) for n in range(50)}))
    vacuum = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30); "
    moved = "db.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()"
    by_others(path, vacuum + moved)
    await store.commit(Batch(deletes={b"big/%d" % n for n in range(50)}))
    long = path.stat().st_size
    by_others(path, vacuum + "db.execute('VACUUM'); " + moved)
    try:
        assert path.stat().st_size < long
        await put(provider, b"goes on")
        assert provider.trouble is None
    finally:
        with suppress(StoreError):
            await provider.stop()

    assert await value_in(path) == b"goes on"


def by_others(path: Path, program: str) -> None:
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60)
