"""PgQueuer on PostgreSQL. It books the ends of jobs later, many at once."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.peers.callbacks.posting import Poster
from bench.peers.callbacks.roles import LANES, Jobs, main, now_ms
from bench.peers.phases import needed


def _after(due_ms: int) -> timedelta:
    return timedelta(milliseconds=max(due_ms - now_ms(), 0))


class PgQueuer:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        logging.disable(logging.WARNING)
        self._service, self._receiver = service, receiver
        self._asyncpg, self._pgqueuer = needed("asyncpg"), needed("pgqueuer")
        self._drivers = needed("pgqueuer.adapters.drivers.asyncpg")
        self._persistence = needed("pgqueuer.adapters.persistence.queries")

    async def install(self) -> None:
        connection = await self._asyncpg.connect(self._service)
        await self._persistence.Queries(self._drivers.AsyncpgDriver(connection)).install()
        await connection.close()

    async def open(self) -> None:
        self._pool = await self._asyncpg.create_pool(self._service, min_size=10, max_size=10)
        self._queries = self._persistence.Queries(self._drivers.AsyncpgPoolDriver(self._pool))

    async def close(self) -> None:
        await self._pool.close()

    async def one(self, job: str, due_ms: int) -> None:
        await self._queries.enqueue("call", f"{job} {due_ms}".encode(), 0, _after(due_ms))

    async def many(self, jobs: Jobs) -> None:
        await self._queries.enqueue(
            ["call"] * len(jobs),
            [f"{job} {due}".encode() for job, due in jobs],
            [0] * len(jobs),
            [_after(due) for _, due in jobs],
        )

    async def work(self) -> None:
        await self.open()
        worker, poster = self._pgqueuer.PgQueuer(self._drivers.AsyncpgPoolDriver(self._pool)), Poster()

        @worker.entrypoint("call")  # type: ignore[untyped-decorator]
        async def call(job: Any) -> None:
            name, due_ms = job.payload.decode().split()
            await poster.post(self._receiver, name, int(due_ms))

        await worker.run(batch_size=LANES // 2, max_concurrent_tasks=LANES, dequeue_timeout=timedelta(seconds=1))


if __name__ == "__main__":
    main(PgQueuer)
