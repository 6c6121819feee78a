"""A copy of the store that is put in the store's place beside the -wal of a crash, or under a running host: refused, so
that a restore is never undone in silence and no page of one history is moved into another. A crash alone, a restore as
documented and other programs that copy, vacuum or checkpoint raise no alarm."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.cli.processes import tocsin, tocsin_serve
from tests.storage.test_sqlite_crash import committing, killed
from tests.storage.wal_files import copied_over, moved_over, put, started, wal
from tocsin.errors import RolledBack, StoreCorrupt
from tocsin.storage.api import Batch
from tocsin.storage.sqlite.backup import back_up
from tocsin.storage.sqlite.lineage import Mark, is_base
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.snapshot import SnapshotReader

pytestmark = pytest.mark.anyio
FOREIGN = r"is not the file that store\.db-wal belongs to"
Copy = Callable[[Path, Path], object]


# ---- How a store is copied -----------------------------------------------------------------------


def by_tocsin(path: Path, copy: Path) -> None:
    back_up(path, copy)


def by_the_backup_api(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def by_vacuum_into(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as source:
        source.execute("VACUUM INTO ?", (str(copy),))


COPIES: list[Copy] = [by_tocsin, by_the_backup_api, by_vacuum_into]


def restored(path: Path, copy: Path) -> None:
    """As the page on restoring says."""
    shutil.copyfile(copy, path)
    for suffix in ("-wal", "-shm", ".lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def crashing(path: Path, transactions: int, then: Callable[[], object] = lambda: None) -> None:
    """A process that is killed behind so many acknowledged commits; `then` happens just before."""
    process = committing(path)
    assert process.stdout is not None
    for _ in range(transactions):
        process.stdout.readline()
    then()
    process.kill()
    killed(process)


def files(path: Path) -> dict[str, bytes]:
    return {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("", "-wal")}


async def refused(path: Path, *, to_readers: bool = True) -> None:
    before = files(path)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=FOREIGN):
            await SQLiteProvider(path).start()
    if to_readers:
        with pytest.raises(StoreCorrupt, match=FOREIGN), SnapshotReader(path).snapshot():
            pass
    assert files(path) == before, "no page was moved"


# ---- Behind a crash ------------------------------------------------------------------------------


@pytest.mark.parametrize("put_there", [copied_over, moved_over])
@pytest.mark.parametrize("made", COPIES)
@pytest.mark.parametrize("lock_removed", [False, True])
async def test_a_copy_made_since_the_last_start_is_refused_beside_the_wal_of_a_crash(
    lock_removed: bool, made: Copy, put_there: Copy, tmp_path: Path
) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    for _ in range(3):
        await (await started(path)).stop()
    crashing(path, 40, lambda: made(path, copy))
    put_there(path, copy)
    if lock_removed:
        path.with_name("store.db.lock").unlink()
    await refused(path, to_readers=made is by_tocsin)

    wal(path).unlink()  # as the message and the page on restoring say
    path.with_name("store.db.lock").unlink(missing_ok=True)
    assert await pairs_in(path) > 0


@pytest.mark.parametrize("made", COPIES)
@pytest.mark.parametrize("lock_removed", [False, True])
async def test_a_copy_of_another_branch_of_the_store_is_refused_beside_the_wal_of_a_crash(
    lock_removed: bool, made: Copy, tmp_path: Path
) -> None:
    """Both branches began with the same backup, and the copy has as many transactions as the file had in between."""
    path, first, second = tmp_path / "store.db", tmp_path / "first.db", tmp_path / "second.db"
    crashing(path, 120, lambda: made(path, first))
    restored(path, first)
    crashing(path, 80, lambda: made(path, second))
    restored(path, first)
    crashing(path, 200)
    copied_over(path, second)
    if lock_removed:
        path.with_name("store.db.lock").unlink()
    await refused(path)


async def test_a_backup_that_is_restored_twice_is_refused_beside_the_wal_of_the_first_time(tmp_path: Path) -> None:
    """The file that was there began as the very same bytes."""
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    crashing(path, 40, lambda: back_up(path, copy))
    for lock_removed in (False, True):
        restored(path, copy)
        crashing(path, 40)
        copied_over(path, copy)
        if lock_removed:
            path.with_name("store.db.lock").unlink()
        await refused(path)


async def test_a_plain_copy_of_a_stopped_store_is_refused_beside_the_wal_of_a_later_crash(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    provider = await started(path)
    await put(provider, b"1")
    await provider.stop()
    shutil.copyfile(path, copy)
    for lock_removed in (False, True):
        restored(path, copy)
        crashing(path, 40)
        copied_over(path, copy)
        if lock_removed:
            path.with_name("store.db.lock").unlink()
        await refused(path)


async def pairs_in(path: Path) -> int:
    """How many pairs there are, on a file that is sound; what was killed or restored opens."""
    await (await started(path)).stop()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counts = "SELECT count(*) FROM kv WHERE key >= CAST(? AS BLOB) AND key < CAST(? AS BLOB)"
        left, right = (db.execute(counts, (f"{side}/", f"{side}0")).fetchone()[0] for side in ("left", "right"))
    assert left == right
    return int(left)


OLD, ONE, TWO, OTHER = 0, 11, 22, 33
"""Lineages: of a store of an older version, of two starts one behind the other, and of a copy."""


@pytest.mark.parametrize(
    ("file", "log", "belong"),
    [
        (Mark(0, OLD, OLD), [Mark(1, ONE, OLD), Mark(2, ONE, OLD)], True),  # a new store: all is in the log
        (Mark(8, OLD, OLD), [Mark(9, OLD, OLD), Mark(10, OLD, OLD)], True),  # an older version was killed
        (Mark(8, OLD, OLD), [Mark(9, OLD, OLD), Mark(10, ONE, OLD)], True),  # and the next start, too
        (Mark(8, OLD, OLD), [Mark(9, ONE, OLD)], True),  # killed in the middle of its first start
        (Mark(8, ONE, OLD), [Mark(9, TWO, ONE), Mark(10, TWO, ONE)], True),  # a start that could not mark the file
        (Mark(9, TWO, ONE), [Mark(9, TWO, ONE), Mark(10, TWO, ONE)], True),  # moved as far as the start
        (Mark(9, TWO, ONE), [Mark(10, TWO, ONE), Mark(11, TWO, ONE)], True),  # the log began anew
        (Mark(9, TWO, ONE), [Mark(13, TWO, ONE)], True),  # a commit that failed was settled in between
        (Mark(9, TWO, ONE), [], True),  # nothing whole is in the log
        (Mark(9, OTHER, OTHER), [Mark(10, TWO, ONE)], False),  # a backup
        (Mark(9, ONE, OLD), [Mark(10, TWO, ONE), Mark(11, TWO, ONE)], True),
        (Mark(8, ONE, OLD), [Mark(10, TWO, ONE), Mark(11, TWO, ONE)], False),  # a copy from before the start
        (Mark(9, TWO, ONE), [Mark(14, TWO, ONE)], False),  # transactions are missing in between
        (Mark(12, TWO, ONE), [Mark(10, TWO, ONE), Mark(11, TWO, ONE)], False),  # the log is older than the file
        (Mark(8, OLD, OLD), [Mark(10, ONE, OLD)], False),  # a copy that an older version made
    ],
)
def test_a_log_belongs_to_the_file_that_it_began_in_front_of(file: Mark, log: list[Mark], belong: bool) -> None:
    assert is_base(file, log) is belong


# ---- Under a running host ------------------------------------------------------------------------


@pytest.mark.parametrize("made", COPIES)
@pytest.mark.parametrize("moved_since", [False, True])
@pytest.mark.parametrize("use", ["commit", "read", "stop"])
async def test_a_copy_of_the_same_run_that_is_copied_over_the_store_is_noticed(
    use: str, moved_since: bool, made: Copy, tmp_path: Path
) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    provider = await started(path)
    await put(provider, b"1")
    made(path, copy)
    before = copy.read_bytes()
    if moved_since:
        await provider._upkeep.move_wal()
    await put(provider, b"2")
    store = await provider.open("b")
    copied_over(path, copy)
    if use != "stop":
        with pytest.raises(RolledBack, match="was overwritten while it was in use"):
            await (store.commit(Batch(puts={b"k": b"lost"})) if use == "commit" else store.get([b"k"]))
        assert isinstance(provider.trouble, RolledBack)
    with pytest.raises(RolledBack):
        await provider.stop()
    assert path.read_bytes() == before, "nothing was moved into it"


# ---- No false alarm ------------------------------------------------------------------------------


async def test_kills_with_copies_made_meanwhile_are_as_many_starts(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for n in range(12):
        copy = tmp_path / f"copy-{n}.db"
        crashing(path, 4 + 9 * (n % 3), lambda copy=copy, n=n: COPIES[n % 3](path, copy))  # type: ignore[misc]
        if n % 5 == 4:
            path.with_name("store.db.lock").unlink()
        if n % 4 == 3:
            with SnapshotReader(path).snapshot():
                pass
    assert await pairs_in(path) > 0


async def test_a_store_is_restored_as_documented_from_every_kind_of_copy_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for n in range(3):
        copy = tmp_path / f"copy-{n}.db"
        crashing(path, 20, lambda copy=copy, n=n: COPIES[n % 3](path, copy))  # type: ignore[misc]
        restored(path, copy)
        assert await pairs_in(path) > 0
        crashing(path, 5)
        assert await pairs_in(path) > 0


async def test_a_kill_while_another_program_reads_since_before_the_start_is_no_trouble(tmp_path: Path) -> None:
    """The start cannot mark the file then: the log still says what the file was before it."""
    path = tmp_path / "store.db"
    crashing(path, 20)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM kv").fetchone()
        for _ in range(3):
            crashing(path, 10)
            for suffix in ("", "-wal", ".lock"):
                shutil.copy(f"{path}{suffix}", tmp_path / f"pair.db{suffix}")
            assert await pairs_in(tmp_path / "pair.db") > 0


@pytest.mark.parametrize("sql", ["PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_checkpoint(PASSIVE)", "VACUUM"])
async def test_a_kill_behind_another_program_that_moves_the_wal_is_no_trouble(sql: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    def meddle() -> None:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as other:
            other.execute(sql).fetchall()

    for _ in range(5):
        crashing(path, 20, meddle)
    assert await pairs_in(path) > 0


# ---- Served --------------------------------------------------------------------------------------


def test_a_restore_beside_the_wal_of_a_killed_server_is_refused_and_says_so(tmp_path: Path) -> None:
    path, copy = tmp_path / "tocsin.db", tmp_path / "copy.db"
    with tocsin_serve(cwd=tmp_path) as server, httpx.Client(base_url=server.url()) as client:
        for n in range(3):
            body = {"queue": "q", "functionPath": "a:b", "id": f"job-{n}", "delayMs": 10**9}
            assert client.post("/schedule", json=body).status_code == 200
        assert tocsin("backup", "copy.db", cwd=tmp_path).returncode == 0
        assert client.post("/cancel", json={"id": "job-0"}).status_code == 200
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    copied_over(path, copy)
    for command in (["serve", "--port", "0"], ["check"], ["backup", "other.db"]):
        done = tocsin(*command, cwd=tmp_path)
        assert (done.returncode, "is not the file that tocsin.db-wal belongs to" in done.stderr) == (4, True), command
    restored(path, copy)
    with tocsin_serve(cwd=tmp_path) as server, httpx.Client(base_url=server.url()) as client:
        assert client.get("/get", params={"id": "job-0"}).status_code == 200


def test_a_backup_copied_over_the_store_of_a_running_server_is_answered_with_503(tmp_path: Path) -> None:
    path = tmp_path / "tocsin.db"
    with tocsin_serve(cwd=tmp_path) as server, httpx.Client(base_url=server.url()) as client:
        body = {"queue": "q", "functionPath": "a:b", "delayMs": 10**9}
        assert client.post("/schedule", json=body).status_code == 200
        assert tocsin("backup", "copy.db", cwd=tmp_path).returncode == 0
        assert client.post("/schedule", json=body).status_code == 200
        copied_over(path, tmp_path / "copy.db")
        assert client.post("/schedule", json=body).status_code == 503
        assert client.get("/readyz").status_code == 503
        assert client.get("/status").status_code == 503, "reads, too"
        assert server.stop() == 4
    assert path.read_bytes() == (tmp_path / "copy.db").read_bytes()
