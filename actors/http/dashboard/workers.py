"""Workers: who serves which queues, what each runs now, and when it was heard of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.page import Page
from tocsin.actors.scheduler.model import records
from tocsin.dispatch.pulled import WorkerJob

SHOWN: Final = 50
JOBS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker; `status` is `lost` where it was not heard of for a while, whatever it said of itself last."""

    record: records.WorkerRecord
    status: str
    queues: str
    where: str
    jobs: Sequence[WorkerJob]
    more_jobs: int


@dataclass(frozen=True, slots=True)
class Workers:
    """A page of the workers of an instance."""

    workers: Sequence[Worker]
    next: str | None


async def show(asked: Asked) -> Workers:
    cursor = asked.query("cursor").text("cursor") or None
    page = await asked.port.queues.workers(cursor=cursor, limit=SHOWN)
    return Workers([_worker(one) for one in page.workers], page.cursor)


def _worker(one: records.WorkerRecord) -> Worker:
    queues = "all" if one.queues == "*" else one.queues if isinstance(one.queues, str) else ", ".join(one.queues)
    if one.exclude:
        queues += f" but {', '.join(one.exclude)}"
    places = (one.id if one.name else "", one.hostname or "", "" if one.pid is None else f"pid {one.pid}")
    where = " · ".join(filter(None, places))
    status = "lost" if one.lost else one.status
    return Worker(one, status, queues, where, one.jobs[:JOBS_SHOWN], len(one.jobs[JOBS_SHOWN:]))


PLACES: Final = (Page(path="/workers", action="workers", name="workers", title="Workers", show=show),)
