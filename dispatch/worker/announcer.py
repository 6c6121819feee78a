"""Telling the host, and listeners here, how a worker is. A failure of that never disturbs a job."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tocsin.dispatch.pulled import WorkerSnapshot
from tocsin.dispatch.worker.ending import described
from tocsin.dispatch.worker.trouble import stops

log = logging.getLogger("tocsin.worker")

EVERY_S: Final = 10.0
SOON_S: Final = 0.1
"""From a change to the snapshot that tells of it, and of those that came since."""
PATIENCE_S: Final = 5.0

Listener = Callable[[WorkerSnapshot], Any]


class Announcer:
    """Tells a snapshot soon after each change (mark it in `changed`) and every ten seconds, in a task of its own."""

    def __init__(
        self,
        snapshot: Callable[[], WorkerSnapshot],
        announce: Callable[[WorkerSnapshot], Awaitable[None]],
        listener: Listener | None,
        listener_failed: Callable[[], None],
    ) -> None:
        self._snapshot, self._announce, self._listener_failed = snapshot, announce, listener_failed
        self.listeners = [] if listener is None else [listener]
        self.changed = asyncio.Event()
        self._failing: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._tell_on())

    async def stop(self) -> None:
        """Tell one last snapshot, and no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
            await self._tell()

    async def _tell_on(self) -> None:
        while True:
            self.changed.clear()
            await self._tell()
            try:
                async with asyncio.timeout(EVERY_S):
                    await self.changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(SOON_S)

    async def _tell(self) -> None:
        snapshot = self._snapshot()
        # The host first, and both whatever the other does.
        await self._try("the host", lambda: self._announce(snapshot))
        for listener in self.listeners:
            if not await self._try("on_heartbeat", lambda listener=listener: listener(snapshot)):  # type: ignore[misc]
                self._listener_failed()

    async def _try(self, whom: str, tell: Callable[[], Any]) -> bool:
        """Return whether it could be told. Of several failures in a row the first is logged."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                told = tell()
                if inspect.isawaitable(told):
                    await told
        except BaseException as error:  # an observer may fail in any way, and must not stop jobs
            if stops(error) or isinstance(error, (KeyboardInterrupt, GeneratorExit)):
                raise
            if whom not in self._failing:
                self._failing.add(whom)
                log.warning("a snapshot of this worker could not be given to %s: %s", whom, described(error))
            return False
        self._failing.discard(whom)
        return True
