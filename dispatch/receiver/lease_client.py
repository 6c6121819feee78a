"""The client for accepted work: it completes the work, or holds its lease longer. The lease is all it needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import httpx
import msgspec

from tocsin.dispatch.certificates import CaFile
from tocsin.dispatch.clock import DispatchClock, SystemDispatchClock
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.pulled import check_end
from tocsin.dispatch.receiver import answers
from tocsin.dispatch.receiver.dedup import Dedup, NoDedup, Record
from tocsin.dispatch.receiver.outcomes import HandlerError, check_lease_ms, error_in_json
from tocsin.dispatch.receiver.received import Leased, Received
from tocsin.dispatch.refusals import refusal
from tocsin.dispatch.server_client import AGAIN, DEFAULT_URL, ServerClient, json_object, retry_after_s
from tocsin.dispatch.transport import Answer
from tocsin.dispatch.values import encode
from tocsin.errors import InvalidInputError, TocsinError, UnreachableError

log = logging.getLogger("tocsin.receiver")

TIMEOUT_S: Final = 10.0
PATIENCE_S: Final = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0

T = TypeVar("T")


class _Settled(msgspec.Struct):
    settled: bool


class _Held(msgspec.Struct, rename="camel"):
    lease_until: int


class LeaseClient(ServerClient):
    """Settles and extends what handlers accepted. Use it in one event loop, and close it.

    `base_url` is the server's (or where a host's app is mounted); `transport`, an httpx one, reaches an app in this
    process (`httpx.ASGITransport(host.asgi(...))`). Give it the receiver's `dedup`, so that completed work is done
    there too. Each call tries again for `patience_s` where the network or the server fails for a moment; then it raises
    UnreachableError, and may be made again. No token is needed. `ca_file` names a
    PEM file of authorities that are trusted beside the system's. Proxies of the environment are not used.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        dedup: Dedup | None = None,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: DispatchClock | None = None,
        ca_file: CaFile | None = None,
    ) -> None:
        super().__init__(base_url, token=token, timeout_s=timeout_s, transport=transport, ca_file=ca_file)
        self._dedup: Dedup = NoDedup() if dedup is None else dedup
        self._done = Record(self._dedup)
        self._patience_s, self._clock = patience_s, clock or SystemDispatchClock()

    async def complete(
        self,
        job: Received | Leased,
        *,
        ok: bool = True,
        error: str | HandlerError | None = None,
        retryable: bool = True,
        delay: Duration | None = None,
        result: Any = None,
    ) -> bool:
        """Settle the attempt: done, or with `ok=False` failed with `error`, to be retried (after `delay`, if given).

        `error` is words, or a HandlerError with a code for programs. `retryable=False` makes a failed job dead.
        `result` is JSON of at most 64 KiB, for what follows in a chain and for `jobs.result`; 2 KiB stay in the
        history. True when it is settled. StaleLeaseError: the lease ended or the job was cancelled, and nothing was
        changed there; what was done here is still on record, so another attempt is answered as done, with the result,
        without being run. Also UnreachableError, InvalidInputError.
        """
        check_end(ok=ok, error=error, retryable=retryable, delay=delay, charge=True, result=result)
        said: dict[str, Any] = {"id": job.id, "lease": job.lease, "ok": ok}
        if error is not None:
            said["error"] = error_in_json(error)
        if not ok:
            said["retryable"] = retryable
        if delay is not None:
            said["delayMs"] = duration_ms(delay, "delay")
        came_to = None if result is None else encode(result, "result")
        if came_to is not None:
            said["result"] = msgspec.Raw(came_to)
        # First here, then there: a crash in between repeats a callback, which is answered from what is on record.
        await self._record(job, self._ended(job, answers.done(came_to) if ok else None))
        return (await self._post(job, "complete", said, _Settled)).settled

    async def extend(self, job: Received | Leased, lease_ms: int) -> int:
        """Hold the lease until `lease_ms` (1 s to 1 h) from now. Return that instant, ms since the epoch.

        StaleLeaseError: the lease ended or the job was cancelled, so stop working on it: another attempt may begin.
        """
        if lease_ms is None:
            raise InvalidInputError("lease_ms is missing")
        check_lease_ms(lease_ms, "lease_ms")
        said = {"id": job.id, "lease": job.lease, "leaseMs": lease_ms}
        until = (await self._post(job, "extend", said, _Held)).lease_until
        now = self._clock.now_ms()
        # By this machine's clock: the dedup store lives by it.
        held = self._dedup.hold(job.webhook_id, job.lease, until_ms=now + lease_ms, now_ms=now)
        await self._record(job, held)
        return until

    # ---- Inside ----------------------------------------------------------------------------------

    def _ended(self, job: Received | Leased, done: Answer | None) -> Awaitable[bool]:
        now = self._clock.now_ms()
        if done is None:
            return self._dedup.release(job.webhook_id, job.lease, now_ms=now)
        return self._done.finish(job.webhook_id, job.lease, done, now_ms=now)

    async def _record(self, job: Received | Leased, change: Awaitable[bool]) -> None:
        try:
            await change
        except Exception as error:  # any store's; the scheduler must be told all the same
            log.error("job %s: its claim could not be changed, and lapses later", job.webhook_id, exc_info=error)

    async def _post(self, job: Received | Leased, operation: str, said: dict[str, Any], kind: type[T]) -> T:
        """Return the answer as a `kind`; tried again while that may help."""
        content = msgspec.json.encode(said)
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self._patience_s, FIRST_PAUSE_S
        while True:
            wait = pause
            failure: TocsinError
            try:
                answer = await self._post_directly(job.instance, operation, content)
            except UnreachableError as error:
                failure = error
            else:
                if answer.status not in AGAIN:
                    return self._read(answer, kind)
                failure = refusal(answer.status, json_object(answer), self._base)
                wait = max(wait, retry_after_s(answer))
            if loop.time() + wait > end:
                raise failure
            await asyncio.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE_S)
