"""`python -m bench rehearsal`: how long a rehearsal of a week takes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tocsin import ActorHost, Job

WEEK_MS = 7 * 86_400_000
AT_ONCE = 1_000
POOLS = {"stripe": 4, "mail": 10, "": None}


async def fill(url: str, count: int) -> int:
    """Write jobs that are due within a week, at random instants; return when it begins."""
    random, start = Random(0), time.time_ns() // 1_000_000 + 60_000
    names = list(POOLS)
    async with ActorHost.open(url, origin="http://127.0.0.1:9", insecure=True) as host:
        jobs = host.scheduler()
        for first in range(0, count, AT_ONCE):
            made = [
                Job(
                    f"path:{random.randrange(20)}",
                    at=start + random.randrange(WEEK_MS - 60_000),
                    options={"pool": random.choice(names) or None},
                )
                for _ in range(min(AT_ONCE, count - first))
            ]
            await jobs.submit_many(made)
        for name, cap in POOLS.items():
            if cap is not None:
                await jobs.set_pool(name, max_concurrency=cap)
    return start


def measure(count: int, folder: str | None) -> dict[str, float]:
    """Return seconds, the whole of `tocsin simulate` in a process of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file = Path(place) / "store.db"
        start = asyncio.run(fill(f"sqlite:///{file}", count))
        command = [
            sys.executable,
            "-c",
            "from tocsin.cli import main; main()",
            "simulate",
            str(file),
            "--from",
            str(start),
            "--json",
        ]
        began = time.perf_counter()
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        taken = time.perf_counter() - began
    assert found["fires"] == count and not found["waiting"], found["fires"]
    print(f"a week of {count:,} jobs rehearsed in {taken:.1f} s, {count / taken:,.0f} jobs a second")
    return {"jobs": count, "seconds": taken}
