"""A real host, and the two ways to it: in its process and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tocsin import ActorHost, RemoteScheduler, Scheduler

TOKENS = ["ops:admin:secret-ops", "worker:work:secret-work", "app:schedule+read:secret-app"]


@dataclass
class HostAndSource:
    """A host, its scheduler, and what workers of this test claim from: the same, or a client."""

    jobs: Scheduler
    source: Any
    app: Any

    def remote(self, token: str | None = "secret-ops", **options: Any) -> RemoteScheduler:
        transport = httpx.ASGITransport(self.app)
        return RemoteScheduler("http://tocsin.example", token=token, instance="t", transport=transport, **options)


@asynccontextmanager
async def host_and_source(kind: str) -> AsyncIterator[HostAndSource]:
    async with ActorHost.open("memory:") as host, asyncio.timeout(30):
        app = host.asgi(tokens=TOKENS)
        found = HostAndSource(host.scheduler("t"), host.scheduler("t"), app)
        if kind == "remote":
            found.source = found.remote()
        yield found
        if kind == "remote":
            await found.source.aclose()


async def until(is_so: Callable[[], Any]) -> None:
    """At most ten seconds."""
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never was so")


each_source = pytest.mark.parametrize("kind", ["embedded", "remote"])
