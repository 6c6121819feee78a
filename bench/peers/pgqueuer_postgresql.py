"""PgQueuer on PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.peers.phases import Countdown, main, needed, submitted


async def measure(jobs: int, workers: int, folder: Path, service: str) -> tuple[float, float]:
    logging.disable(logging.WARNING)
    asyncpg, pgqueuer = needed("asyncpg"), needed("pgqueuer")
    drivers, persistence = needed("pgqueuer.adapters.drivers.asyncpg"), needed("pgqueuer.adapters.persistence.queries")
    countdown = Countdown(jobs)
    connection = await asyncpg.connect(service)
    await persistence.Queries(drivers.AsyncpgDriver(connection)).install()
    await connection.close()
    async with asyncpg.create_pool(service, min_size=10, max_size=10) as pool:
        driver = drivers.AsyncpgPoolDriver(pool)
        queries = persistence.Queries(driver)
        submit_s = await submitted(jobs, lambda number: queries.enqueue("nothing", str(number).encode(), 0))
        worker = pgqueuer.PgQueuer(driver)

        @worker.entrypoint("nothing")  # type: ignore[untyped-decorator]
        async def nothing(job: Any) -> None:
            countdown.one()

        began = time.perf_counter()
        running = asyncio.create_task(
            worker.run(
                batch_size=max(workers // 2, 1), max_concurrent_tasks=workers, dequeue_timeout=timedelta(seconds=1)
            )
        )
        await countdown.done.wait()
        worker.shutdown.set()
        await running
    return submit_s, countdown.now - began


if __name__ == "__main__":
    main(measure)
