"""Callers of an app: requests at a steady rate over connections that are opened anew now and then, so that every worker
of the app gets some."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

REQUESTS_PER_CONNECTION = 25
TIMEOUT_S = 15.0


@dataclass
class Answered:
    """One request: when it was sent, how long it took, and what came of it; no status: its process died with it."""

    began: float
    took: float
    status: int | None
    body: Any = None


@dataclass
class Callers:
    port: int
    random: Random
    answers: list[Answered] = field(default_factory=list)
    _idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, int]] = field(default_factory=list)

    async def get(self, path: str) -> Answered:
        """Ask, and note the answer."""
        began = time.time()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, body = await self._ask(path)
            answered = Answered(began, time.time() - began, status, body)
        except (OSError, EOFError, TimeoutError, ValueError):
            answered = Answered(began, time.time() - began, None)
        self.answers.append(answered)
        return answered

    async def _ask(self, path: str) -> tuple[int, Any]:
        if self._idle:
            reader, writer, left = self._idle.pop(self.random.randrange(len(self._idle)))
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            left = REQUESTS_PER_CONNECTION
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:"))
            body = json.loads(await reader.readexactly(length))
        except BaseException:
            writer.close()
            raise
        if left > 1 and "connection: close" not in head:
            self._idle.append((reader, writer, left - 1))
        else:
            writer.close()
        return int(head.split()[1]), body

    async def steadily(self, rate: float, seconds: float, act: Callable[[], Any]) -> None:
        """Act so many times a second, whether or not earlier ones have ended."""
        began, running = time.monotonic(), set()
        for n in range(int(rate * seconds)):
            await asyncio.sleep(began + n / rate - time.monotonic())
            task = asyncio.ensure_future(act())
            running.add(task)
            task.add_done_callback(running.discard)
        if running:
            await asyncio.wait(running)

    def close(self) -> None:
        for _, writer, _ in self._idle:
            writer.close()
