"""Watchers of a server's feed that behave as badly as watchers do: they stall, come back, and lag."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from random import Random
from typing import Final

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.actors.scheduler.mirror import Mirror, listed
from tests.processes.server_process import TOKEN
from tocsin import Client, SyncClient, TocsinError
from tocsin.actors.scheduler.model.feed_frames import Change, read_frame

AGAIN_S: Final = 0.1
AWAY: Final = (OSError, ConnectionClosed, InvalidStatus, httpx.HTTPError, TocsinError, TimeoutError)
"""How it may show that the server is away, or has hung up."""
BEARER: Final = {"authorization": f"Bearer {TOKEN}"}


class Watcher:
    """Keeps a mirror of one scheduler, as docs/feed.md says."""

    def __init__(self, url: str, instance: str, random: Random) -> None:
        self.url, self.instance, self.random = url, instance, random
        self.mirror = Mirror()
        self.comebacks = 0
        self.longest = 0
        self.closed_with: list[int | None] = []
        self._client = Client(url, token=TOKEN, patience_s=30)

    def __str__(self) -> str:
        mirror = self.mirror
        return (
            f"{type(self).__name__:13} {mirror.frames:5} frames, longest {self.longest:7} bytes, came back"
            f" {self.comebacks:3} times, {mirror.resyncs} resyncs, closed with {sorted({*map(str, self.closed_with)})},"
            f" at {mirror.seq}"
        )

    async def take(self, frame: Change, size: int = 0) -> None:
        self.mirror.take(frame)
        self.longest = max(self.longest, size)
        if self.mirror.stale:
            await self._load()

    async def _load(self) -> None:
        """Read the lists. Frames that were made meanwhile come behind this one, so nothing is missed."""
        self.mirror.load(await listed(self._client.scheduler(self.instance)), [])

    async def run(self) -> None:
        """Watch, and come back, until cancelled."""
        try:
            while True:
                try:
                    if self.mirror.stale and self.mirror.seq is not None:  # it was left in the middle of that
                        await self._load()
                    await self.watch()
                except AWAY:
                    await asyncio.sleep(AGAIN_S)
                self.comebacks += 1
        finally:
            await self._client.aclose()

    async def watch(self) -> None:
        """Watch until the connection ends, or is to end."""
        raise NotImplementedError

    @property
    def place(self) -> str:
        return "" if self.mirror.seq is None else f"?since={self.mirror.seq}"


class OnSocket(Watcher):
    """Reads a WebSocket: as it comes; `slow_s` after each frame; and not at all for `stalls_s`, once."""

    def __init__(self, *of: object, slow_s: float = 0.0, stalls_s: float = 0.0, leaves_s: float = 0.0) -> None:
        super().__init__(*of)  # type: ignore[arg-type]
        self.slow_s, self.stalls_s, self.leaves_s = slow_s, stalls_s, leaves_s

    async def watch(self) -> None:
        url = f"{self.url.replace('http', 'ws', 1)}/i/{self.instance}/ws{self.place}"
        async with connect(url, additional_headers=BEARER, max_size=None, max_queue=2) as ws:
            try:
                leaves = self.random.uniform(0.2, 1) * self.leaves_s if self.leaves_s else None
                async with asyncio.timeout(leaves):
                    while True:
                        text = await ws.recv(decode=False)
                        await self.take(read_frame(text), len(text))
                        if self.stalls_s and self.mirror.frames > 3:
                            stalled, self.stalls_s = self.stalls_s, 0.0
                            await asyncio.sleep(stalled)
                        await asyncio.sleep(self.slow_s)
            finally:
                self.closed_with.append(ws.close_code)


class OnEvents(Watcher):
    """Reads Server-Sent Events, and drops the connection now and then."""

    async def watch(self) -> None:
        headers = {**BEARER, "accept": "text/event-stream"}
        if self.mirror.seq is not None:
            headers["last-event-id"] = self.mirror.seq
        async with (
            httpx.AsyncClient(timeout=30, trust_env=False) as http,
            http.stream("GET", f"{self.url}/i/{self.instance}/changes", headers=headers) as answer,
        ):
            answer.raise_for_status()
            async with asyncio.timeout(self.random.uniform(0.3, 2)):
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        assert json.loads(line[6:])["type"] in ("snapshot", "change", "resync")
                        await self.take(read_frame(line[6:]), len(line))


class OnClient(Watcher):
    """Iterates over `Client.changes`, and leaves the loop now and then."""

    async def watch(self) -> None:
        left = self.random.randrange(3, 30)
        async with aclosing(self._client.scheduler(self.instance).changes(since=self.mirror.seq)) as changes:
            async for frame in changes:
                await self.take(frame)
                left -= 1
                if not left:
                    return


class OnSyncClient(Watcher):
    """Iterates over `SyncClient.changes` in a thread."""

    async def watch(self) -> None:
        loop, client = asyncio.get_running_loop(), SyncClient(self.url, token=TOKEN, patience_s=30)

        def iterate() -> None:
            for frame in client.scheduler(self.instance).changes(since=self.mirror.seq):
                asyncio.run_coroutine_threadsafe(self.take(frame), loop).result(30)

        try:
            await asyncio.to_thread(iterate)
        finally:
            await asyncio.to_thread(client.close)  # ends the call that waits, and with it the thread


async def settled(watchers: list[Watcher], truth: Callable[[], Awaitable[object]], seconds: float) -> list[str]:
    """Wait until all know what the lists say; those that do not in time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        said = await truth()
        wrong = [f"{type(one).__name__} {n}" for n, one in enumerate(watchers) if one.mirror.jobs != said]
        if not wrong or loop.time() > end:
            return wrong
        await asyncio.sleep(0.1)
