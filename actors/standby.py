"""A process whose store another process has, and shares with nobody: it says so once, waits, and takes over when that
one ends.

Without sharing, `uvicorn --workers 4` starts four processes of which one serves. A worker that ended because another
one has the store would be started again for ever by some supervisors, and would make others, uvicorn 0.54 among them,
stop all workers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tocsin.errors import StoreLocked

log = logging.getLogger("tocsin.actors")

LOOK_S = 0.25


async def when_free(start: Callable[[], Awaitable[None]]) -> bool:
    """Start as soon as no other process has the store. False if a signal asked this process to stop before."""
    told = False
    with _stop_signals() as asked:
        while True:
            try:
                await start()
                return True
            except StoreLocked as error:
                if asked.is_set():
                    return False
                if error.details.get("pid") == str(os.getpid()):
                    raise  # it would wait for itself
                if not told:
                    log.error(
                        "%s. This process (%d) serves nothing until then, and takes over when the other one ends",
                        error,
                        os.getpid(),
                    )
                told = True
            await asyncio.sleep(LOOK_S)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Set by what else ends the process: a server that is still starting only remembers that it was told to stop."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    earlier: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        handler = earlier[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for each in (signal.SIGINT, signal.SIGTERM):
        if callable(handler := signal.getsignal(each)):  # else the signal ends the process anyway
            earlier[each] = handler
            signal.signal(each, ask)
    try:
        yield asked
    finally:
        for each, handler in earlier.items():
            if signal.getsignal(each) is ask:
                signal.signal(each, handler)
