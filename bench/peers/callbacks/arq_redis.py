"""arq on Redis with appendfsync always; results are not kept, which is its fastest."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.peers.callbacks.posting import Poster
from bench.peers.callbacks.roles import LANES, main
from bench.peers.phases import needed


class Arq:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        logging.disable(logging.WARNING)
        self._arq, self._workers, self._receiver = needed("arq"), needed("arq.worker"), receiver
        self._settings = needed("arq.connections").RedisSettings.from_dsn(service)

    async def install(self) -> None: ...

    async def open(self) -> None:
        self._redis = await self._arq.create_pool(self._settings)

    async def close(self) -> None:
        await self._redis.aclose()

    async def one(self, job: str, due_ms: int) -> None:
        at = datetime.fromtimestamp(due_ms / 1000, UTC)
        await self._redis.enqueue_job("call", job, due_ms, _job_id=job, _defer_until=at, _expires=timedelta(days=60))

    async def work(self) -> None:
        poster = Poster()

        async def call(context: Any, job: str, due_ms: int) -> None:
            await poster.post(self._receiver, job, due_ms)

        worker = self._workers.Worker(
            functions=[self._workers.func(call, name="call", keep_result=0)],
            redis_settings=self._settings,
            max_jobs=LANES,
            poll_delay=0.1,
            handle_signals=False,
            keep_result=0,
            job_timeout=10,
        )
        await worker.async_run()


if __name__ == "__main__":
    main(Arq)
