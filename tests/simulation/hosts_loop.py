"""An event loop with several hosts in it, each of which can be stopped as SIGSTOP stops a process, and go on later.

A host is what runs in its context, `asyncio.create_task(work, context=loop.context_of("h1"))`, and all that it starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from typing import Any, TypeVar

from tocsin.actors.testing.loop import SimLoop

T = TypeVar("T")
HOST: ContextVar[str] = ContextVar("HOST", default="")


class HostsLoop(SimLoop):
    """Keeps back what a stopped host would do: its tasks, its timers, the answers that it would get."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._stopped: dict[str, list[asyncio.Handle]] = {}

    @staticmethod
    def context_of(host: str) -> Context:
        context = Context()
        context.run(HOST.set, host)
        return context

    def stop_host(self, host: str) -> None:
        self._stopped.setdefault(host, [])

    def continue_host(self, host: str) -> None:
        """Let it do all that it would have done, in its order."""
        for handle in self._stopped.pop(host, ()):
            self._ready.append(handle)  # type: ignore[attr-defined]

    def is_stopped(self, host: str) -> bool:
        return host in self._stopped

    def _shuffled(self, handles: list[asyncio.Handle]) -> list[asyncio.Handle]:
        if self._stopped:
            running: list[asyncio.Handle] = []
            for handle in handles:
                host = handle._context.get(HOST, "")  # type: ignore[attr-defined]
                self._stopped.get(host, running).append(handle)
            handles = running
        return super()._shuffled(handles)


def simulate_hosts(seed: int, main: Callable[[HostsLoop, Random], Coroutine[Any, Any, T]]) -> T:
    """Run `main` on such a loop, with a `Random` of the same seed. The same seed gives the same run."""
    loop = HostsLoop(seed)

    async def whole() -> T:
        try:
            return await main(loop, Random(seed ^ 0x5EED))
        finally:
            for host in list(loop._stopped):
                loop.continue_host(host)
            loop.ends()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(whole())
