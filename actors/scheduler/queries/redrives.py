"""Read how far a bulk retry has come."""

from __future__ import annotations

from tocsin.actors.scheduler.model.records import Redrive
from tocsin.actors.scheduler.model.rows import RedriveRow, redrive_key
from tocsin.actors.scheduler.queries.jobs import read
from tocsin.actors.scheduler.transitions import redrive as redrives
from tocsin.storage.api import StoreView


async def read_redrive(view: StoreView, redrive_id: str) -> Redrive | None:
    """Return the bulk retry of this id; None if there is none."""
    key = redrive_key(redrive_id)
    row = read(RedriveRow, key, (await view.get([key])).get(key))
    if row is None:
        return None
    waits = redrives.waits_for(redrive_id, row, await redrives.running(view)) if row.next_at else None
    return Redrive(redrive_id, row.matched, row.retried, bool(row.next_at), row.stopped, waits)
