"""Work that is pulled: claims that wait, what queues hold, what pends, what a job came to."""

from __future__ import annotations

from typing import Any, Final

from tocsin.actors.http.body import SMALL_BODY
from tocsin.actors.http.parameters import PREFIXED, RESULT_OF, names
from tocsin.actors.http.request import Call
from tocsin.actors.http.response_models import ClaimedJobs, QueueList
from tocsin.actors.http.wire import whole
from tocsin.actors.http.wire_queues import ClaimRequest, QueueRequest
from tocsin.actors.scheduler.client.queues import CLAIM_LEASE_MS, CLAIM_WAIT_S
from tocsin.actors.scheduler.model.queue_settings import queue_settings
from tocsin.actors.scheduler.model.records import Outcome, Pending, Queue
from tocsin.actors.scheduler.model.validation import CLAIM_WAIT_MS, integer
from tocsin.dispatch.pulled import EVERY_QUEUE
from tocsin.errors import HostClosedError

SEVERAL: Final = ","


async def claim(call: Call) -> ClaimedJobs:
    """Lease jobs; a worker that hangs up meanwhile gets none. The app's rule is asked for every queue that is named."""
    queue = call.path("queue")
    request = await call.body(ClaimRequest, SMALL_BODY, optional=True)
    for one in dict.fromkeys(queue.split(SEVERAL)):
        await call.admit(one)
    wait_ms: Any = int(CLAIM_WAIT_S * 1000) if request.wait_ms is None else whole(request.wait_ms)
    claimed = call.port.queues.claim(
        queue if queue == EVERY_QUEUE else queue.split(SEVERAL),
        max=1 if request.max is None else whole(request.max),  # type: ignore[arg-type]  # the port checks every value
        lease_ms=CLAIM_LEASE_MS if request.lease_ms is None else whole(request.lease_ms),  # type: ignore[arg-type]
        wait_ms=wait_ms,
        worker=None if request.worker is None else request.worker.info(),
        exclude=request.exclude or (),  # type: ignore[arg-type]
    )
    return ClaimedJobs(
        await call.while_connected(
            claimed, lambda jobs: call.port.queues.give_back([(one.id, one.lease) for one in jobs])
        )
    )


async def queues(call: Call) -> QueueList:
    call.query()
    await call.admit(None)
    return QueueList(await call.port.queues.queues())


async def set_queue(call: Call) -> Queue:
    name = call.path("queueName")
    request = await call.body(QueueRequest, SMALL_BODY)
    await call.admit(name)
    return await call.port.changes.set_queue(name, queue_settings(request.settings()))


async def pending(call: Call) -> Pending:
    prefix = call.query(*names(PREFIXED)).text("prefix") or ""
    await call.admit(prefix or None)
    return await call.port.queues.pending(prefix)


async def result(call: Call) -> Outcome:
    query = call.query(*names(RESULT_OF))
    id = query.required("id")
    wait_ms = integer(query.whole_or("waitMs", 0), "waitMs", *CLAIM_WAIT_MS)
    await call.admit(id)
    try:
        return await call.port.queues.outcome(id, wait_ms / 1000)
    except HostClosedError:  # nobody waits here any more
        return await call.port.queues.outcome(id, 0)
