"""Callers that wait for the end of a job. The turn that ends it tells them once that is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class ResultWaiters:
    """The waiters of one scheduler on this host."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Event, None]] = {}
        self.stopping = False

    @contextmanager
    def watch(self, job_id: str) -> Iterator[asyncio.Event]:
        """Give an event that is set when the job has ended."""
        event = asyncio.Event()
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

    def stop(self) -> None:
        """Wake all, and let nobody wait any more: the host stops."""
        self.stopping = True
        self.tell_all()
