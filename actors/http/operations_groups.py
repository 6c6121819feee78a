"""Groups: made, sealed, cancelled, looked at."""

from __future__ import annotations

from tocsin.actors.http.body import BATCH_BODY, SMALL_BODY, reading_args
from tocsin.actors.http.job_records import JobPage, page_of
from tocsin.actors.http.job_requests import new_group
from tocsin.actors.http.operations_reading import DEFAULT_LIMIT
from tocsin.actors.http.parameters import PAGED, names
from tocsin.actors.http.request import Call
from tocsin.actors.http.wire_jobs import GroupDeedRequest, GroupRequest
from tocsin.actors.scheduler.model.group_records import GroupPage, GroupRecord
from tocsin.actors.scheduler.model.validation import plain_name
from tocsin.errors import NotFoundError


async def open_group(call: Call) -> GroupRecord:
    """Ask an app's own rule about the group, and as `schedule` about each thing that is to follow it."""
    request = await call.body(GroupRequest, BATCH_BODY)
    await call.admit(request.name if isinstance(request.name, str) else None)
    for target in dict.fromkeys(request.targets()):
        await call.admit(target, action="schedule")
    with reading_args():
        new = new_group(call.port.checks, request, call.initiator)
    return await call.port.changes.open_group(new)


async def seal(call: Call) -> GroupRecord:
    await call.body(GroupDeedRequest, SMALL_BODY, optional=True)
    return await call.port.changes.seal_group(await _admitted(call))


async def cancel(call: Call) -> GroupRecord:
    await call.body(GroupDeedRequest, SMALL_BODY, optional=True)
    return await call.port.changes.cancel_group(await _admitted(call))


async def get(call: Call) -> GroupRecord:
    call.query()
    name = await _admitted(call)
    found = await call.port.reads.group(name)
    if found is None:
        raise NotFoundError(f"there is no group {name!r}")
    return found


async def groups(call: Call) -> GroupPage:
    query = call.query(*names(PAGED))
    await call.admit(None)
    return await call.port.reads.groups(
        cursor=query.text("cursor") or None, limit=query.whole_or("limit", DEFAULT_LIMIT)
    )


async def members(call: Call) -> JobPage:
    query = call.query(*names(PAGED))
    name = await _admitted(call)
    page = await call.port.reads.members(
        name, cursor=query.text("cursor") or None, limit=query.whole_or("limit", DEFAULT_LIMIT)
    )
    return page_of(page, call.port.name)


async def _admitted(call: Call) -> str:
    name = plain_name(call.path("group"), "name")
    await call.admit(name)
    return name
