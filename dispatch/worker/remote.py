"""`RemoteScheduler`: a scheduler of another process, over HTTP, with the methods that a worker and an app need."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from random import Random, SystemRandom
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from tocsin.dispatch import values
from tocsin.dispatch.certificates import CaFile
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.failure import job_failed
from tocsin.dispatch.pulled import (
    MAX_RESULT,
    Claimed,
    Parent,
    Settlement,
    WorkerInfo,
    WorkerSnapshot,
    check_end,
    raw_member,
)
from tocsin.dispatch.receiver.lease_client import PATIENCE_S, TIMEOUT_S
from tocsin.dispatch.receiver.outcomes import HandlerError, error_in_json
from tocsin.dispatch.refusals import refusal
from tocsin.dispatch.scheduled import Cancelled, Scheduled
from tocsin.dispatch.server_client import DEFAULT_URL, ServerClient, base_url_of
from tocsin.dispatch.values import LEFT_OUT
from tocsin.dispatch.worker.ending import described
from tocsin.dispatch.worker.options import ALL, NAME
from tocsin.dispatch.worker.specs import body_of
from tocsin.dispatch.worker.trouble import Pauses, may_pass
from tocsin.errors import (
    InvalidInputError,
    NotYetError,
    PayloadTooLargeError,
    SettingsError,
    StoreCorrupt,
    TocsinError,
)

log = logging.getLogger("tocsin.worker")

RESULT_WAIT_MS: Final = 60_000
"""For how long one question for a result waits at the server; then it is asked again."""
GIVE_BACK_S: Final = 5.0

T = TypeVar("T")


NOTHING: Final = msgspec.Raw(b"null")
"""msgspec reads no member that is `Raw | None`, so what may be absent is this here."""


class _Parent(msgspec.Struct):
    id: str
    result: msgspec.Raw = NOTHING


class _Claimed(Claimed, frozen=True, kw_only=True, rename=raw_member):
    parent: _Parent | None = None  # type: ignore[assignment]  # as it is read; `claimed` makes it what it is

    def claimed(self) -> Claimed:
        members = {name: getattr(self, name) for name in Claimed.__struct_fields__}
        if (read := self.parent) is not None:
            members["parent"] = Parent(
                id=read.id, raw_result=msgspec.UNSET if bytes(read.result) == b"null" else read.result
            )
        return Claimed(**members)


class _Jobs(msgspec.Struct):
    jobs: list[_Claimed]


class _Held(msgspec.Struct, rename="camel"):
    lease_until: int


class _Found(msgspec.Struct):
    """Each member as it came: args are read by their own rules."""

    record: dict[str, msgspec.Raw] | None = None


class _Outcome(msgspec.Struct):
    state: str
    result: msgspec.Raw = NOTHING
    error: str | None = None
    result_damaged: bool = msgspec.field(default=False, name="resultDamaged")
    code: str | None = None
    status: int | None = None
    data: msgspec.Raw = NOTHING


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


class RemoteScheduler(ServerClient):
    """One scheduler of a server: claims and settles for a `Worker`, and schedules for apps without a host of their own.

    `url` is the server's, or where a host's app is mounted; `token` one with the scopes that are needed (`work` to
    claim, `schedule`, `read`). `transport`, an httpx one, reaches an app in this process. Use it in one event loop and
    close it. Errors are those of a `Scheduler`, and UnreachableError when nobody answers within `timeout_s` (of a claim
    or a result: beyond what it waits for). Where the network or the server fails for a moment, as in a restart,
    scheduling, `get` and `result` are tried again for `patience_s`; a `Worker` has its own patience for the rest.
    `ca_file` names a PEM file of authorities that are trusted beside the system's. Proxies of the environment are not
    used. The token is in no log and no repr.
    """

    _limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)  # waiting claims must block no others

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        instance: str = "default",
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        random: Random | None = None,
        ca_file: CaFile | None = None,
    ) -> None:
        super().__init__(
            base_url_of(url, "url"), token=token, timeout_s=timeout_s, transport=transport, ca_file=ca_file
        )
        if not isinstance(instance, str) or not NAME.fullmatch(instance) or instance[0] in ".:-":
            raise SettingsError(f"instance must be the name of a scheduler, not {instance!r:.100}")
        self.name = instance
        self._patience_s, self._random = patience_s, random or SystemRandom()

    def __repr__(self) -> str:
        return f"RemoteScheduler({self._base!r}, instance={self.name!r})"

    # ---- For workers -----------------------------------------------------------------------------

    async def claim(
        self,
        queue: str | Sequence[str] = ALL,
        *,
        max: int = 1,
        lease_ms: int = 60_000,
        wait: Duration = 20,
        worker: WorkerInfo | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Claimed]:
        """Do as `Scheduler.claim`. Cancelled, it hangs up, and the server gives the job to another worker."""
        wait_ms = duration_ms(wait, "wait")
        said: dict[str, Any] = {"max": max, "leaseMs": lease_ms, "waitMs": wait_ms}
        if worker is not None:
            said["worker"] = worker
        if exclude:
            said["exclude"] = list(exclude)
        names = [queue] if isinstance(queue, str) else list(queue)
        route = f"queues/{quote(','.join(map(str, names)), safe='*,:')}/claim"
        timeout_s = wait_ms / 1000 + self._timeout_s
        asked = asyncio.create_task(self._call_directly(self.name, route, _Jobs, said, timeout_s=timeout_s))
        try:
            await asyncio.wait([asked])
        except asyncio.CancelledError:
            await self._hung_up(asked)
            raise
        return [job.claimed() for job in asked.result().jobs]

    async def settle(
        self,
        id: str,
        lease: str,
        *,
        ok: bool = True,
        error: str | HandlerError | None = None,
        retryable: bool = True,
        delay: Duration | None = None,
        charge: bool = True,
        result: Any = None,
    ) -> Settlement:
        """Do as `Scheduler.settle`. It may be repeated for ten minutes."""
        check_end(ok=ok, error=error, retryable=retryable, delay=delay, charge=charge, result=result)
        said: dict[str, Any] = {"id": id, "lease": lease, "ok": ok}
        if error is not None:
            said["error"] = error_in_json(error)
        if not ok:
            said |= {"retryable": retryable, "charge": charge}
        if delay is not None:
            said["delayMs"] = duration_ms(delay, "delay")
        if result is not None:
            said["result"] = _result(result)
        return await self._call_directly(self.name, "complete", Settlement, said)

    async def complete(self, id: str, lease: str, **how: Any) -> bool:
        """Settle, and return only whether that was done."""
        return (await self.settle(id, lease, **how)).settled

    async def extend(self, id: str, lease: str, lease_ms: int) -> int:
        """Hold the lease until `lease_ms` from now. Return epoch ms of the server. StaleLeaseError if it is over."""
        said = {"id": id, "lease": lease, "leaseMs": lease_ms}
        return (await self._call_directly(self.name, "extend", _Held, said)).lease_until

    async def announce(self, snapshot: WorkerSnapshot) -> None:
        """Say how a worker is."""
        await self._call_directly(self.name, "workers", dict, snapshot)

    # ---- For apps --------------------------------------------------------------------------------

    async def run_at(self, at: datetime | int, path: str | None = None, args: Any = LEFT_OUT, **options: Any) -> str:
        """Do as `Scheduler.run_at`: return the id of a job that is on disk.

        Where the network or the server fails for a moment it is sent again, with a key under which it happens once.
        """
        return (await self._schedule({"path": path, "args": args, "at": at}, options)).id

    async def run_after(self, delay: Duration, path: str | None = None, args: Any = LEFT_OUT, **options: Any) -> str:
        """Do as `run_at`, after a delay: timedelta, seconds, or text like "90s", "5m"."""
        return (await self._schedule({"path": path, "args": args, "after": delay}, options)).id

    async def submit_many(self, jobs: Sequence[Any]) -> list[Scheduled | TocsinError]:
        """Submit up to 1,000 jobs in one atomic commit. Return one answer each, in order: accepted, or why not.

        Each is a `Job`, or a mapping with `path` (or `workflow`), `args`, `at` or `after`, and `options`.
        """
        bodies = [_named(job, f"jobs[{n}]") for n, job in enumerate(jobs)]
        answer = await self._once("schedule/batch", _Results, {"jobs": bodies})
        return [
            refusal(400, one, self._base) if "error" in one else msgspec.convert(one, Scheduled)
            for one in answer.results
        ]

    async def cancel(self, id: str) -> Cancelled:
        """Remove a live job. It is sent once: the answer to a second request would say that there was none."""
        return await self._call("POST", self.name, "cancel", Cancelled, {"id": id})

    async def get(self, id: str) -> dict[str, Any] | None:
        """Return the JSON record of `GET /get`, but `args` as Python values; None if there is no such job.

        Its names are those of JSON (`scheduledFor`); a `Scheduler` gives a `Record`, which has the same in snake case.
        """
        found = (await self._patiently("GET", "get", _Found, query={"id": id})).record
        if found is None:
            return None
        return {
            name: values.decode(bytes(raw)) if name == "args" else msgspec.json.decode(raw)
            for name, raw in found.items()
        }

    async def result(self, id: str, timeout: Duration | None = None) -> Any:
        """Do as `Scheduler.result`: JobFailedError, NotYetError, NotFoundError."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + duration_ms(timeout, "timeout") / 1000
        while True:
            left_ms = RESULT_WAIT_MS if end is None else min(max(int((end - loop.time()) * 1000), 0), RESULT_WAIT_MS)
            query = {"id": id, "waitMs": left_ms}
            wait_s = left_ms / 1000 + self._timeout_s
            found = await self._patiently("GET", "result", _Outcome, query=query, timeout_s=wait_s, until=end)
            state = found.state
            if state == "done" and found.result_damaged:
                raise StoreCorrupt(f"the result of job {id!r} was damaged in the store: restore a backup")
            if state == "done":
                return values.decode(bytes(found.result), "result")
            if state in ("dead", "cancelled", "expired"):
                data = values.decode(bytes(found.data), "data")
                raise job_failed(id, state, found.error, found.code, found.status, data)
            if end is not None and loop.time() >= end:
                raise NotYetError(f"job {id!r} is {state}: it has not ended in time", id=id, state=state)

    # ---- Inside ----------------------------------------------------------------------------------

    async def _hung_up(self, asked: asyncio.Future[_Jobs]) -> None:
        """End a claim. Jobs that the server answered with in this instant are given back."""
        try:
            await asyncio.sleep(0)  # an answer that has come, and is not read yet, would be lost
        finally:
            asked.cancel()
        await asyncio.wait([asked])
        if asked.cancelled() or asked.exception() is not None:
            return
        for job in asked.result().jobs:
            try:
                async with asyncio.timeout(GIVE_BACK_S):
                    await self.settle(job.id, job.lease, ok=False, error="not begun", charge=False, delay=0)
            except Exception as error:  # whatever it is, the lease runs out
                log.warning(
                    "job %s could not be given back, and is tried again when its lease ends: %s",
                    job.id,
                    described(error),
                )

    async def _schedule(self, parts: Mapping[str, Any], options: dict[str, Any]) -> Scheduled:
        spec = {**parts, "workflow": options.pop("workflow", None), "options": options}
        return await self._once("schedule", Scheduled, body_of(spec))

    async def _once(self, route: str, kind: type[T], said: Any) -> T:
        """Ask patiently, with a key under which the request has its effect once however often it is sent."""
        return await self._patiently("POST", route, kind, said, key=f"{self._random.getrandbits(128):032x}")

    async def _patiently(
        self, method: str, route: str, kind: type[T], said: Any = None, *, until: float | None = None, **how: Any
    ) -> T:
        """Ask again where that may help, for `patience_s`, and not beyond `until`."""
        loop = asyncio.get_running_loop()
        end, pauses = loop.time() + self._patience_s, Pauses(self._random)
        end = end if until is None else min(end, until)
        while True:
            try:
                return await self._call(method, self.name, route, kind, said, **how)
            except TocsinError as error:
                wait = max(pauses.next(), error.details.get("retry_after_s", 0))
                if not may_pass(error) or loop.time() + wait > end:
                    raise
            await asyncio.sleep(wait)


def _named(job: object, place: str) -> dict[str, Any]:
    try:
        return body_of(job)
    except InvalidInputError as error:
        raise InvalidInputError(f"{place}: {error.message}") from None


def _result(result: Any) -> msgspec.Raw:
    raw = values.encode(result, "result")
    if len(raw) > MAX_RESULT:
        raise PayloadTooLargeError(f"result: {len(raw)} bytes of JSON, the limit is {MAX_RESULT}", limit=MAX_RESULT)
    return msgspec.Raw(raw)
