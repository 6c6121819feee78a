"""A real server killed with SIGKILL while it fires: what it had accepted arrives, and little of it twice."""

from __future__ import annotations

import json
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.cli.processes import tocsin_serve
from tests.processes.server_process import TOKEN, ask, receiver_process
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.storage.sqlite.provider import SQLiteProvider

JOBS = 5_000
KILLS = 3
LANES = 64
TIMEOUT_MS = 1_000
LEASE_S = 1 + 15
STORE = "jobs.db"


class Receiver:
    """The bare receiver of the benchmarks, in its own process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def stats(self) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/stats", timeout=10) as answer:
            found: dict[str, float] = json.load(answer)
        return found

    def wait_for(self, unique: int, seconds: float) -> dict[str, float]:
        """Polled: it is another process. Fails at the deadline."""
        deadline = time.monotonic() + seconds
        while (stats := self.stats())["unique"] < unique:
            assert time.monotonic() < deadline, f"{stats['unique']:.0f} of {unique} arrived in {seconds} s"
            time.sleep(0.02)
        return stats


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    with receiver_process("bench.receiver", str(port)) as url:
        yield Receiver(url)


def schedule(url: str, due: int) -> int:
    """How many jobs were accepted."""
    accepted = 0
    for start in range(0, JOBS, 1000):
        jobs = [
            {"functionPath": "kill:run", "args": {"n": n}, "scheduledFor": due, "timeoutMs": TIMEOUT_MS}
            for n in range(start, start + 1000)
        ]
        accepted += sum("id" in result for result in ask(url, "/schedule/batch", {"jobs": jobs})["results"])
    return accepted


def wait_until_idle(url: str, seconds: float) -> None:
    """Polled: it is another process. Fails at the deadline."""
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(f"{url}/status", headers={"authorization": f"Bearer {TOKEN}"})
    while True:
        with urllib.request.urlopen(request, timeout=10) as answer:
            status = json.load(answer)
        if status["backlog"] == status["inFlight"] == 0:
            return
        assert time.monotonic() < deadline, f"still busy after {seconds} s: {status}"
        time.sleep(0.05)


def leases(folder: Path) -> int:
    """Attempts that were alive when the process died, read without it."""
    with sqlite3.connect(f"file:{folder / STORE}?mode=ro", uri=True) as connection:
        (count,) = connection.execute("SELECT count(*) FROM kv WHERE key >= ? AND key < ?", (b"lease/", b"lease0"))
    return int(count[0])


@pytest.mark.anyio
async def test_every_job_arrives_though_its_host_is_killed_three_times(tmp_path: Path) -> None:
    random = Random(20261129)
    with receiving() as receiver:
        settings = {
            "TOCSIN_STORE": f"sqlite:///{STORE}",
            "TOCSIN_ORIGIN_URL": receiver.url,
            "TOCSIN_SECRETS": "whsec_" + "a2V5" * 8,
            "TOCSIN_TOKENS": f"test:admin:{TOKEN}",
            "TOCSIN_LANES": str(LANES),
        }
        in_flight = 0
        for kill in range(KILLS):
            with tocsin_serve(cwd=tmp_path, **settings) as server:
                url = server.url()
                if kill == 0:
                    assert schedule(url, time.time_ns() // 1_000_000 + 1_000) == JOBS
                enough = receiver.stats()["unique"] + random.randrange(50, 1_200)
                receiver.wait_for(int(enough), 30)
                server.process.kill()
                server.process.wait()
            in_flight += leases(tmp_path)
        with tocsin_serve(cwd=tmp_path, **settings) as server:
            url = server.url()
            receiver.wait_for(JOBS, LEASE_S + 60)
            wait_until_idle(url, LEASE_S + 30)  # what was delivered but not settled comes again when its lease ends
            stats = receiver.stats()
            assert stats["count"] - stats["unique"] <= in_flight
            assert server.stop() == 0

    await assert_nothing_left(tmp_path, STORE)


async def assert_nothing_left(folder: Path, store: str, *, acts: bool = False) -> None:
    """Nothing but counters, pools that were set, the history of what has ended, and what can be undone of `acts`."""
    kept, clocks = {b"meta", b"pool", b"hist", b"timer"}, [b"/history/"]
    if acts:
        kept, clocks = kept | {b"act", b"audit", b"trash"}, [*clocks, b"/undo/", b"/audit/"]
    provider = SQLiteProvider(folder / store)
    await provider.start()
    view = provider.view("scheduler/default")
    left = {key.split(b"/")[0] for key, _ in await view.scan(b"\x01", b"\xff", limit=10_000)}
    timers = [key for key, _ in await view.scan(b"timer/", b"timer0", limit=10)]
    faults = [fault for fault in await check(view, None) if "wake_at" not in fault]  # history has its timer
    await provider.stop()

    assert left <= kept
    assert all(any(clock in key for clock in clocks) for key in timers)
    assert faults == []
