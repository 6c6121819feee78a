"""Who is at the other end of a socket, whether it was stopped, and how it is ended."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tocsin.actors.sharing import neighbour
from tocsin.actors.sharing.neighbour import UnixNeighbour, credentials, is_same_user

pytestmark = pytest.mark.anyio
LISTENS = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1]); listener.listen(); print("listens", flush=True)
connected, _ = listener.accept(); connected.recv(1)
"""


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    path = str(tmp_path / "s.sock")
    with subprocess.Popen([sys.executable, "-c", LISTENS, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "listens\n"
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(path)
            yield process, connected
        process.kill()


async def test_a_stopped_process_is_seen_and_ended_and_no_other(
    listening: tuple[subprocess.Popen[str], socket.socket],
) -> None:
    process, connected = listening
    holder = UnixNeighbour(connected, 0)
    assert holder.name() == f"process {process.pid}"
    assert await holder.is_stopped() is False
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: neighbour._state_by_proc(process.pid) == "T")
    assert await holder.is_stopped() is True
    holder.kill()
    assert process.wait() == -signal.SIGKILL
    holder.kill()  # it is gone: nobody else gets the signal
    assert await holder.is_stopped() is None
    holder.forget()


LOCKS = """
import sys
from pathlib import Path
from tocsin.storage.sqlite.lock import LockFile
lock = LockFile(Path(sys.argv[1])); lock.token = "t"; lock.take(); print("locked", flush=True); sys.stdin.read()
"""


@pytest.fixture
def locking(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    path = tmp_path / "s.lock"
    with subprocess.Popen(
        [sys.executable, "-c", LOCKS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        yield process, path
        process.kill()


@pytest.mark.skipif(not neighbour._LOCKS.exists(), reason="the system does not tell who has which lock")
async def test_only_a_process_that_has_the_lock_is_held_for_who_has_it(
    locking: tuple[subprocess.Popen[str], Path],
) -> None:
    process, path = locking
    assert UnixNeighbour.that_has(path, os.getpid()) is None, "it has no lock"
    assert UnixNeighbour.that_has(path.with_name("none.lock"), process.pid) is None
    holder = UnixNeighbour.that_has(path, process.pid)
    assert holder is not None and await holder.is_stopped() is False
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: neighbour._state_by_proc(process.pid) == "T")
    assert await holder.is_stopped() is True
    holder.kill()
    assert process.wait() == -signal.SIGKILL
    assert UnixNeighbour.that_has(path, process.pid) is None
    holder.forget()


async def test_a_process_of_another_namespace_is_not_seen_and_never_killed(
    listening: tuple[subprocess.Popen[str], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, connected = listening
    monkeypatch.setattr(neighbour, "credentials", lambda _: (0, os.geteuid()))
    holder = UnixNeighbour(connected, process.pid)
    assert await holder.is_stopped() is None
    holder.kill()
    assert process.poll() is None
    assert holder.name() == "a process of another namespace"


def test_only_the_same_user_and_root_are_let_in(
    listening: tuple[subprocess.Popen[str], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, connected = listening
    assert credentials(connected) == (listening[0].pid, os.geteuid())
    assert is_same_user(connected)
    for user, may in ((os.geteuid(), True), (0, True), (os.geteuid() + 4242, False)):
        monkeypatch.setattr(neighbour, "credentials", lambda _, user=user: (1, user))
        assert is_same_user(connected) is may


async def test_where_there_is_no_proc_ps_is_asked(
    listening: tuple[subprocess.Popen[str], socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps = tmp_path / "ps"
    ps.write_text(f'#!/bin/sh\n[ "$4" = {listening[0].pid} ] && echo "T+"\n')
    ps.chmod(ps.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(neighbour, "HAS_PROC", False)
    assert await UnixNeighbour(listening[1], 0).is_stopped() is True
    ps.write_text("#!/bin/sh\nexit 1\n")
    assert await UnixNeighbour(listening[1], 0).is_stopped() is None
