"""APScheduler 3 on SQLite with synchronous=FULL. It deletes a job of one instant when it takes it."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.peers.callbacks.posting import Poster
from bench.peers.callbacks.roles import LANES, main
from bench.peers.phases import needed

poster = Poster()
lanes = asyncio.Semaphore(LANES)


async def call(receiver: str, job: str, due_ms: int) -> None:
    """Found by name when a job runs."""
    async with lanes:
        await poster.post(receiver, job, due_ms)


class APScheduler:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        logging.disable(logging.ERROR)
        self._folder, self._receiver = folder, receiver
        self._schedulers, self._stores = (
            needed("apscheduler.schedulers.asyncio"),
            needed("apscheduler.jobstores.sqlalchemy"),
        )

    def _made(self) -> Any:
        sqlalchemy = needed("sqlalchemy")
        engine = sqlalchemy.create_engine(f"sqlite:///{self._folder}/aps.db", connect_args={"timeout": 60})

        @sqlalchemy.event.listens_for(engine, "connect")  # type: ignore[untyped-decorator]
        def durable(connection: Any, record: Any) -> None:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")

        return self._schedulers.AsyncIOScheduler(
            jobstores={"default": self._stores.SQLAlchemyJobStore(engine=engine)},
            timezone="UTC",
            job_defaults={"misfire_grace_time": None, "coalesce": True},
        )

    async def install(self) -> None: ...

    async def open(self) -> None:
        self._scheduler = self._made()
        self._scheduler.start(paused=True)

    async def close(self) -> None:
        self._scheduler.shutdown(wait=False)

    async def one(self, job: str, due_ms: int) -> None:
        """It blocks, whatever its name says."""
        at = datetime.fromtimestamp(due_ms / 1000, UTC)
        self._scheduler.add_job(
            "bench.peers.callbacks.apscheduler_sqlite:call",
            "date",
            run_date=at,
            args=[self._receiver, job, due_ms],
            id=job,
        )

    async def work(self) -> None:
        self._made().start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(APScheduler)
