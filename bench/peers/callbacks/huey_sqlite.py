"""Huey on SQLite with fsync, 64 threads. It deletes a job when it takes it."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path

from bench.peers.callbacks.posting import ThreadPoster
from bench.peers.callbacks.roles import LANES, main
from bench.peers.phases import needed


class Huey:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        logging.disable(logging.WARNING)
        poster = ThreadPoster()
        self._queue = needed("huey").SqliteHuey(
            "bench", filename=f"{folder}/huey.db", fsync=True, timeout=60, results=False, immediate=False, utc=True
        )

        @self._queue.task()  # type: ignore[untyped-decorator]
        def call(job: str, due_ms: int) -> None:
            poster.post(receiver, job, due_ms)

        self._call = call

    async def install(self) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def one(self, job: str, due_ms: int) -> None:
        at = datetime.fromtimestamp(due_ms / 1000, UTC).replace(tzinfo=None)
        self._call.schedule(args=(job, due_ms), eta=at)

    async def work(self) -> None:
        consumer = self._queue.create_consumer(
            workers=LANES, worker_type="thread", initial_delay=0.01, max_delay=0.1, scheduler_interval=1, periodic=False
        )
        consumer.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(Huey)
