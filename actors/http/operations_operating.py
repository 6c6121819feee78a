"""Operating: pools set and deleted, the instance stopped, started and removed."""

from __future__ import annotations

from tocsin.actors.http.body import SMALL_BODY
from tocsin.actors.http.parameters import CONFIRMED, ONE_POOL, names
from tocsin.actors.http.request import Call
from tocsin.actors.http.response_models import PoolDeleted
from tocsin.actors.http.wire import IdRequest, InstanceRequest, whole
from tocsin.actors.http.wire_pools import PoolRequest
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.pool_settings import pool_settings
from tocsin.actors.scheduler.model.records import InstanceState, Pool, Removed
from tocsin.errors import InvalidInputError


async def get_pool(call: Call) -> Pool:
    name = call.query(*names(ONE_POOL)).required("name")
    await call.admit(name)
    return await call.port.reads.pool(name)


async def put_pool(call: Call) -> Pool:
    request = await call.body(PoolRequest, SMALL_BODY)
    await call.admit(request.name if isinstance(request.name, str) else None)
    return await call.port.changes.set_pool(
        request.name,  # type: ignore[arg-type]  # the port checks it
        pool_settings(request.settings()),
    )


async def delete_pool(call: Call) -> PoolDeleted:
    name = call.query(*names(ONE_POOL)).required("name")
    await call.admit(name)
    return PoolDeleted(await call.port.changes.delete_pool(name))


async def free_slot(call: Call) -> Freed:
    id = (await call.body(IdRequest, SMALL_BODY)).required_id()
    await call.admit(id)
    return await call.port.changes.free_slot(id)


async def put_instance(call: Call) -> InstanceState:
    request = await call.body(InstanceRequest, SMALL_BODY)
    await call.admit(None)
    return await call.port.changes.set_instance(
        paused=request.paused,  # type: ignore[arg-type]  # the port checks every value
        timeout_ms=whole(request.timeout_ms),  # type: ignore[arg-type]
    )


async def remove(call: Call) -> Removed:
    confirmed = call.query(*names(CONFIRMED)).text("confirm")
    if confirmed != call.port.name:
        raise InvalidInputError(f"this removes everything of the instance: repeat its name, ?confirm={call.port.name}")
    await call.admit(None)
    return await call.port.changes.remove()
