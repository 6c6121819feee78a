"""`python -m bench queues --peers`: the same job on other queues, in one run, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.services import MissingError, postgresql, redis
from bench.pool import Figures, row

WORKERS = 64
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Peer:
    """`packages`: what pip installs; `service`: the server it needs; `note`: what it does not do, or later."""

    module: str
    name: str
    packages: str = ""
    service: Callable[[Path], AbstractContextManager[str]] = lambda folder: nullcontext("")
    note: str = ""


OURS = Peer("tocsin_sqlite", "tocsin, SQLite")
PEERS = (
    OURS,
    Peer("huey_sqlite", "Huey, SQLite", "huey", note="a job is deleted when it is taken"),
    Peer("procrastinate_postgresql", "procrastinate, PostgreSQL", '"psycopg[binary,pool]" procrastinate', postgresql),
    Peer(
        "pgqueuer_postgresql",
        "PgQueuer, PostgreSQL",
        "pgqueuer asyncpg",
        postgresql,
        "ends are booked later, many at once",
    ),
    Peer("saq_redis", "SAQ, Redis appendfsync always", '"saq[redis]"', redis),
)


def measure(jobs: int, rounds: int, folder: str | None, python: str) -> Figures:
    """In turn, so that what else the machine does meets all alike; the mean of the runs and their spread."""
    figures: Figures = {}
    took: dict[Peer, list[dict[str, float]]] = defaultdict(list)
    skipped: set[Peer] = set()
    for _ in range(rounds):
        for peer in PEERS:
            if peer in skipped:
                continue
            if (one := _run(peer, jobs, folder, sys.executable if peer is OURS else python)) is None:
                skipped.add(peer)
            else:
                took[peer].append(one)
    for phase, words in (
        ("submit_s", "submitted/s, one call a job"),
        ("work_s", f"worked off/s, concurrency {WORKERS}"),
    ):
        rates = {peer: [jobs / one[phase] for one in runs] for peer, runs in took.items()}
        ours = sum(rates[OURS]) / len(rates[OURS])
        for peer, found in rates.items():
            mean = sum(found) / len(found)
            ratio = "" if peer is OURS else f"; tocsin is {ours / mean:.2f} times as fast"
            note = f" ({peer.note})" if peer.note and phase == "work_s" else ""
            more = f"{min(found):,.0f} to {max(found):,.0f}{ratio}{note}"
            row(figures, f"{words}: {peer.name}", mean, "/s", more)
    return figures


def _run(peer: Peer, jobs: int, folder: str | None, python: str) -> dict[str, float] | None:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        os.chmod(made, 0o755)  # a server may run as another user, in a folder of its own in here
        mine, its = Path(made) / "peer", Path(made) / "service"
        mine.mkdir()
        its.mkdir()
        try:
            with peer.service(its) as url:
                said = _asked(peer, jobs, mine, url, python)
        except MissingError as error:
            print(f"{peer.name}: skipped: {error}")
            return None
    if "missing" in said:
        print(f"{peer.name}: skipped: {said['missing']}: pip install {peer.packages}")
        return None
    return said


def _asked(peer: Peer, jobs: int, folder: Path, url: str, python: str) -> dict[str, Any]:
    command = [python, "-m", f"bench.peers.{peer.module}", str(jobs), str(WORKERS), str(folder), url or "-"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{peer.name} failed: see above")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
