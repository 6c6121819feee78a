"""`tocsin check` and `tocsin backup` on stores that are in use, damaged, not there, or somebody else's."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tocsin import ActorHost
from tocsin.actors.runtime.clock import SystemClock
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.integrity.check import check_one
from tocsin.errors import StoreUnavailable
from tocsin.storage.snapshot import Changed
from tocsin.storage.sqlite.snapshot import SnapshotReader
from tocsin.storage.urls import back_up

from .conftest import Run
from .damaged_stores import RecordingTransport, Rows, deliver, edited, fill, open_host
from .processes import tocsin_serve

ROUNDS = 20


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@contextmanager
def busy(path: Path) -> Iterator[None]:
    """A host that schedules, fires, retries and cancels as fast as it can, on a loop of its own."""
    stop, ready = threading.Event(), threading.Event()

    async def main() -> None:
        clock = SystemClock()
        async with open_host(path, RecordingTransport(clock, {}), clock) as host:
            for _ in range(3):  # so many rows that they are not read in one piece
                await host.scheduler("a").submit_many([Job(path="w:r", after=3_600.0)] * 1_000)
            ready.set()
            await asyncio.gather(*(work(host, name) for name in ("a", "b")))

    async def work(host: ActorHost, name: str) -> None:
        jobs = host.scheduler(name)
        n = 0
        while not stop.is_set():
            n += 1
            made = [
                Job(path="w:r", after=(k % 3) * 0.05, options={"id": f"j{n}-{k}", "pool": f"p{k % 4}"})
                for k in range(40)
            ]
            await jobs.submit_many(made)
            await jobs.cancel(f"j{n}-2")
            await jobs.reschedule(f"j{n}-5", after=0.01)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(10)
        yield
        assert thread.is_alive(), "it went on all the time"
    finally:
        stop.set()
        thread.join()


def test_while_a_server_writes_at_full_load_a_check_sees_no_fault(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    seen = set()
    with busy(path):
        for _ in range(50 * ROUNDS):
            result = run("check", "--store", f"sqlite:///{path}", "--json")
            assert result.exit_code == 0, result.output
            seen.add(json.loads(result.stdout.splitlines()[-1])["rows"])
            if len(seen) >= ROUNDS:
                break
        copied = [run("backup", str(tmp_path / f"copy-{n}"), "--store", f"sqlite:///{path}") for n in range(3)]
    assert len(seen) >= ROUNDS, "the store stood still"
    assert [result.exit_code for result in copied] == [0, 0, 0]
    for n in range(3):
        assert run("check", "--store", f"sqlite:///{tmp_path / f'copy-{n}'}").exit_code == 0


# ---- In use --------------------------------------------------------------------------------------


def test_a_repair_beside_a_server_is_refused_and_says_which_process(run: Run, store: Path) -> None:
    with tocsin_serve("--store", f"sqlite:///{store}", cwd=store.parent) as server:
        server.url()
        for sound in (True, False):
            if not sound:
                with edited(store) as rows:
                    rows.delete(rows.one(b"parked/"))
            result = run("check", "--repair", "--store", f"sqlite:///{store}")
            assert result.exit_code == 4, "also when there is nothing to repair"
            assert f"in use by process {server.process.pid}" in result.stderr
            assert "Without --repair" in result.stderr
        assert run("check", "--store", f"sqlite:///{store}").exit_code == 1
    assert not list(store.parent.glob("*before-repair*"))
    assert run("check", "--repair", "--store", f"sqlite:///{store}").exit_code == 0, "once the server is gone"


def test_a_store_whose_server_was_killed_is_read_with_its_wal(run: Run, store: Path) -> None:
    with tocsin_serve("--store", f"sqlite:///{store}", cwd=store.parent) as server:
        server.url()
    there = files(store.parent)
    assert "jobs.db-wal" in there
    before = {name: (store.parent / name).read_bytes() for name in ("jobs.db", "jobs.db-wal")}
    assert run("check", "--store", f"sqlite:///{store}").exit_code == 0
    assert files(store.parent) == there
    assert {name: (store.parent / name).read_bytes() for name in before} == before


def test_somebody_who_opens_the_store_meanwhile_is_noticed_and_it_is_read_again(store: Path) -> None:
    look = SnapshotReader(store)
    with pytest.raises(Changed), look.snapshot(), edited(store) as rows:
        rows.put(b"pool/p0", rows.get(b"pool/p"))

    class Visited(SnapshotReader):
        visits = 0

        @contextmanager
        def snapshot(self):  # type: ignore[no-untyped-def]
            with super().snapshot() as taken:
                self.visits += 1
                if self.visits < 3:
                    with edited(store) as rows:
                        rows.put(b"pool/p%d" % self.visits, rows.get(b"pool/p"))
                yield taken

    visited = Visited(store)
    checked = asyncio.run(check_one(visited, "default"))
    assert checked is not None and not checked.findings.total
    assert visited.visits == 3


def test_a_store_that_never_stands_still_is_said_to(store: Path) -> None:
    class Restless(SnapshotReader):
        @contextmanager
        def snapshot(self):  # type: ignore[no-untyped-def]
            with super().snapshot() as taken:
                os.utime(store, ns=(1, store.stat().st_mtime_ns + 1))
                yield taken

    with pytest.raises(StoreUnavailable, match="opened and closed all the time"):
        asyncio.run(check_one(Restless(store), "default"))


# ---- Not a sound file ----------------------------------------------------------------------------


def corrupt(path: Path) -> None:
    """Flip bytes in the middle of pages, as a bad disk does."""
    with path.open("r+b") as file:
        for page in range(4, path.stat().st_size // 4096, 2):
            file.seek(page * 4096)
            file.write(b"\xa5" * 64)


@pytest.mark.parametrize("words", ["check", "check --repair", "check --json"])
def test_a_damaged_file_is_said_to_be_damaged_and_not_touched(run: Run, store: Path, words: str) -> None:
    corrupt(store)
    before = store.read_bytes()
    result = run(*words.split(), "--store", f"sqlite:///{store}")
    assert result.exit_code == 4
    assert "damaged" in result.stderr
    assert "restore the last good copy" in result.stderr
    assert store.read_bytes() == before
    assert files(store.parent) == ["jobs.db"]


def test_a_damaged_file_is_not_copied_under_a_good_name(run: Run, store: Path, tmp_path: Path) -> None:
    corrupt(store)
    result = run("backup", str(tmp_path / "copy.db"), "--store", f"sqlite:///{store}")
    assert result.exit_code == 4
    assert files(tmp_path) == ["jobs.db"]


def test_what_is_not_a_store_exits_4_and_stays_as_it_was(run: Run, tmp_path: Path) -> None:
    text, other, newer = tmp_path / "text", tmp_path / "other", tmp_path / "newer"
    text.write_text("hello " * 1_000)
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE mine (a)")
    asyncio.run(fill(newer))
    with closing(sqlite3.connect(newer, isolation_level=None)) as db:
        db.execute("UPDATE meta SET v = 99 WHERE k = 'layout'")
    for path, words in (
        (text, f"the file {text} is not a SQLite database"),
        (other, "not one of tocsin's"),
        (newer, "newer tocsin"),
        (tmp_path / "absent", "there is no store"),
        (tmp_path, "is not a file"),
    ):
        for command in (["check"], ["check", "--repair"], ["backup", str(tmp_path / "copy")]):
            result = run(*command, "--store", f"sqlite:///{path}")
            assert result.exit_code == 4, (path, result.output)
            assert words in result.stderr
    assert not (tmp_path / "absent").exists()
    assert not (tmp_path / "copy").exists()


def test_wrong_names_of_stores_exit_2(run: Run) -> None:
    for url in ("memory:", "mysql://x", "jobs.db"):
        assert run("check", "--store", url).exit_code == 2, url


@pytest.mark.parametrize("word", ["check", "backup copy.db"])
def test_a_file_given_as_a_store_is_answered_with_its_url(
    run: Run, store: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(store.parent)
    for file, url in (("jobs.db", "sqlite:///jobs.db"), (str(store), f"sqlite:///{store}")):
        result = run(*word.split(), "--store", file)
        assert result.exit_code == 2
        assert f"must be a store URL: {url}, not {file!r}" in result.stderr
        assert run("check", "--store", url).exit_code == 0, "what is proposed works"
    result = run("check", env={"TOCSIN_STORE": "jobs.db"})
    assert (result.exit_code, "sqlite:///jobs.db" in result.stderr) == (2, True)


def test_a_newer_layout_of_rows_is_not_judged_and_not_mended(run: Run, store: Path) -> None:
    with edited(store) as rows:
        rows.put(b"meta/layout", b"99")
        rows.delete(rows.one(b"parked/"))
    before = store.read_bytes()
    for words in ([], ["--repair"]):
        result = run("check", "--store", f"sqlite:///{store}", *words)
        assert result.exit_code == 1
        assert "LAYOUT  1" in result.stdout
        assert "PARKED" not in result.stdout
        assert "for people" in result.stderr
    assert store.read_bytes() == before
    assert files(store.parent) == ["jobs.db"]


# ---- Which store, which schedulers ---------------------------------------------------------------


def test_the_store_comes_from_option_environment_or_file(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("check").exit_code == 4, "there is no tocsin.db here"
    assert run("check", env={"TOCSIN_STORE": f"sqlite:///{store}"}).exit_code == 0
    (tmp_path / "tocsin.toml").write_text('store = "sqlite:///jobs.db"')
    assert run("check").exit_code == 0
    # Where the store is named, settings that are not its own do no harm.
    assert run("check", "--store", "sqlite:///jobs.db", env={"TOCSIN_SECRETS_FILE": "absent"}).exit_code == 0


def test_one_scheduler_is_checked_and_mended_alone(run: Run, store: Path) -> None:
    async def second() -> None:
        async with ActorHost.open(f"sqlite:///{store}", origin="http://127.0.0.1:1", insecure=True) as host:
            await host.scheduler("tenant:b").run_after("1h", "w:r", id="other")

    asyncio.run(second())
    with closing(sqlite3.connect(store, isolation_level=None)) as db:
        for name in ("scheduler/default", "scheduler/tenant:b"):
            rows = Rows(db, name)
            rows.put(b"timer/001900000000000/retire/x")
        db.execute("INSERT INTO actor (name) VALUES ('counter/c'), ('aaa/b')")
    url = f"sqlite:///{store}"
    assert "2 faults" in run("check", "--store", url).stderr
    result = run("check", "--store", url, "--instance", "tenant:b", "--repair")
    assert (result.exit_code, "repaired 1 of 1" in result.stderr) == (0, True)
    assert run("check", "--store", url, "--instance", "tenant:b").exit_code == 0
    assert run("check", "--store", url).exit_code == 1
    result = run("check", "--store", url, "--instance", "nobody")
    assert (result.exit_code, "no scheduler 'nobody'" in result.stderr) == (1, True)


def test_an_instance_that_is_being_removed_is_not_judged(run: Run, store: Path) -> None:
    from tocsin.actors.scheduler.model.rows import InstanceRow, encode

    with edited(store) as rows:
        rows.put(b"instance", encode(InstanceRow(paused=True, erasing=True)))
        rows.delete(b"job/plain")
    assert run("check", "--store", f"sqlite:///{store}").exit_code == 0
    with edited(store) as rows:
        rows.wake(None)
    result = run("check", "--store", f"sqlite:///{store}")
    assert "being removed" in result.stdout
    assert run("check", "--store", f"sqlite:///{store}", "--repair").exit_code == 0


def test_more_faults_than_one_commit_takes_are_mended(run: Run, store: Path) -> None:
    with edited(store) as rows:
        rows._db.execute("BEGIN")
        for n in range(5_500):
            rows.put(b"timer/%015d/retire/x%d" % (1_900_000_000_000 + n, n))
        for n in range(1_500):
            rows.put(b"args/nobody%d/00" % n, b"x" * 5_000)
        rows._db.execute("COMMIT")
    url = f"sqlite:///{store}"
    result = run("check", "--store", url, "--examples", "2")
    assert result.exit_code == 1
    assert "TIMER_IDLE  5,500" in result.stdout
    assert "and 5,498 more" in result.stdout
    assert len(result.stdout.splitlines()) < 20
    result = run("check", "--store", url, "--repair")
    assert (result.exit_code, "repaired 7,000 of 7,000" in result.stderr) == (0, True)
    assert "1,500 rows set aside" in result.stderr
    assert {one.id for one in asyncio.run(deliver(store, {"plain", "big"}))} >= {"plain", "big"}


# ---- Copies --------------------------------------------------------------------------------------


def test_a_copy_is_whole_overwrites_nothing_and_is_for_its_owner_only(run: Run, store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    result = run("backup", str(copy), "--store", f"sqlite:///{store}", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"file": str(copy), "bytes": copy.stat().st_size})
    assert copy.stat().st_mode & 0o777 == 0o600
    assert files(tmp_path) == ["copy.db", "jobs.db"]
    before = copy.read_bytes()
    result = run("backup", str(copy), "--store", f"sqlite:///{store}")
    assert (result.exit_code, "is there already" in result.stderr) == (2, True)
    assert "give another name, or move it away" in result.stderr
    assert copy.read_bytes() == before
    assert {one.id for one in asyncio.run(deliver(copy, {"plain", "held"}))} >= {"plain", "held"}


def test_a_copy_never_lands_on_what_came_meanwhile(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tocsin.storage.sqlite import backup as sqlite_backup

    target = tmp_path / "copy.db"
    verify = sqlite_backup._verify

    def meanwhile(partial: Path) -> None:
        verify(partial)
        target.write_text("somebody's")

    monkeypatch.setattr(sqlite_backup, "_verify", meanwhile)
    with pytest.raises(StoreUnavailable, match="there already"):
        back_up(f"sqlite:///{store}", target)
    assert target.read_text() == "somebody's"
    assert files(tmp_path) == ["copy.db", "jobs.db"]


def test_a_copy_that_cannot_be_written_leaves_nothing(run: Run, store: Path, tmp_path: Path) -> None:
    result = run("backup", str(tmp_path / "nowhere" / "copy.db"), "--store", f"sqlite:///{store}")
    assert (result.exit_code, "make it" in result.stderr) == (4, True)
    (tmp_path / "link").symlink_to(tmp_path / "target-of-nothing")
    assert run("backup", str(tmp_path / "link"), "--store", f"sqlite:///{store}").exit_code == 2
    assert files(tmp_path) == ["jobs.db", "link"]
