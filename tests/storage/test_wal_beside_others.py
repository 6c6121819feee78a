"""A WAL that other programs move, or that begins anew, while a host uses it: in order as long as nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.storage.wal_files import VALUE, emptied, keys_in, put, started, wal
from tests.storage.wal_files import looks_often as looks_often
from tests.storage.wal_files import nothing_goes_on as nothing_goes_on
from tocsin.errors import RolledBack
from tocsin.storage.api import Batch

pytestmark = pytest.mark.anyio


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
