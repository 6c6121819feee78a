"""tocsin on SQLite with synchronous=FULL, callbacks signed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.peers.callbacks.roles import Jobs, main
from tocsin import ActorHost, Job

SECRET = "whsec_" + "a2V5" * 8
ARGS = {"text": "x" * 120}
TIMEOUT_MS = 1_000


class Tocsin:
    def __init__(self, service: str, folder: Path, receiver: str) -> None:
        self._host = ActorHost.open(f"sqlite:///{folder}/tocsin.db", origin=receiver, secrets=[SECRET])
        self._jobs = self._host.scheduler("bench")

    async def install(self) -> None: ...

    async def open(self) -> None:
        await self._host.__aenter__()

    async def close(self) -> None:
        await self._host.__aexit__(None, None, None)

    async def one(self, job: str, due_ms: int) -> None:
        await self._jobs.run_at(due_ms, "bench:job", ARGS, id=job, timeout_ms=TIMEOUT_MS)

    async def many(self, jobs: Jobs) -> None:
        given = [Job("bench:job", ARGS, at=due, options={"id": job, "timeout_ms": TIMEOUT_MS}) for job, due in jobs]
        for one in await self._jobs.submit_many(given):
            if isinstance(one, Exception):
                raise one

    async def work(self) -> None:
        async with self._host:
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(Tocsin)
