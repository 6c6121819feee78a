"""Schedules: defined, looked at, held, run by hand and removed; and what a cron expression comes to."""

from __future__ import annotations

from tocsin.actors.http.body import SCHEDULE_BODY, SMALL_BODY, reading_args
from tocsin.actors.http.job_requests import followers
from tocsin.actors.http.operations_reading import DEFAULT_LIMIT
from tocsin.actors.http.parameters import DELETED, PAGED, PREVIEWED, names
from tocsin.actors.http.request import Call
from tocsin.actors.http.response_models import ScheduleDeleted
from tocsin.actors.http.wire import whole
from tocsin.actors.http.wire_recurring import DefinitionRequest, RevisionRequest, TriggerRequest
from tocsin.actors.scheduler.client.schedules_port import PREVIEW
from tocsin.actors.scheduler.model import schedule_records as records
from tocsin.actors.scheduler.model.validation import epoch_ms
from tocsin.errors import NotFoundError


async def put(call: Call) -> records.SchedulePut:
    """Ask an app's own rule twice: about the schedule, and as `schedule` about what it is to call."""
    request = await call.body(DefinitionRequest, SCHEDULE_BODY)
    name = await _admitted_name(call)
    for target in request.targets():
        await call.admit(target, action="schedule")
    then = followers(call.port.checks, request.then)
    with reading_args():
        new = call.port.checks.wire_schedule(
            name,
            raw_args=bytes(request.args),
            given={**request.options(), "then": then},
            paused=request.paused,
            revision=whole(request.revision),
            initiator=call.initiator,
        )
    return await call.port.schedules.put(new)


async def get(call: Call) -> records.ScheduleRecord:
    call.query()
    name = await _admitted_name(call)
    record = await call.port.schedules.get(name)
    if record is None:
        raise NotFoundError(f"there is no schedule {name!r}")
    return record


async def list_schedules(call: Call) -> records.SchedulePage:
    query = call.query(*names(PAGED))
    await call.admit(None)
    return await call.port.schedules.list(
        cursor=query.text("cursor") or None, limit=query.whole_or("limit", DEFAULT_LIMIT)
    )


async def occurrences(call: Call) -> records.OccurrencePage:
    """List occurrences, also those of a deleted schedule, as long as they are kept."""
    query = call.query(*names(PAGED))
    name = await _admitted_name(call)
    schedules = call.port.schedules
    page = await schedules.occurrences(
        name, cursor=query.text("cursor") or None, limit=query.whole_or("limit", DEFAULT_LIMIT)
    )
    if not page.occurrences and await schedules.get(name) is None:
        raise NotFoundError(f"there is no schedule {name!r}, and no history of one")
    return page


async def pause(call: Call) -> records.ScheduleRecord:
    request = await call.body(RevisionRequest, SMALL_BODY, optional=True)
    name = await _admitted_name(call)
    return await call.port.schedules.pause(name, revision=whole(request.revision))  # type: ignore[arg-type]  # the port checks every value


async def resume(call: Call) -> records.ScheduleRecord:
    request = await call.body(RevisionRequest, SMALL_BODY, optional=True)
    name = await _admitted_name(call)
    return await call.port.schedules.resume(name, revision=whole(request.revision))  # type: ignore[arg-type]


async def trigger(call: Call) -> records.TriggeredRun:
    request = await call.body(TriggerRequest, SMALL_BODY, optional=True)
    name = await _admitted_name(call)
    return await call.port.schedules.trigger(name, request.request_key)  # type: ignore[arg-type]


async def delete(call: Call) -> ScheduleDeleted:
    query = call.query(*names(DELETED))
    revision, cancel_pending = query.whole("revision"), query.flag("cancelPending")
    name = await _admitted_name(call)
    deleted = await call.port.schedules.delete(name, revision=revision, cancel_pending=cancel_pending)
    return ScheduleDeleted(deleted)


async def _admitted_name(call: Call) -> str:
    name = call.path("name")
    await call.admit(name)
    return name


async def preview(call: Call) -> records.CronPreview:
    query = call.query(*names(PREVIEWED))
    start, timezone = query.whole("from"), query.text("timezone")
    await call.admit(None)
    return await call.port.schedules.preview(
        query.required("expr"),
        timezone="UTC" if timezone is None else timezone,
        start=None if start is None else epoch_ms(start, "from"),
        count=query.whole_or("count", PREVIEW),
    )
