"""SAQ on Redis with appendfsync always; it looks for due jobs once a second, which is as often as it can."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bench.peers.callbacks.posting import Poster
from bench.peers.callbacks.roles import LANES, main
from bench.peers.phases import needed


class Saq:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        logging.disable(logging.WARNING)
        self._saq, self._receiver = needed("saq"), receiver
        self._queue = self._saq.Queue.from_url(service)

    async def install(self) -> None: ...

    async def open(self) -> None:
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def one(self, job: str, due_ms: int) -> None:
        await self._queue.enqueue("call", key=job, job_name=job, due_ms=due_ms, scheduled=due_ms / 1000)

    async def work(self) -> None:
        await self.open()
        poster = Poster()

        async def call(context: Any, *, job_name: str, due_ms: int) -> None:
            await poster.post(self._receiver, job_name, due_ms)

        await self._saq.Worker(self._queue, [("call", call)], concurrency=LANES, timers={"schedule": 1}).start()


if __name__ == "__main__":
    main(Saq)
