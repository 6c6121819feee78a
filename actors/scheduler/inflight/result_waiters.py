"""Callers that wait for the end of a job. The turn that ends it tells them once that is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tocsin.errors import TocsinError

NOBODY_WAITS: Final = "the host is stopping: wait at another one, or at this one when it is back"


class End(asyncio.Event):
    """Set when something has ended, or nobody here will hear of its end."""

    refusal: TocsinError | None = None
    """Why nobody will."""

    async def come(self) -> None:
        """Wait for it. Raises what refuses to wait any longer here."""
        await self.wait()
        if self.refusal is not None:
            raise self.refusal


class ResultWaiters:
    """The waiters of one scheduler on this host."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[End, None]] = {}
        self.stopping = False

    @contextmanager
    def watch(self, job_id: str) -> Iterator[End]:
        """Give an event that is set when the job has ended."""
        event = End()
        self._waiting.setdefault(job_id, {})[event] = None
        try:
            yield event
        finally:
            events = self._waiting[job_id]
            del events[event]
            if not events:
                del self._waiting[job_id]

    def tell(self, ended: Sequence[str]) -> None:
        """Wake those who wait for one of these jobs."""
        for job_id in ended:
            for event in self._waiting.get(job_id, ()):
                event.set()

    def tell_all(self) -> None:
        """Wake all, so that each reads its job again: jobs were removed, not ended."""
        self.tell(list(self._waiting))

    def refuse(self, error: TocsinError) -> None:
        """Have all who wait raise this error: another host has the scheduler, and hears of its ends."""
        for events in self._waiting.values():
            for event in events:
                event.refusal = error
        self.tell_all()

    def stop(self) -> None:
        """Wake all, and let nobody wait any more: the host stops."""
        self.stopping = True
        self.tell_all()
