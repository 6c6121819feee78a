"""Workers: how they say they are, and which there are."""

from __future__ import annotations

from tocsin.actors.http.body import SMALL_BODY
from tocsin.actors.http.operations_reading import DEFAULT_LIMIT
from tocsin.actors.http.parameters import PAGED, names
from tocsin.actors.http.request import Call
from tocsin.actors.http.response_models import Heard
from tocsin.actors.http.wire_workers import SnapshotRequest
from tocsin.actors.scheduler.model.records import WorkerPage


async def announce(call: Call) -> Heard:
    snapshot = (await call.body(SnapshotRequest, SMALL_BODY)).snapshot()
    await call.admit(snapshot.id if isinstance(snapshot.id, str) else None)
    await call.port.queues.announce(snapshot)
    return Heard()


async def workers(call: Call) -> WorkerPage:
    query = call.query(*names(PAGED))
    await call.admit(None)
    return await call.port.queues.workers(
        cursor=query.text("cursor") or None, limit=query.whole_or("limit", DEFAULT_LIMIT)
    )
