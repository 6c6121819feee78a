"""Schedules: defined, looked at, held, run by hand and removed; and what a cron expression comes to."""

from __future__ import annotations

import asyncio

import msgspec

from tocsin.actors.http.body import BATCH_BODY, SCHEDULE_BODY, SMALL_BODY, parse, reading_args
from tocsin.actors.http.job_requests import following
from tocsin.actors.http.operations_reading import DEFAULT_LIMIT
from tocsin.actors.http.parameters import DELETED, PAGED, PREVIEWED, names
from tocsin.actors.http.request import Call
from tocsin.actors.http.response_models import Backfills, BackfillStopped, ScheduleDeleted, SetRegistered
from tocsin.actors.http.wire import whole
from tocsin.actors.http.wire_recurring import (
    BackfillRequest,
    DefinitionRequest,
    OwnedRequest,
    RegisterRequest,
    RevisionRequest,
    TriggerRequest,
)
from tocsin.actors.scheduler.client.schedules_port import GIVE_WAY, PREVIEW
from tocsin.actors.scheduler.model import schedule_records as records
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.model.validation import epoch_ms, naming
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.schedules.definition import MAX_SET, schedule_name
from tocsin.actors.scheduler.schedules.register import owned_name
from tocsin.errors import InvalidInputError, NotFoundError


async def put(call: Call) -> records.SchedulePut:
    """Ask an app's own rule twice: about the schedule, and as `schedule` about what it is to call."""
    request = await call.body(DefinitionRequest, SCHEDULE_BODY)
    name = await _admitted_name(call)
    for target in request.targets():
        await call.admit(target, action="schedule")
    follow = following(call.port.checks, request)
    with reading_args():
        new = call.port.checks.wire_schedule(
            name,
            raw_args=bytes(request.args),
            given=request.options() | follow,
            paused=request.paused,
            revision=whole(request.revision),
            initiator=call.initiator,
        )
    return await call.port.schedules.put(new)


async def register(call: Call) -> SetRegistered:
    """Ask an app's own rule about the owner, and as `schedule` about each thing that is to be called."""
    request = await call.body(RegisterRequest, BATCH_BODY)
    owner = schedule_name(call.path("owner"))
    await call.admit(owner)
    if len(request.schedules) > MAX_SET:
        raise InvalidInputError(f"schedules: {len(request.schedules)} given, at most {MAX_SET} in one set")
    news: list[NewSchedule] = []
    for place, raw in enumerate(request.schedules):
        if not place % GIVE_WAY:
            await asyncio.sleep(0)  # reading a thousand rules takes a while
        with naming(f"schedules[{place}]"):
            news.append(await _owned(call, owner, raw))
    made = await call.port.schedules.register(owner, news, prune=bool(request.prune))
    return SetRegistered(made.schedules, made.orphaned, made.removed)


async def _owned(call: Call, owner: str, raw: msgspec.Raw) -> NewSchedule:
    request = parse(raw, OwnedRequest, "the schedule")
    request.check_instance(call.port.name)
    for target in request.targets():
        await call.admit(target, action="schedule")
    follow = following(call.port.checks, request)
    with reading_args():
        return call.port.checks.wire_schedule(
            owned_name(owner, schedule_name(request.name)),
            raw_args=bytes(request.args),
            given=request.options() | follow,
            paused=request.paused,
            revision=None,
            initiator=call.initiator,
            owner=owner,
        )


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


async def backfill(call: Call) -> Backfill:
    request = await call.body(BackfillRequest, SMALL_BODY)
    name = await _admitted_name(call)
    start, end = (_needed(request.start, "start"), _needed(request.end, "end"))
    return await call.port.schedules.backfill(
        name,
        start=start,
        end=end,
        rate_per_second=10 if request.rate_per_second is None else whole(request.rate_per_second),  # type: ignore[arg-type]  # the port checks every value
        dry_run=bool(request.dry_run),
    )


def _needed(value: object, name: str) -> int:
    if value is None:
        raise InvalidInputError(f"{name} is needed: slots of the past are run from start on, and before end (epoch ms)")
    return epoch_ms(whole(value), name)  # type: ignore[arg-type]  # it checks the value


async def backfills(call: Call) -> Backfills:
    call.query()
    name = await _admitted_name(call)
    found = await call.port.schedules.backfills(name)
    if not found and await call.port.schedules.get(name) is None:
        raise NotFoundError(f"there is no schedule {name!r}, and no history of one")
    return Backfills(found)


async def backfill_stop(call: Call) -> BackfillStopped:
    call.query()
    name = await _admitted_name(call)
    return BackfillStopped(await call.port.schedules.backfill_stop(name, call.path("backfillId")))


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
