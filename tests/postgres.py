"""A PostgreSQL of the tests' own: in a temporary folder, on a socket there, without a port, gone afterwards.

PostgreSQL refuses to run as root; then it runs as the user `postgres` (which its packages make) or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

START_S: Final = 30.0
PLACES: Final = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt", "/usr/local/opt")
QUICK: Final = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "listen_addresses=",
)
"""No machine fails here; and that commits are not durable by default is what some users have."""


class Postgres:
    """A running server; `folder` holds its socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made = 0

    def database(self) -> str:
        """The name of a new, empty database."""
        self._made += 1
        name = f"db{self._made}"
        subprocess.run(
            [found("psql"), "-h", self.folder, "-U", "postgres", "-qc", f"CREATE DATABASE {name}"],
            check=True, capture_output=True, timeout=START_S,
        )  # fmt: skip
        return name

    def url(self, database: str, driver: str = "postgresql") -> str:
        return f"{driver}://postgres@/{database}?host={self.folder}"


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Fails, or skips where CI is not set, if none is installed."""
    initdb, server = found("initdb"), found("postgres")
    folder = Path(tempfile.mkdtemp(prefix="tocsin-pg-", dir="/tmp"))  # the path of a socket must be short
    try:
        who = user()
        if who:
            shutil.chown(folder, who["user"], who["group"])
        run(initdb, "-D", folder / "data", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", **who)
        settings = [word for setting in QUICK for word in ("-c", setting)]
        command: list[str | Path] = [server, "-D", folder / "data", "-k", folder, *settings]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen[bytes](command, stdout=log, stderr=log, cwd=folder, **who)
        try:
            wait_until_ready(process, folder)
            yield Postgres(folder)
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: nothing in it is worth keeping
            process.wait(START_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_ready(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Polled: it is another process."""
    ready: list[str | Path] = [found("pg_isready"), "-q", "-h", folder, "-U", "postgres"]
    deadline = time.monotonic() + START_S
    while subprocess.run(ready, timeout=START_S).returncode:
        assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)


def user() -> dict[str, Any]:
    """Who it runs as, for `subprocess`."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_name, "group": entry.pw_gid, "extra_groups": []}


def run(*command: str | Path, **who: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, cwd="/", **who)
    assert done.returncode == 0, done.stderr


def found(program: str) -> str:
    """Its path: some packages keep them off PATH."""
    if on_path := shutil.which(program):
        return on_path
    for place in PLACES:
        if there := sorted(Path(place).glob(f"*/bin/{program}")):
            return str(there[-1])
    if os.environ.get("CI"):
        pytest.fail(f"PostgreSQL is not installed: there is no {program}")
    pytest.skip(f"PostgreSQL is not installed: there is no {program}")
