"""Users of a cluster behind a balancer: jobs at a steady rate, each asked for until a host has accepted it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.processes.cluster_ledger import Request
from tests.processes.server_process import TOKEN

ANSWER_S: Final = 4.0
"""A user who waits longer for an answer asks again: the host that has the connection may have been stopped."""
AGAIN_S: Final = (0.1, 0.2, 0.5, 1.0)
"""Pauses before it is asked for again; the last one for all that follow."""
GIVEN_UP_S: Final = 60.0
MOST_DELAY_S: Final = 0.5
ASKED_PER_LINE: Final = 20
"""A connection is closed after so many requests, so that hosts that came back have new ones."""


@dataclass
class Load:
    """All requests that were made. `stop` ends it early."""

    port: Callable[[], int]
    actors: list[str]
    random: Random
    timeout_ms: int
    requests: list[Request] = field(default_factory=list)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    lines: deque[_Line] = field(default_factory=deque)
    """Connections that are free."""

    async def steadily(self, rate: float, seconds: float) -> None:
        """Ask so many times a second, whether or not earlier requests have ended; returns when all have."""
        loop = asyncio.get_running_loop()
        began, running = loop.time(), set[asyncio.Task[None]]()
        for n in range(int(rate * seconds)):
            await asyncio.sleep(began + n / rate - loop.time())
            if self.stopped.is_set():
                break
            task = asyncio.create_task(self.one())
            running.add(task)
            task.add_done_callback(running.discard)
        if running:
            await asyncio.wait(running)
        while self.lines:
            self.lines.popleft().writer.close()

    async def one(self) -> None:
        """One job, under one key: it is one, however often it is asked for."""
        delay = self.random.choice((0.0, self.random.uniform(0, MOST_DELAY_S)))
        request = Request(len(self.requests), self.random.choice(self.actors), round(delay, 3))
        self.requests.append(request)
        body = {
            "functionPath": "cluster:run",
            "args": {"n": request.n},
            "delayMs": int(request.delay_s * 1000),
            "timeoutMs": self.timeout_ms,
            "retry": {"maxRetries": 90, "baseMs": 200, "maxMs": 2_000},
        }
        key = f"{self.random.getrandbits(64):x}-{request.n}"
        given_up = time.time() + GIVEN_UP_S
        while request.status is None and time.time() < given_up:
            if request.tries:
                await asyncio.sleep(AGAIN_S[min(len(request.tries), len(AGAIN_S)) - 1])
            began = time.time()
            request.tries.append((began, await self._post(f"/i/{request.actor}/schedule", key, body)))

    async def _post(self, path: str, key: str, body: object) -> int | None:
        """One request, if need be on a new connection; None if no answer came."""
        sent = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: cluster\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {TOKEN}\r\nidempotency-key: {key}\r\ncontent-length: {len(sent)}\r\n\r\n"
        )
        line: _Line | None = None
        try:
            async with asyncio.timeout(ANSWER_S):
                line = self._kept_line() or _Line(*await asyncio.open_connection("127.0.0.1", self.port()))
                status, goes_on = await line.ask(head.encode() + sent)
        except (OSError, EOFError, TimeoutError, ValueError):
            if line is not None:
                line.writer.close()
            return None
        if goes_on:
            self.lines.append(line)
        else:
            line.writer.close()
        return status

    def _kept_line(self) -> _Line | None:
        """The one that was not used for the longest time: so each host has its turn."""
        while self.lines:
            line = self.lines.popleft()
            if not line.reader.at_eof() and not line.writer.is_closing():
                return line
            line.writer.close()
        return None


@dataclass
class _Line:
    """One connection, used for some requests, one after the other."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: int = 0

    async def ask(self, sent: bytes) -> tuple[int, bool]:
        """The status of the answer, and whether the connection may be used again."""
        self.asked += 1
        self.writer.write(sent)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self.reader.readexactly(length)  # an answer that breaks off is none
        return int(head.split()[1]), self.asked < ASKED_PER_LINE and b"connection: close" not in head
