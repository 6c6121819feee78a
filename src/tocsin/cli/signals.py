"""Signals of a process that stops in order: each is handled in the event loop, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Final

import anyio

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.asynccontextmanager
async def at_signals(handle: Callable[[], None], *numbers: signal.Signals) -> AsyncIterator[None]:
    """Call `handle` at each of these signals as long as the block lasts; what handled them before does so after it."""
    earlier = {number: signal.getsignal(number) for number in numbers}
    try:
        if sys.platform == "win32":  # its event loops take no signals
            loop = asyncio.get_running_loop()
            for number in numbers:
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(handle))
            yield
        else:
            with anyio.open_signal_receiver(*numbers) as received:
                handling = asyncio.create_task(_handle_each(received, handle))
                try:
                    yield
                finally:
                    handling.cancel()
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


async def _handle_each(received: AsyncIterator[signal.Signals], handle: Callable[[], None]) -> None:
    async for _ in received:
        handle()
