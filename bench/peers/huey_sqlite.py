"""Huey on SQLite with fsync. It deletes a job when it takes it: what its process had taken is lost with it.

Its calls block, so its producer is one thread; its workers are threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from bench.peers.phases import Countdown, main, needed


async def measure(jobs: int, workers: int, folder: Path, service: str) -> tuple[float, float]:
    logging.disable(logging.WARNING)
    queue = needed("huey").SqliteHuey(
        "bench", filename=f"{folder}/huey.db", fsync=True, timeout=60, results=False, immediate=False
    )
    countdown, loop = Countdown(jobs), asyncio.get_running_loop()

    @queue.task()  # type: ignore[untyped-decorator]
    def nothing(number: int) -> None:
        loop.call_soon_threadsafe(countdown.one)

    began = time.perf_counter()
    for number in range(jobs):
        nothing(number)
    submit_s = time.perf_counter() - began
    consumer = queue.create_consumer(
        workers=workers, worker_type="thread", initial_delay=0.001, max_delay=0.05, periodic=False
    )
    began = time.perf_counter()
    consumer.start()
    await countdown.done.wait()
    consumer.stop(graceful=True)
    return submit_s, countdown.now - began


if __name__ == "__main__":
    main(measure)
