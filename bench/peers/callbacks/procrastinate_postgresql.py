"""procrastinate on PostgreSQL, looking for due jobs ten times a second instead of every five seconds."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from bench.peers.callbacks.posting import Poster
from bench.peers.callbacks.roles import LANES, Jobs, main
from bench.peers.phases import needed

LOOKS_S = 0.1


def _at(due_ms: int) -> datetime:
    return datetime.fromtimestamp(due_ms / 1000, UTC)


class Procrastinate:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        logging.disable(logging.WARNING)
        procrastinate, poster = needed("procrastinate"), Poster()
        connector = procrastinate.PsycopgConnector(conninfo=service, min_size=10, max_size=10)
        self._app = procrastinate.App(connector=connector)

        @self._app.task(name="call")  # type: ignore[untyped-decorator]
        async def call(job: str, due_ms: int) -> None:
            await poster.post(receiver, job, due_ms)

        self._call = call

    async def install(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()

    async def close(self) -> None:
        await self._app.close_async()

    async def one(self, job: str, due_ms: int) -> None:
        await self._call.configure(schedule_at=_at(due_ms)).defer_async(job=job, due_ms=due_ms)

    async def many(self, jobs: Jobs) -> None:
        made = [
            self._call.configure(schedule_at=_at(due)).job.evolve(task_kwargs={"job": job, "due_ms": due})
            for job, due in jobs
        ]
        await self._app.job_manager.batch_defer_jobs_async(made)

    async def work(self) -> None:
        await self.open()
        await self._app.run_worker_async(
            concurrency=LANES, wait=True, fetch_job_polling_interval=LOOKS_S, install_signal_handlers=False
        )


if __name__ == "__main__":
    main(Procrastinate)
