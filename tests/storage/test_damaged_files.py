"""Damaged files under a whole host: it stops dispatching, says so, and touches nothing; a WAL that is lost or hurt
behind a crash is noticed at the next start."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tests.cli.processes import tocsin
from tests.storage.host_on_file import GatedTransport, hosting
from tests.storage.test_sqlite_crash import committing, killed
from tests.storage.wal_files import copied_over, moved_over
from tocsin.actors.actor_host import ActorHost
from tocsin.errors import RolledBack, StoreCorrupt, StoreError
from tocsin.storage.api import Batch
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.snapshot import SnapshotReader

pytestmark = pytest.mark.anyio


def page_of(path: Path, table: str) -> tuple[int, int]:
    """Number of its root page, and the size of pages."""
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(root), int(size)


def flip(path: Path, table: str) -> None:
    """Bytes of the head of its root page."""
    root, size = page_of(path, table)
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xee" * 64)


async def readiness(host: ActorHost) -> tuple[int, str]:
    app = httpx.ASGITransport(host.asgi(insecure=True), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=app, base_url="http://127.0.0.1") as client:
        answer = await client.get("/readyz")
    return answer.status_code, answer.text


@pytest.mark.parametrize("table", ["kv", "sqlite_autoindex_actor_1"])
async def test_a_damaged_page_stops_the_dispatching_of_this_store_and_of_no_other(table: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    transport, other_transport = GatedTransport(), GatedTransport()
    async with hosting(path, transport) as (host, _):
        for name in ("hurt", "fine"):
            await host.scheduler(name).run_after("1h", "work:run", id="later")
    flip(path, table)
    before = path.read_bytes()
    async with (
        hosting(path, transport) as (host, provider),
        hosting(tmp_path / "other.db", other_transport) as (other, healthy),
    ):
        with pytest.raises(StoreError):
            await host.scheduler("hurt").run_after(0, "work:run")
        assert isinstance(provider.trouble, StoreCorrupt)
        with pytest.raises(StoreCorrupt, match="damaged"):
            await host.scheduler("new").run_after(0, "work:run")
        status, body = await readiness(host)
        assert (status, "damaged" in body) == (503, True)
        await other.scheduler().run_after(0, "work:run", id="x")
        await other_transport.until(lambda arrived: arrived == ["x"])
        assert healthy.trouble is None
        assert transport.arrived == []

    assert path.stat().st_size == len(before), "it is not made anew"
    assert page_is_still_hurt(path, table)


def page_is_still_hurt(path: Path, table: str) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        try:
            return bool(connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",))
        except sqlite3.DatabaseError:
            return True


async def test_a_damaged_store_still_says_how_it_is_and_why_jobs_wait(tmp_path: Path) -> None:
    """As far as its pages can be read; here another actor's cannot."""
    path, transport = tmp_path / "store.db", GatedTransport()
    async with hosting(path, transport) as (host, provider):
        await host.scheduler("a").run_after(timedelta(milliseconds=200), "work:run", id="due")
        provider._met(StoreCorrupt("the store is damaged: stop, keep the file, restore a backup"))
        await asyncio.sleep(0.4)  # past its due instant: nothing may come
        [reason] = await host.scheduler("a").why("due")
        status = await host.scheduler("a").status()

    assert reason.code == "STORE_CORRUPT"
    assert (status.health, status.in_flight, transport.arrived) == ("red", 0, [])
    assert status.trouble is not None and "damaged" in status.trouble


async def test_a_row_that_cannot_be_read_is_set_aside_in_the_file_and_stops_nobody(tmp_path: Path) -> None:
    path, transport = tmp_path / "store.db", GatedTransport()
    async with hosting(path, transport) as (host, _):
        for n in range(4):
            await host.scheduler().run_after(timedelta(milliseconds=300), "work:run", id=f"job-{n}")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE kv SET value = ? WHERE key = ?", (b"\xc1 no record", b"job/job-2"))
    async with hosting(path, transport) as (host, provider):
        await transport.until(lambda arrived: len(arrived) == 3)
        assert provider.trouble is None, "one row is no trouble of the store"
        status = await host.scheduler().status()
        assert [(one.code, one.message[:5]) for one in status.reasons] == [("DAMAGED_ROWS", "1 job")]
        assert status.health == "amber"
    with closing(sqlite3.connect(path)) as connection:
        kept = connection.execute("SELECT value FROM kv WHERE key >= ? AND key < ?", (b"bad/", b"bad0")).fetchall()

    assert sorted(transport.arrived) == ["job-0", "job-1", "job-3"]
    assert any(b"no record" in value for (value,) in kept), "kept for people to look at"
    checked = tocsin("check", "--store", f"sqlite:///{path}", cwd=tmp_path)
    assert (checked.returncode, "job job-2 was set aside" in checked.stdout) == (1, True)


@pytest.mark.parametrize("use", ["commit", "read", "checkpoint", "stop"])
@pytest.mark.parametrize("left", [0.0, 0.5])
async def test_a_file_that_is_cut_in_use_is_noticed_and_nothing_is_moved_into_it(
    left: float, use: str, tmp_path: Path
) -> None:
    """A checkpoint would make it as long as it was, with holes for pages."""
    path = tmp_path / "store.db"
    await written(path)
    provider = SQLiteProvider(path)
    await provider.start()
    store = await provider.open("a")
    await store.commit(Batch(puts={b"k": b"v"}))
    os.truncate(path, int(path.stat().st_size * left))
    cut = path.read_bytes()
    if use != "stop":
        uses: dict[str, Callable[[], Awaitable[object]]] = {
            "commit": lambda: store.commit(Batch(puts={b"k": b"lost"})),
            "read": lambda: provider.view("a").get([b"0001"]),
            "checkpoint": lambda: provider._upkeep._thread.run(provider._upkeep._checkpoint),
        }
        try:
            with pytest.raises(RolledBack, match=r"was cut from [\d,]+ to [\d,]+ bytes while it was in use"):
                await uses[use]()
        finally:
            with suppress(StoreError):
                await provider.stop()
    with pytest.raises(RolledBack, match="is not, or not all of, the file"):
        await provider.stop()

    assert path.read_bytes() == cut
    with pytest.raises(StoreError):
        await SQLiteProvider(path).start()


# ---- At the start --------------------------------------------------------------------------------


async def written(path: Path) -> None:
    provider = SQLiteProvider(path)
    await provider.start()
    await (await provider.open("a")).commit(Batch(puts={b"%04d" % n: b"v" * 500 for n in range(100)}))
    await provider.stop()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20_000])


def without_its_file(path: Path) -> None:
    path.with_name("store.db-wal").write_bytes(b"frames" * 1_000)
    path.unlink()


def with_an_empty_file(path: Path) -> None:
    path.with_name("store.db-wal").write_bytes(b"frames" * 1_000)
    path.write_bytes(b"")


def content(folder: Path) -> dict[str, bytes]:
    """Of all files, but the one that says who was there last."""
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.suffix != ".lock"}


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (emptied, "is empty, but there was a store"),
        (truncated, "damaged"),
        (without_its_file, "is missing, but store.db-wal holds transactions"),
        (with_an_empty_file, "is empty, but store.db-wal holds transactions"),
    ],
)
async def test_what_sqlite_would_take_for_a_new_store_is_refused_and_left(
    hurt: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    await written(path)
    hurt(path)
    before = content(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=said):
            await SQLiteProvider(path).start()

    assert content(tmp_path) == before


def test_the_command_line_ends_with_4_and_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "tocsin.db"
    asyncio.run(written(path))
    truncated(path)
    done = tocsin("serve", "--port", "0", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (4, "")
    assert "the store is damaged: stop, keep the file, restore a backup" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("left", [0.2, 0.4])
async def test_a_file_that_was_cut_behind_a_crash_is_refused_before_it_is_touched(left: float, tmp_path: Path) -> None:
    """SQLite believes the WAL how many pages there are, and reads those that are missing as zeros."""
    path = tmp_path / "store.db"
    await written(path)
    crash(path)
    os.truncate(path, int(path.stat().st_size * left))
    before = content(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"store\.db was cut: \d+ of its \d+ pages are missing"):
            await SQLiteProvider(path).start()
    assert content(tmp_path) == before


async def test_a_checkpoint_that_was_killed_in_its_middle_has_cut_nothing(tmp_path: Path) -> None:
    """It writes the head of the file first: what is missing then is still in the WAL."""
    path, backup = tmp_path / "store.db", tmp_path / "as-it-was"
    await written(path)
    provider = SQLiteProvider(path)
    await provider.start()
    shutil.copy(path, backup)
    await (await provider.open("a")).commit(Batch(puts={b"new/%04d" % n: b"v" * 500 for n in range(100)}))
    killed_copy = tmp_path / "killed" / "store.db"
    killed_copy.parent.mkdir()
    shutil.copy(path.with_name("store.db-wal"), killed_copy.with_name("store.db-wal"))
    await provider._upkeep._thread.run(provider._upkeep._checkpoint)
    head = path.read_bytes()[:4096]
    await provider.stop()
    killed_copy.write_bytes(head + backup.read_bytes()[4096:])
    assert len(killed_copy.read_bytes()) < int.from_bytes(head[28:32], "big") * 4096

    provider = SQLiteProvider(killed_copy)
    await provider.start()
    assert len(await provider.view("a").scan(b"0", b"z", limit=1_000)) == 200
    await provider.stop()


async def test_garbage_in_place_of_a_wal_is_passed_over(tmp_path: Path) -> None:
    """After a stop in order nothing is in it."""
    path = tmp_path / "store.db"
    await written(path)
    path.with_name("store.db-wal").write_bytes(b"\xa5" * 50_000)
    provider = SQLiteProvider(path)
    await provider.start()
    assert len(await provider.view("a").scan(b"0", b"9", limit=1_000)) == 100
    await provider.stop()


def crash(path: Path) -> None:
    process = committing(path)
    assert process.stdout is not None
    for _ in range(60):
        process.stdout.readline()
    process.kill()
    killed(process)


def wal_lost(wal: Path) -> None:
    wal.unlink()
    wal.with_name("store.db-shm").unlink()


def wal_hurt(wal: Path) -> None:
    """In the middle: SQLite goes by the checksums, stops there and says nothing."""
    pages = bytearray(wal.read_bytes())
    pages[len(pages) // 2] ^= 0xFF
    wal.write_bytes(pages)


def wal_cut(wal: Path) -> None:
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2])


@pytest.mark.parametrize("hurt", [wal_lost, wal_hurt, wal_cut])
async def test_transactions_missing_behind_a_crash_are_noticed(hurt: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await written(path)  # so that there is a store without the WAL, too
    crash(path)
    hurt(path.with_name("store.db-wal"))
    for _ in range(2):  # it does not go away by itself
        with pytest.raises(RolledBack, match=r"lacks the last \d+ transactions that were committed"):
            await SQLiteProvider(path).start()
    assert path.with_name("store.db-wal.kept").exists() == (hurt is not wal_lost)
    with pytest.raises(RolledBack, match="lacks the last"), SnapshotReader(path).snapshot():
        raise AssertionError("a look from outside says the same")

    path.with_name("store.db.lock").unlink()  # as the message says
    provider = SQLiteProvider(path)
    await provider.start()
    assert await provider.exists("a")
    await provider.stop()


@pytest.mark.parametrize("restored", [moved_over, copied_over])
async def test_the_wal_of_a_killed_process_is_not_moved_into_a_backup(
    restored: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    path, backup = tmp_path / "store.db", tmp_path / "backup.db"
    await written(path)
    shutil.copy(path, backup)
    await written(path)  # it has gone on since
    crash(path)
    restored(path, backup)
    whole = path.read_bytes()
    with pytest.raises(StoreCorrupt, match=r"is not the file that store\.db-wal belongs"):
        await SQLiteProvider(path).start()
    assert path.read_bytes() == whole

    path.with_name("store.db-wal").unlink()
    with pytest.raises(RolledBack, match="an older backup lies in its place"):
        await SQLiteProvider(path).start()
    path.with_name("store.db.lock").unlink()
    provider = SQLiteProvider(path)
    await provider.start()
    assert await provider.names("", 9) == ["a"]
    await provider.stop()


async def test_a_folder_copied_behind_a_crash_is_the_same_store(tmp_path: Path) -> None:
    path = tmp_path / "one" / "store.db"
    path.parent.mkdir()
    await written(path)
    crash(path)
    shutil.copytree(path.parent, tmp_path / "two")
    provider = SQLiteProvider(tmp_path / "two" / "store.db")
    await provider.start()
    assert await provider.exists("pairs")
    await provider.stop()
