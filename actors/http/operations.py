"""The operations: each reads its request, admits it, asks the handle, and gives what the contract says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tocsin.actors.http.answers import Written, pack, unpack, write
from tocsin.actors.http.body import parse
from tocsin.actors.http.call import Call
from tocsin.actors.http.faults import envelope
from tocsin.actors.http.wire import (
    BatchRequest,
    CancelAllRequest,
    CompleteRequest,
    ExtendRequest,
    IdRequest,
    InstanceRequest,
    PoolRequest,
    RescheduleRequest,
    RetryAllRequest,
    ScheduleRequest,
)
from tocsin.actors.scheduler.arguments import MAX_ARGS
from tocsin.actors.scheduler.records import Scheduled
from tocsin.actors.scheduler.replay import Kept
from tocsin.actors.scheduler.submit import Answer
from tocsin.actors.scheduler.turn import NewJob
from tocsin.errors import (
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    PayloadTooLargeError,
    QuotaExceededError,
    TocsinError,
)

SMALL_BODY: Final = 64 * 1024
SCHEDULE_BODY: Final = MAX_ARGS + SMALL_BODY
BATCH_BODY: Final = 8 * 1024 * 1024
DEFAULT_LIMIT: Final = 100
MOST_FAULTS: Final = 32 * 1024
"""How many bytes the refusals of a batch may take, packed: a kept answer must fit one row of the store."""

READ: Final = frozenset({"read"})
SCHEDULE: Final = frozenset({"schedule"})
OPERATE: Final = frozenset({"operate"})
ADMIN: Final = frozenset({"admin"})
BY_LEASE: Final[frozenset[str]] = frozenset()
"""No token is asked for: the lease in the body, which nobody can guess, is leave enough."""


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
    request = await call.body(ScheduleRequest, SCHEDULE_BODY)
    await call.admit(request.target)
    job = _new_job(call, request)
    once = call.once(_one_answer)
    if once is None:
        return await call.scheduler.submit(job)
    return _given(await call.scheduler.submit_once([job], once))


def _one_answer(answers: Sequence[Answer]) -> Kept | TocsinError:
    (answer,) = answers
    if isinstance(answer, QuotaExceededError):
        return answer  # not kept: with the same key it may pass once there is room
    if isinstance(answer, TocsinError):
        return answer.status, write(envelope(answer))
    return 200, write(answer)


def _given(kept: Kept) -> Written:
    status, text = kept
    return Written(status, unpack(text))


async def schedule_batch(call: Call) -> Any:
    """One answer per job, in order; those accepted are one commit."""
    request = await call.body(BatchRequest, BATCH_BODY)
    check = _BatchCheck(call)
    checked = [await check.job(raw) for raw in request.jobs]
    once = call.once(lambda stored: (200, pack(write(_results(checked, stored)))))
    good = [one for one in checked if isinstance(one, NewJob)]
    if once is None or not good:  # where all is refused nothing happens, so nothing is kept
        return _results(await call.scheduler.submit_checked(checked), ())
    _check_faults([envelope(one) for one in checked if isinstance(one, TocsinError)])
    return _given(await call.scheduler.submit_once(good, once))


def _check_faults(faults: Sequence[Any]) -> None:
    if len(pack(write(faults))) > MOST_FAULTS:
        raise PayloadTooLargeError(
            f"jobs: the refusals of {len(faults)} of them are too long to be kept under an Idempotency-Key: "
            "correct them, or send fewer at once"
        )


def _results(checked: Sequence[NewJob | Scheduled | TocsinError], stored: Sequence[Answer]) -> dict[str, Any]:
    """The answers in the order of the request: what was stored takes the places of the jobs that passed."""
    left = iter(stored)
    answers = [next(left) if isinstance(one, NewJob) else one for one in checked]
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


async def cancel_all(call: Call) -> Any:
    request = await call.body(CancelAllRequest, SMALL_BODY)
    await call.admit(None)
    return await call.scheduler.cancel_all(
        pool=request.pool,
        label=request.label,
        path=request.function_path,
        all=bool(request.all),
        dry_run=bool(request.dry_run),
    )


async def reschedule(call: Call) -> Any:
    request = await call.body(RescheduleRequest, SMALL_BODY)
    id = request.required_id()
    await call.admit(id)
    return await call.scheduler.rescheduled(id, request.scheduled_for, request.delay_ms)


async def dead_retry_all(call: Call) -> Any:
    request = await call.body(RetryAllRequest, SMALL_BODY)
    await call.admit(None)
    return await call.scheduler.dead_retry_all(
        pool=request.pool,
        reason=request.reason,
        path=request.function_path,
        since=request.since,  # type: ignore[arg-type]  # the handle checks every value
        all=bool(request.all),
        rate_per_second=10 if request.rate_per_second is None else request.rate_per_second,  # type: ignore[arg-type]
        dry_run=bool(request.dry_run),
    )


async def get_redrive(call: Call) -> Any:
    call.query()
    await call.admit(call.path("redriveId"))
    redrive = await call.scheduler.redrive(call.path("redriveId"))
    if redrive is None:
        raise NotFoundError(f"there is no redrive {call.path('redriveId')!r}")
    return redrive


async def stop_redrive(call: Call) -> Any:
    call.query()
    await call.admit(call.path("redriveId"))
    return {"stopped": await call.scheduler.redrive_stop(call.path("redriveId"))}


# ---- By lease: whoever holds one needs no token ---------------------------------------------------


async def complete(call: Call) -> Any:
    request = await call.body(CompleteRequest, SCHEDULE_BODY)
    result = bytes(request.result)
    settled = await call.scheduler.completed(
        request.required_id(),
        request.required_lease(),
        ok=request.ok is not False,
        error=request.error,
        retryable=request.retryable is not False,
        delay_ms=request.delay_ms,  # type: ignore[arg-type]  # the handle checks every value
        result=None if result == b"null" else result,
    )
    return {"settled": settled}


async def extend(call: Call) -> Any:
    request = await call.body(ExtendRequest, SMALL_BODY)
    until = await call.scheduler.extend(request.required_id(), request.required_lease(), request.lease_ms)  # type: ignore[arg-type]
    return {"leaseUntil": until}


# ---- Operating -----------------------------------------------------------------------------------


async def get_pool(call: Call) -> Any:
    name = call.query("name").required("name")
    await call.admit(name)
    return await call.scheduler.pool(name)


async def put_pool(call: Call) -> Any:
    request = await call.body(PoolRequest, SMALL_BODY)
    await call.admit(request.name if isinstance(request.name, str) else None)
    return await call.scheduler.set_pool(
        request.name,  # type: ignore[arg-type]  # the handle checks every value
        max_concurrency=request.max_concurrency,  # type: ignore[arg-type]
        paused=request.paused,  # type: ignore[arg-type]
    )


async def delete_pool(call: Call) -> Any:
    name = call.query("name").required("name")
    await call.admit(name)
    return {"deleted": await call.scheduler.delete_pool(name)}


async def put_instance(call: Call) -> Any:
    request = await call.body(InstanceRequest, SMALL_BODY)
    if not isinstance(request.paused, bool):
        raise InvalidInputError(f"paused must be true or false, not {request.paused!r}")
    await call.admit(None)
    await call.scheduler.pause(request.paused)
    return {"name": call.scheduler.name, "paused": request.paused}


async def remove(call: Call) -> Any:
    confirmed = call.query("confirm").text("confirm")
    if confirmed != call.scheduler.name:
        raise InvalidInputError(
            f"this removes everything of the instance: repeat its name, ?confirm={call.scheduler.name}"
        )
    await call.admit(None)
    return await call.scheduler.remove()


# ---- Reading -------------------------------------------------------------------------------------


async def why(call: Call) -> Any:
    id = call.query("id").required("id")
    await call.admit(id)
    return {"id": id, "reasons": await call.scheduler.why(id)}


async def history(call: Call) -> Any:
    id = call.query("id").required("id")
    await call.admit(id)
    return {"id": id, "attempts": await call.scheduler.history(id)}


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
    Operation("GET", "/why", "why", READ, why),
    Operation("GET", "/history", "history", READ, history),
    Operation("POST", "/cancel-all", "cancel_all", OPERATE, cancel_all),
    Operation("POST", "/reschedule", "reschedule", SCHEDULE | OPERATE, reschedule),
    Operation("POST", "/dead/retry-all", "dead_retry_all", OPERATE, dead_retry_all),
    Operation("GET", "/dead/redrives/{redriveId}", "redrive", READ, get_redrive),
    Operation("DELETE", "/dead/redrives/{redriveId}", "redrive_stop", OPERATE, stop_redrive),
    Operation("POST", "/complete", "complete", BY_LEASE, complete),
    Operation("POST", "/extend", "extend", BY_LEASE, extend),
    Operation("GET", "/pool", "pool", READ, get_pool),
    Operation("PUT", "/pool", "set_pool", OPERATE, put_pool),
    Operation("DELETE", "/pool", "delete_pool", OPERATE, delete_pool),
    Operation("PUT", "/instance", "pause", ADMIN, put_instance),
    Operation("DELETE", "", "remove", ADMIN, remove),
)
