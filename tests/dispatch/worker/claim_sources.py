"""A real host, and the ways to it: in its process, and over HTTP to its app or to its socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tocsin import ActorHost, RemoteScheduler, Scheduler
from tocsin.cli.http_server import bind, serving

REMOTE = ("remote", "socket")
TOKENS = ["ops:admin:secret-ops", "worker:work:secret-work", "app:schedule+read:secret-app"]


@dataclass
class HostAndSource:
    """A host, its scheduler, and what workers of this test claim from: the same, or a client."""

    jobs: Scheduler
    source: Any
    app: Any

    url: str = ""
    """Where the host listens; without it clients reach its app over httpx."""

    def remote(self, token: str | None = "secret-ops", **options: Any) -> RemoteScheduler:
        options = {"token": token, "instance": "t", **options}
        if self.url:
            return RemoteScheduler(self.url, **options)
        return RemoteScheduler("http://tocsin.example", transport=httpx.ASGITransport(self.app), **options)


@asynccontextmanager
async def host_and_source(kind: str) -> AsyncIterator[HostAndSource]:
    """`kind`: "remote" (over httpx), "socket" (as workers are, over the built-in transport), or anything else: here."""
    async with ActorHost.open("memory:") as host, asyncio.timeout(30), AsyncExitStack() as stack:
        app = host.asgi(tokens=TOKENS)
        found = HostAndSource(host.scheduler("t"), host.scheduler("t"), app)
        if kind == "socket":
            found.url = await stack.enter_async_context(serving(app, bind("127.0.0.1", 0)))
        if kind in REMOTE:
            found.source = await stack.enter_async_context(found.remote())
        yield found


async def until(is_so: Callable[[], Any]) -> None:
    """At most ten seconds."""
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never was so")


each_source = pytest.mark.parametrize("kind", ["embedded", *REMOTE])
each_remote = pytest.mark.parametrize("kind", REMOTE)
