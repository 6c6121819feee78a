"""Look up whether jobs were ever accepted, for whoever submitted them and had no answer."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.model.rows import DAY_MS, JobRow, LeaseRow, hist_day, job_key, lease_key
from tocsin.actors.scheduler.queries.jobs import read
from tocsin.storage.api import StoreView, after

LEASES = 100


async def accepted(view: StoreView, jobs: Sequence[tuple[str, str]], now: int) -> list[bool]:
    """Tell of each job, by id and incarnation, whether it is there, has an attempt under way, or is in the history of
    these days."""
    rows = await view.get([job_key(job_id) for job_id, _ in jobs])
    found: list[bool] = []
    for job_id, incarnation in jobs:
        key = job_key(job_id)
        row = read(JobRow, key, rows.get(key))
        found.append((row is not None and row.incarnation == incarnation) or await _had(view, job_id, incarnation, now))
    return found


async def _had(view: StoreView, job_id: str, incarnation: str, now: int) -> bool:
    today = now // DAY_MS
    days = (today - 1, today, today + 1)
    history = [hist_day(day) + f"{job_id}/{incarnation}/".encode() for day in days]
    leases = lease_key(job_id, "")
    *ended, running = await view.scan_many([
        *((prefix, after(prefix), 1) for prefix in history), (leases, after(leases), LEASES)
    ])  # fmt: skip
    if any(ended):
        return True
    known = (read(LeaseRow, key, value) for key, value in running)
    return any(lease is not None and lease.incarnation == incarnation for lease in known)
