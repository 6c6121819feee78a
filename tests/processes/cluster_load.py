"""Users of a cluster behind a balancer: jobs at a steady rate, each asked for until a host has accepted it."""

from __future__ import annotations

import asyncio
import json
import time
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


@dataclass
class Load:
    """All requests that were made. `stop` ends it early."""

    port: Callable[[], int]
    actors: list[str]
    random: Random
    timeout_ms: int
    requests: list[Request] = field(default_factory=list)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

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
        """One request on a connection of its own; None if no answer came."""
        sent = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: cluster\r\nconnection: close\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {TOKEN}\r\nidempotency-key: {key}\r\ncontent-length: {len(sent)}\r\n\r\n"
        )
        writer = None
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port())
                writer.write(head.encode() + sent)
                answer = await reader.readuntil(b"\r\n\r\n")
                length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)  # an answer that breaks off is none
            return int(answer.split()[1])
        except (OSError, EOFError, TimeoutError, ValueError):
            return None
        finally:
            if writer is not None:
                writer.close()
