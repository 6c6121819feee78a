"""Callers that are cancelled at any await, and programs that end at any point: no transaction stays open, nothing
leaks, and the process ends with its own exit code."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.storage.host_on_file import GatedTransport, hosting
from tocsin.actors.actor_host import ActorHost

CANCELS = 1_000
NEXT_WRITE_S = 0.1


async def use(host: ActorHost, random: Random, n: int) -> Any:
    """One call of the API, each kind of them."""
    jobs = host.scheduler(f"s{n % 5}")
    match random.randrange(7):
        case 0:
            return await jobs.run_after("1h", "work:run", {"n": n}, id=f"job-{n}")
        case 1:
            return await jobs.cancel(f"job-{random.randrange(n + 1)}")
        case 2:
            return await jobs.get(f"job-{random.randrange(n + 1)}")
        case 3:
            return await jobs.list(limit=10)
        case 4:
            return await jobs.status()
        case 5:
            return await jobs.set_pool(f"p{n % 3}", max_concurrency=n % 7)
        case _:
            await host.runtime.evict()  # so that actors are opened anew, too
            return await jobs.reschedule(f"job-{random.randrange(n + 1)}", after="2h")


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if not each.name.startswith("asyncio")}


@pytest.mark.anyio
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
async def test_a_thousand_calls_cancelled_anywhere_leave_nothing_behind(tmp_path: Path) -> None:
    random, before = Random(20261129), threads()
    gc.collect()
    async with hosting(tmp_path / "warm.db", GatedTransport()) as (host, _):
        await use(host, random, 1)
    base = files()
    cancelled = slowest = 0.0
    async with hosting(tmp_path / "store.db", GatedTransport()) as (host, provider):
        for n in range(CANCELS):
            call = asyncio.create_task(use(host, random, n))
            for _ in range(random.randrange(1, 14)):
                await asyncio.sleep(0)
            if random.random() < 0.3:
                await asyncio.sleep(random.random() * 0.002)  # while the disk works
            call.cancel()
            await asyncio.wait([call])
            cancelled += call.cancelled()
            assert call.cancelled() or call.exception() is None
            if n % 20 == 0:
                began = time.monotonic()
                await host.scheduler("after").run_after("1h", "work:run", id=f"after-{n}")
                slowest = max(slowest, time.monotonic() - began)
        await provider.combiner.drain()
        assert not provider._file._db.in_transaction
        listed = await host.scheduler("after").status()
    for thread in threads() - before:
        thread.join(5)

    assert cancelled > CANCELS / 3
    assert slowest < NEXT_WRITE_S
    assert listed.backlog == CANCELS / 20
    assert (threads() - before, files()) == (set(), base)


PROGRAMS = {
    "before": "await fail()\n        provider = SQLiteProvider(sys.argv[1])",
    "during": "sqlite_file.Writer._migrate = fail_now\n        await SQLiteProvider(sys.argv[1]).start()",
    "during the last": "Upkeep._connect = fail_now\n        await SQLiteProvider(sys.argv[1]).start()",
    "after": "await SQLiteProvider(sys.argv[1]).start()\n        await fail()",
    "in a commit": (
        "provider = SQLiteProvider(sys.argv[1])\n        await provider.start()\n"
        "        provider._file.apply = fail_now\n"
        "        await (await provider.open('a')).commit(Batch(puts={b'k': b''}))"
    ),
}
PROGRAM = """
import asyncio, sys, time
from tocsin.storage.sqlite import writer as sqlite_file
from tocsin.storage.api import Batch
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.upkeep import Upkeep

def fail_now(*_):
    raise RuntimeError("as the test wanted")

async def fail():
    fail_now()

async def main():
    try:
        {body}
    except Exception as error:
        print(repr(error), time.time(), flush=True)
        sys.exit(7)

asyncio.run(main())
"""


def test_a_program_that_fails_before_during_or_after_opening_ends_at_once_with_its_code(tmp_path: Path) -> None:
    running = {}
    for when, body in PROGRAMS.items():
        command = [sys.executable, "-c", PROGRAM.format(body=body), str(tmp_path / f"{when}.db")]
        running[when] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for when, process in running.items():
        with process:
            out, err = process.communicate(timeout=30)
        assert "as the test wanted" in out, (when, out, err)
        assert (process.returncode, err) == (7, ""), when


def test_it_takes_less_than_a_second_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM.format(body=PROGRAMS["after"]), str(tmp_path / "store.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "as the test wanted" in process.stdout.readline()
        assert process.wait(1.0) == 7
