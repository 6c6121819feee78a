"""A host on a real file, whose callbacks arrive in the same process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tocsin.actors.actor_host import ActorHost
from tocsin.dispatch.transport import Answer
from tocsin.storage.sqlite.provider import SQLiteProvider


class Wire:
    """Answers 200 while it is `open`, and remembers the ids of what arrived."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self._more = asyncio.Condition()

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        connect_timeout: float,
        timeout: float,
        max_body: int,
    ) -> Answer:
        self.arrived.append(json.loads(body)["id"])
        async with self._more:
            self._more.notify_all()
        await self.open.wait()
        return Answer(200, {}, b"")

    async def aclose(self) -> None:
        pass

    async def until(self, enough: Callable[[list[str]], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds), self._more:
            await self._more.wait_for(lambda: enough(self.arrived))


@asynccontextmanager
async def hosting(path: Path, wire: Wire) -> AsyncIterator[tuple[ActorHost, SQLiteProvider]]:
    provider = SQLiteProvider(path)
    host = ActorHost.open(provider, origin="http://127.0.0.1:9", insecure=True, transport=wire, drain_s=1.0)
    async with host:
        yield host, provider


async def trouble_over(provider: SQLiteProvider) -> None:
    """Waits for the task that sees to it."""
    async with asyncio.timeout(10):
        while provider.trouble is not None:
            task = provider._upkeep._task
            assert task is not None and not task.done(), f"nobody looks whether it is over: {provider.trouble}"
            await asyncio.wait([task])
