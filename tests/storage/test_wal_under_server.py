"""A server whose WAL is removed or cut, in use or behind a crash: what callers and operators hear of it."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.cli.processes import tocsin, tocsin_serve
from tests.storage.test_wal import crashed, removed
from tests.storage.wal_files import emptied


@pytest.mark.parametrize("in_the_file", ["nothing", "a part"])
def test_the_command_line_says_what_a_store_lacks_and_a_backup_of_it_is_refused(
    in_the_file: str, tmp_path: Path
) -> None:
    path = tmp_path / "tocsin.db"
    crashed(path)
    if in_the_file == "a part":
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        crashed(path)
    removed(path)
    for command in (["check"], ["check", "--repair"], ["backup", "copy.db"], ["serve", "--port", "0"]):
        done = tocsin(*command, cwd=tmp_path)

        assert (done.returncode, done.stdout) == (4, ""), command
        assert "lacks the last" in done.stderr and "remove tocsin.db.lock" in done.stderr, command
    assert not (tmp_path / "copy.db").exists()


def test_what_was_answered_is_there_after_a_kill_though_the_wal_was_removed(tmp_path: Path) -> None:
    """It is noticed with the next commit, and what SQLite still has open is moved into the file then."""
    path = tmp_path / "tocsin.db"
    with tocsin_serve(cwd=tmp_path) as server, httpx.Client(base_url=server.url()) as client:

        def schedule(job: str) -> int:
            body = {"queue": "q", "functionPath": "a:b", "id": job, "delayMs": 10**9}
            return client.post("/schedule", json=body).status_code

        assert [schedule(f"job-{n}") for n in range(5)] == [200] * 5
        removed(path)
        assert [schedule("refused"), client.get("/readyz").status_code] == [503, 503]
        server.line_with("what it held was moved into the file")
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    with tocsin_serve(cwd=tmp_path) as server, httpx.Client(base_url=server.url()) as client:
        found = {f"job-{n}": client.get("/get", params={"id": f"job-{n}"}).status_code for n in range(5)}

    assert set(found.values()) == {200}, found


def test_a_server_whose_wal_was_emptied_does_not_end_with_0_and_starts_no_more(tmp_path: Path) -> None:
    path = tmp_path / "tocsin.db"
    with tocsin_serve(cwd=tmp_path) as server, httpx.Client(base_url=server.url()) as client:
        body = {"queue": "q", "functionPath": "a:b", "delayMs": 10**9}
        assert client.post("/schedule", json=body).status_code == 200
        emptied(path)
        assert server.stop() == 4
        said = "\n".join(server.rest())
    assert "lacks the last" in said and "remove tocsin.db.lock" in said and "Traceback" not in said
    for command in (["serve", "--port", "0"], ["check"]):
        done = tocsin(*command, cwd=tmp_path)
        assert (done.returncode, "lacks the last" in done.stderr) == (4, True), command
