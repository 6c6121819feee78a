"""tocsin in process, on SQLite with synchronous=FULL."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.peers.phases import Countdown, main, submitted
from tocsin import ActorHost, Worker

PATH = "bench:nothing"


async def measure(jobs: int, workers: int, folder: Path, service: str) -> tuple[float, float]:
    countdown = Countdown(jobs)

    async def nothing(args: Any) -> None:
        countdown.one()

    async with ActorHost.open(f"sqlite:///{folder}/tocsin.db") as host:
        scheduler = host.scheduler("bench")
        submit_s = await submitted(jobs, lambda number: scheduler.run_after(0, PATH, number, queue="bench"))
        began = time.perf_counter()
        async with Worker(scheduler, {PATH: nothing}, "bench", concurrency=workers):
            await countdown.done.wait()
    return submit_s, countdown.now - began


if __name__ == "__main__":
    main(measure)
