"""The operations: each reads its request, admits it, asks the handle, and gives what the contract says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tocsin.actors.http.body import parse
from tocsin.actors.http.call import Call
from tocsin.actors.http.faults import envelope
from tocsin.actors.http.wire import BatchRequest, IdRequest, ScheduleRequest
from tocsin.actors.scheduler.arguments import MAX_ARGS
from tocsin.actors.scheduler.turn import NewJob
from tocsin.errors import ForbiddenError, InvalidInputError, TocsinError

SMALL_BODY: Final = 64 * 1024
SCHEDULE_BODY: Final = MAX_ARGS + SMALL_BODY
BATCH_BODY: Final = 8 * 1024 * 1024
DEFAULT_LIMIT: Final = 100

READ: Final = frozenset({"read"})
SCHEDULE: Final = frozenset({"schedule"})
OPERATE: Final = frozenset({"operate"})


@dataclass(frozen=True, slots=True)
class Operation:
    """A route. `action` names the Python method it stands for; any one of `scopes` lets a token in."""

    method: str
    path: str
    action: str
    scopes: frozenset[str]
    run: Callable[[Call], Awaitable[Any]]


# ---- Scheduling ----------------------------------------------------------------------------------


async def schedule(call: Call) -> Any:
    call.check_replay()
    request = await call.body(ScheduleRequest, SCHEDULE_BODY)
    await call.admit(request.target)
    return await call.scheduler.submit(_new_job(call, request))


async def schedule_batch(call: Call) -> Any:
    """One answer per job, in order; those accepted are one commit."""
    call.check_replay()
    request = await call.body(BatchRequest, BATCH_BODY)
    check = _BatchCheck(call)
    checked = [await check.job(raw) for raw in request.jobs]
    answers = await call.scheduler.submit_checked(checked)
    return {"results": [envelope(one) if isinstance(one, TocsinError) else one for one in answers]}


class _BatchCheck:
    """Checks the jobs of a batch; the app's rule is asked once for each target."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._rulings: dict[str | None, ForbiddenError | None] = {}

    async def job(self, raw: msgspec.Raw) -> NewJob | TocsinError:
        """The checked job, or why it is refused."""
        try:
            request = parse(raw, ScheduleRequest, "the job")
            request.check_instance(self._call.scheduler.name)
            if (refused := await self._ruling(request.target)) is not None:
                return refused
            return _new_job(self._call, request)
        except TocsinError as error:
            return error

    async def _ruling(self, target: str | None) -> ForbiddenError | None:
        if target not in self._rulings:
            try:
                await self._call.admit(target)
            except ForbiddenError as error:
                self._rulings[target] = error
            else:
                self._rulings[target] = None
        return self._rulings[target]


def _new_job(call: Call, request: ScheduleRequest) -> NewJob:
    request.check_known()
    try:
        return call.scheduler.new_job(
            function_path=request.function_path,  # type: ignore[arg-type]  # the handle checks every value
            workflow=request.workflow,  # type: ignore[arg-type]
            raw_args=bytes(request.args),
            scheduled_for=request.scheduled_for,  # type: ignore[arg-type]
            delay_ms=request.delay_ms,  # type: ignore[arg-type]
            options=request.options(),
        )
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"args hold what no reader of JSON can be expected to take: {error}") from None
    except RecursionError:
        raise InvalidInputError("args are nested deeper than 64 levels") from None


# ---- Changing ------------------------------------------------------------------------------------


async def cancel(call: Call) -> Any:
    return await call.scheduler.cancel(await _admitted_id(call))


async def dead_retry(call: Call) -> Any:
    return await call.scheduler.dead_retry(await _admitted_id(call))


async def dead_cancel(call: Call) -> Any:
    return {"removed": await call.scheduler.dead_cancel(await _admitted_id(call))}


async def _admitted_id(call: Call) -> str:
    id = (await call.body(IdRequest, SMALL_BODY)).required_id()
    await call.admit(id)
    return id


# ---- Reading -------------------------------------------------------------------------------------


async def get(call: Call) -> Any:
    id = call.query("id").required("id")
    await call.admit(id)
    record = await call.scheduler.get(id)
    return {} if record is None else {"record": record}


async def list_jobs(call: Call) -> Any:
    query = call.query("cursor", "limit", "order", "pool", "state", "label")
    await call.admit(None)
    return await call.scheduler.list(
        cursor=query.text("cursor") or None,
        limit=_limit(query.whole("limit")),
        order=_default(query.text("order"), "due"),
        pool=query.text("pool"),
        state=query.text("state"),
        label=query.text("label"),
    )


async def list_dead(call: Call) -> Any:
    query = call.query("cursor", "limit", "pool", "since")
    await call.admit(None)
    return await call.scheduler.dead(
        cursor=query.text("cursor") or None,
        limit=_limit(query.whole("limit")),
        pool=query.text("pool"),
        since=query.whole("since"),
    )


async def status(call: Call) -> Any:
    call.query()
    await call.admit(None)
    return await call.scheduler.status()


def _limit(value: int | None) -> int:
    return DEFAULT_LIMIT if value is None else value


def _default(value: str | None, otherwise: str) -> str:
    return otherwise if value is None else value


# ---- The table -----------------------------------------------------------------------------------

OPERATIONS: Final = (
    Operation("POST", "/schedule", "schedule", SCHEDULE, schedule),
    Operation("POST", "/schedule/batch", "schedule", SCHEDULE, schedule_batch),
    Operation("POST", "/cancel", "cancel", SCHEDULE | OPERATE, cancel),
    Operation("GET", "/get", "get", READ, get),
    Operation("GET", "/list", "list", READ, list_jobs),
    Operation("GET", "/dead", "dead", READ, list_dead),
    Operation("POST", "/dead/retry", "dead_retry", OPERATE, dead_retry),
    Operation("POST", "/dead/cancel", "dead_cancel", OPERATE, dead_cancel),
    Operation("GET", "/status", "status", READ, status),
)
