"""Queues: what waits in each for a worker, and how many workers wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.overview import share
from tocsin.actors.http.dashboard.page import Page
from tocsin.actors.scheduler.model import records

SHOWN: Final = 200
"""The page is read anew whenever something changes: so many lines are what people read, and a server can afford."""


@dataclass(frozen=True, slots=True)
class Queues:
    """The longest queues of an instance; `longest` is how many jobs wait in the longest one, `more` how many queues are
    not shown."""

    queues: Sequence[records.Queue]
    longest: int
    more: int

    def share(self, queue: records.Queue) -> float:
        return share(queue.waiting, self.longest)

    def unserved(self, queue: records.Queue) -> bool:
        """Return whether jobs are due and nobody takes them."""
        return bool(queue.due) and not queue.in_flight and not queue.workers_waiting


async def show(asked: Asked) -> Queues:
    asked.query()
    queues = await asked.port.queues.queues()
    queues = sorted(queues, key=lambda one: (-one.waiting, one.name))
    return Queues(queues[:SHOWN], max((one.waiting for one in queues), default=0), max(0, len(queues) - SHOWN))


PLACES: Final = (Page(path="/queues", action="queues", name="queues", title="Queues", show=show),)
