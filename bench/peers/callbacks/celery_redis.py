"""Celery on Redis with appendfsync always: 64 threads, acknowledged when done. A worker keeps due times in memory."""

from __future__ import annotations

import logging
import threading
import warnings
from datetime import UTC, datetime
from pathlib import Path

from bench.peers.callbacks.posting import ThreadPoster
from bench.peers.callbacks.roles import LANES, main
from bench.peers.phases import needed

WORDS = ("--pool=threads", f"--concurrency={LANES}", "--loglevel=ERROR", "--without-gossip", "--without-mingle")


class Celery:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")  # among others, that it runs as root
        poster = ThreadPoster()
        self._app = needed("celery").Celery("bench", broker=service)
        self._app.conf.update(
            task_ignore_result=True,
            broker_connection_retry_on_startup=True,
            task_acks_late=True,
            worker_prefetch_multiplier=4,
        )

        @self._app.task(name="call")  # type: ignore[untyped-decorator]
        def call(job: str, due_ms: int) -> None:
            poster.post(receiver, job, due_ms)

        self._call = call

    async def install(self) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def one(self, job: str, due_ms: int) -> None:
        at = datetime.fromtimestamp(due_ms / 1000, UTC)
        self._call.apply_async((job, due_ms), eta=at, task_id=job)

    async def work(self) -> None:
        """Blocks the loop: the worker has its own."""
        assert threading.current_thread() is threading.main_thread(), "it sets signal handlers"
        self._app.worker_main(["worker", *WORDS])


if __name__ == "__main__":
    main(Celery)
