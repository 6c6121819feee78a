"""All pages and acts of the dashboard."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.dashboard import (
    audit,
    instances,
    job,
    job_acts,
    jobs,
    letters,
    overview,
    pools,
    queues,
    redrives,
    schedule,
    schedules,
    workers,
)
from tocsin.actors.http.dashboard.page import Place

PLACES: Final[tuple[Place, ...]] = (
    *overview.PLACES,
    *jobs.PLACES,
    *job.PLACES,
    *job_acts.PLACES,
    *letters.PLACES,
    *redrives.PLACES,
    *schedules.PLACES,
    *schedule.PLACES,
    *queues.PLACES,
    *workers.PLACES,
    *pools.PLACES,
    *audit.PLACES,
    *instances.PLACES,
)
