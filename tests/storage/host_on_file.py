"""A host on a real file, whose callbacks arrive in the same process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.in_process_transport import InProcessTransport
from tocsin.actors.actor_host import ActorHost
from tocsin.dispatch.transport import Answer
from tocsin.storage.sqlite.provider import SQLiteProvider


class GatedTransport(InProcessTransport):
    """Remembers the ids of what arrived; answers 200 while it is `open`."""

    def __init__(self) -> None:
        super().__init__(self._arrive)
        self.arrived: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self._more = asyncio.Condition()

    async def _arrive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        self.arrived.append(json.loads(body)["id"])
        async with self._more:
            self._more.notify_all()
        await self.open.wait()
        return Answer(200, {}, b"")

    async def until(self, enough: Callable[[list[str]], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds), self._more:
            await self._more.wait_for(lambda: enough(self.arrived))


@asynccontextmanager
async def hosting(path: Path, transport: GatedTransport) -> AsyncIterator[tuple[ActorHost, SQLiteProvider]]:
    provider = SQLiteProvider(path)
    host = ActorHost.open(provider, origin="http://127.0.0.1:9", insecure=True, transport=transport, drain_s=1.0)
    async with host:
        yield host, provider


async def trouble_over(provider: SQLiteProvider) -> None:
    """Waits for the task that sees to it."""
    async with asyncio.timeout(10):
        while provider.trouble is not None:
            task = provider._upkeep._task
            assert task is not None and not task.done(), f"nobody looks whether it is over: {provider.trouble}"
            await asyncio.wait([task])
