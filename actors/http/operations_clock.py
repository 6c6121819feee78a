"""The test clock of an instance: made with it, advanced, frozen where it stands."""

from __future__ import annotations

from tocsin.actors.http.body import SMALL_BODY
from tocsin.actors.http.parameters import CLOCK_READ, names
from tocsin.actors.http.request import Call
from tocsin.actors.http.response_models import ClockFound
from tocsin.actors.http.wire import whole
from tocsin.actors.http.wire_clock import AdvanceRequest, ClockRequest, FreezeRequest
from tocsin.actors.scheduler.model.records import ClockState
from tocsin.actors.scheduler.model.validation import CLAIM_WAIT_MS, integer
from tocsin.errors import HostClosedError


async def get_clock(call: Call) -> ClockFound:
    wait_ms = integer(call.query(*names(CLOCK_READ)).whole_or("waitMs", 0), "waitMs", *CLAIM_WAIT_MS)
    await call.admit(None)
    try:
        return ClockFound(await call.port.reads.clock(wait_ms / 1000))
    except HostClosedError:  # nobody waits here any more
        return ClockFound(await call.port.reads.clock(0))


async def put_clock(call: Call) -> ClockState:
    request = await call.body(ClockRequest, SMALL_BODY)
    await call.admit(None)
    return await call.port.changes.set_clock(whole(request.required_at()))  # type: ignore[arg-type]  # the port checks it


async def advance(call: Call) -> ClockState:
    request = await call.body(AdvanceRequest, SMALL_BODY)
    await call.admit(None)
    return await call.port.changes.advance_clock(
        to=whole(request.to),  # type: ignore[arg-type]  # the port checks every value
        by_ms=whole(request.by_ms),  # type: ignore[arg-type]
    )


async def freeze(call: Call) -> ClockState:
    await call.body(FreezeRequest, SMALL_BODY, optional=True)
    await call.admit(None)
    return await call.port.changes.freeze_clock()
