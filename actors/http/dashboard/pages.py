"""All pages and acts of the dashboard."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.dashboard import (
    dead,
    groups,
    instances,
    job,
    job_acts,
    job_bulk,
    jobs,
    letters,
    overview,
    pools,
    queues,
    redrives,
    schedule,
    schedules,
    undo,
    workers,
)
from tocsin.actors.http.dashboard.page import Place

PLACES: Final[tuple[Place, ...]] = (
    *overview.PLACES,
    *jobs.PLACES,
    *job.PLACES,
    *job_acts.PLACES,
    *job_bulk.PLACES,
    *dead.PLACES,
    *letters.PLACES,
    *redrives.PLACES,
    *schedules.PLACES,
    *schedule.PLACES,
    *queues.PLACES,
    *workers.PLACES,
    *pools.PLACES,
    *groups.PLACES,
    *undo.PLACES,
    *instances.PLACES,
)
