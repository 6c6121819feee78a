"""procrastinate on PostgreSQL, as it is configured by default: synchronous commits, jobs kept when they are done."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from bench.peers.phases import Countdown, main, needed, submitted


async def measure(jobs: int, workers: int, folder: Path, service: str) -> tuple[float, float]:
    logging.disable(logging.WARNING)
    procrastinate = needed("procrastinate")
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=service, min_size=10, max_size=10))
    countdown = Countdown(jobs)

    @app.task(name="nothing")  # type: ignore[untyped-decorator]
    async def nothing(number: int) -> None:
        countdown.one()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        submit_s = await submitted(jobs, lambda number: nothing.defer_async(number=number))
        began = time.perf_counter()
        await app.run_worker_async(concurrency=workers, wait=False, install_signal_handlers=False)
    return submit_s, countdown.now - began


if __name__ == "__main__":
    main(measure)
