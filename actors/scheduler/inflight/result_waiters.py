"""Who waits for the end of a job. Part of the host: the turn that ends a job tells them once that is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class ResultWaiters:
    """Of one scheduler on this host."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Event, None]] = {}
        self.stopping = False

    @contextmanager
    def watch(self, job_id: str) -> Iterator[asyncio.Event]:
        """Set when the job has ended."""
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
        for job_id in ended:
            for event in self._waiting.get(job_id, ()):
                event.set()

    def tell_all(self) -> None:
        """Whoever waits is to look again: jobs were removed, not ended."""
        self.tell(list(self._waiting))

    def stop(self) -> None:
        """The host stops: nobody waits for what nobody tells."""
        self.stopping = True
        self.tell_all()
