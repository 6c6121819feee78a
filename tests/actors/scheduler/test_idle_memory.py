"""What a scheduler takes in memory while it waits for its one job, as bytes, which no busy machine changes."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

from tocsin import ActorHost

INSTANCES = 200
MOST_BYTES = 15_000
"""Of one instance, all of it: its activation, its state, its handle of the store, its place among the alarms."""


def test_an_idle_instance_takes_at_most_15_kb(tmp_path: Path) -> None:
    """So 10,000 of them are less than 150 MB."""
    held = asyncio.run(_held_by_idle_instances(tmp_path))
    assert held < MOST_BYTES * INSTANCES, f"{held / INSTANCES:,.0f} bytes each"


async def _held_by_idle_instances(tmp_path: Path) -> int:
    async with ActorHost.open(f"sqlite:///{tmp_path}/s.db", origin="http://127.0.0.1:9", secrets=["k" * 32]) as host:

        async def touch(name: str) -> None:
            await host.scheduler(name).run_after("30d", "w:r")

        for n in range(20):  # what all of them share is made
            await touch(f"first-{n}")
        gc.collect()
        tracemalloc.start()
        try:
            for n in range(INSTANCES):
                await touch(f"idle-{n}")
            await host.scheduler("first-0").activity()  # counts what all have done and nobody had asked for
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    return held
