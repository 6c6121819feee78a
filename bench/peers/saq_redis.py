"""SAQ on Redis with appendfsync always."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from bench.peers.phases import Countdown, main, needed, submitted


async def measure(jobs: int, workers: int, folder: Path, service: str) -> tuple[float, float]:
    logging.disable(logging.WARNING)
    saq = needed("saq")
    queue = saq.Queue.from_url(service)
    await queue.connect()
    countdown = Countdown(jobs)

    async def nothing(context: Any, *, number: int) -> None:
        countdown.one()

    submit_s = await submitted(jobs, lambda number: queue.enqueue("nothing", number=number))
    worker = saq.Worker(queue, [("nothing", nothing)], concurrency=workers, burst=True, dequeue_timeout=1)
    began = time.perf_counter()
    await worker.start()
    await queue.disconnect()
    return submit_s, countdown.now - began


if __name__ == "__main__":
    main(measure)
