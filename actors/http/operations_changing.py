"""Changing jobs: cancel, move, settle by lease; and dead letters, one by one or in bulk."""

from __future__ import annotations

from tocsin.actors.http import wire
from tocsin.actors.http.body import SCHEDULE_BODY, SMALL_BODY
from tocsin.actors.http.request import Call
from tocsin.actors.http.response_models import DeadCancelled, Extended, RedriveStopped
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.audit_records import Undone
from tocsin.dispatch.pulled import Settlement, check_end
from tocsin.errors import NotFoundError


async def cancel(call: Call) -> records.Cancelled:
    return await call.port.changes.cancel(await _admitted_id(call))


async def dead_retry(call: Call) -> records.DeadRetried:
    return await call.port.changes.dead_retry(await _admitted_id(call))


async def dead_cancel(call: Call) -> DeadCancelled:
    return DeadCancelled(await call.port.changes.dead_cancel(await _admitted_id(call)))


async def _admitted_id(call: Call) -> str:
    id = (await call.body(wire.IdRequest, SMALL_BODY)).required_id()
    await call.admit(id)
    return id


async def cancel_all(call: Call) -> records.Matched:
    request = await call.body(wire.CancelAllRequest, SMALL_BODY)
    await call.admit(None)
    return await call.port.changes.cancel_all(
        pool=request.pool,
        label=request.label,
        path=request.function_path,
        all=bool(request.all),
        dry_run=bool(request.dry_run),
    )


async def reschedule(call: Call) -> records.Rescheduled:
    request = await call.body(wire.RescheduleRequest, SMALL_BODY)
    id = request.required_id()
    await call.admit(id)
    checks = call.port.checks
    due = checks.wire_due(wire.whole(request.scheduled_for), wire.whole(request.delay_ms), checks.now_ms())
    return await call.port.changes.reschedule(id, due)


async def dead_retry_all(call: Call) -> records.Redrive:
    request = await call.body(wire.RetryAllRequest, SCHEDULE_BODY)
    await call.admit(None)
    return await call.port.changes.dead_retry_all(
        pool=request.pool,
        reason=request.reason,
        path=request.function_path,
        since=wire.whole(request.since),  # type: ignore[arg-type]  # the port checks every value
        ids=request.ids,
        all=bool(request.all),
        rate_per_second=10 if request.rate_per_second is None else wire.whole(request.rate_per_second),  # type: ignore[arg-type]
        dry_run=bool(request.dry_run),
    )


async def dead_cancel_all(call: Call) -> records.Matched:
    request = await call.body(wire.DeadCancelAllRequest, SCHEDULE_BODY)
    await call.admit(None)
    return await call.port.changes.dead_cancel_all(
        pool=request.pool,
        reason=request.reason,
        path=request.function_path,
        since=wire.whole(request.since),  # type: ignore[arg-type]  # the port checks every value
        ids=request.ids,
        all=bool(request.all),
        dry_run=bool(request.dry_run),
    )


async def undo(call: Call) -> Undone:
    request = await call.body(wire.UndoRequest, SMALL_BODY)
    action_id = request.required_action()
    await call.admit(action_id)
    return await call.port.changes.undo(action_id)


async def get_redrive(call: Call) -> records.Redrive:
    call.query()
    await call.admit(call.path("redriveId"))
    redrive = await call.port.reads.redrive(call.path("redriveId"))
    if redrive is None:
        raise NotFoundError(f"there is no redrive {call.path('redriveId')!r}: its id came from POST /dead/retry-all")
    return redrive


async def stop_redrive(call: Call) -> RedriveStopped:
    call.query()
    await call.admit(call.path("redriveId"))
    return RedriveStopped(await call.port.changes.redrive_stop(call.path("redriveId")))


# ---- By lease: whoever holds one needs no token ---------------------------------------------------


async def complete(call: Call) -> Settlement:
    request = await call.body(wire.CompleteRequest, SCHEDULE_BODY)
    raw = bytes(request.result)
    result = None if raw == b"null" else raw
    ok, retryable, charge = (one is not False for one in (request.ok, request.retryable, request.charge))
    if not (ok and retryable and charge and request.error is request.delay_ms is None):
        check_end(
            ok=ok, error=request.error, retryable=retryable, delay=request.delay_ms, charge=charge, result=result,
            in_json=True,
        )  # fmt: skip
    return await call.port.changes.complete(
        request.required_id(),
        request.required_lease(),
        ok=ok,
        error=request.error.failure() if isinstance(request.error, wire.FailureSaid) else request.error,
        retryable=retryable,
        delay_ms=wire.whole(request.delay_ms),  # type: ignore[arg-type]  # the port checks every value
        charge=charge,
        result=result,
    )


async def extend(call: Call) -> Extended:
    request = await call.body(wire.ExtendRequest, SMALL_BODY)
    until = await call.port.changes.extend(request.required_id(), request.required_lease(), request.required_lease_ms())
    return Extended(until)
