"""`uvicorn --workers 4` with a store that is not shared: one worker has it, the others wait, and take over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import DEADLINE_S, Server, environment
from tests.processes.server_process import ROOT, free_port
from tocsin.storage.sqlite.provider import SQLiteProvider

WORKERS = 4
SAID = "serves nothing until then, and takes over when the other one ends"


@contextmanager
def supervised(folder: Path, port: int, workers: int = WORKERS) -> Iterator[Server]:
    command = [sys.executable, "-m", "uvicorn", "tests.storage.workers_app:app", "--no-access-log"]
    process = subprocess.Popen(
        [*command, "--workers", str(workers), "--port", str(port)],
        cwd=folder,
        env=environment(PYTHONPATH=str(ROOT), SHARE="no"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    server = Server(process)
    try:
        yield server
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: nobody but it and its workers
        server.end()


def ask(port: int, path: str) -> Any:
    """Polled until somebody answers: it is another process. Fails at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return json.load(answer)
        except (OSError, urllib.error.URLError):
            assert time.monotonic() < deadline, f"nobody answered {path} within {DEADLINE_S} s"
            time.sleep(0.05)


def test_four_workers_say_who_has_the_store_and_the_next_takes_over(tmp_path: Path) -> None:
    port = free_port()
    with supervised(tmp_path, port) as server:
        waiting = [server.line_with(SAID) for _ in range(WORKERS - 1)]
        holder = ask(port, "/schedule")["pid"]
        answers = [ask(port, "/schedule") for _ in range(10)]

        assert {answer["pid"] for answer in answers} == {holder}, "one process answers"
        for line in waiting:
            assert f"workers.db is in use by process {holder}:" in line

        os.kill(holder, signal.SIGKILL)
        after = ask(port, "/count")
        assert after["pid"] != holder
        assert after["backlog"] == 11, "nothing accepted is lost"
        server.line_with(SAID)  # the supervisor's new worker

        assert server.stop() == 0
        lines = server.lines + server.rest()
        assert not [line for line in lines if "Traceback" in line or "failed" in line]
        assert sum(SAID in line for line in lines) == WORKERS


@pytest.mark.anyio
async def test_a_worker_that_waits_ends_when_it_is_told_to(tmp_path: Path) -> None:
    holder = SQLiteProvider(tmp_path / "workers.db")
    await holder.start()
    with supervised(tmp_path, free_port(), workers=1) as server:
        assert f"in use by process {os.getpid()}:" in server.line_with(SAID)
        assert server.stop() in (0, -signal.SIGTERM)
    await holder.stop()
