"""Occupy a loop's default executor, and wait for the threads that look names up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from tocsin.dispatch.names import names

PATIENCE_S = 5.0


@asynccontextmanager
async def full_executor(calls: int = 40) -> AsyncIterator[None]:
    """Every thread of the loop's default executor is busy, and more calls wait for one, until this ends."""
    loop, over, busy = asyncio.get_running_loop(), threading.Event(), threading.Semaphore(0)
    loop.set_default_executor(ThreadPoolExecutor(4))

    def long() -> None:
        busy.release()
        over.wait()

    waiting = [loop.run_in_executor(None, long) for _ in range(calls)]
    for _ in range(4):
        assert busy.acquire(timeout=PATIENCE_S)
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*waiting)


def wait_for_lookups() -> None:
    """Until no name is looked up: who asks for one that is waits with the others, for the same answer."""
    end = time.monotonic() + PATIENCE_S
    while names._threads:
        assert time.monotonic() < end, "a name is still being looked up"
        time.sleep(0.001)
