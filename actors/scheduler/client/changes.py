"""Changing jobs that are there: cancel, move, complete, extend; and dead letters."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from tocsin.actors.scheduler.client.handle import Handle, lease_token, stale
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.reasons import DEAD_REASONS
from tocsin.actors.scheduler.model.records import Cancelled, DeadRetried, Matched, Page, Redrive, Rescheduled
from tocsin.actors.scheduler.model.rows import RedriveRow, redrive_key
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries import listing
from tocsin.actors.scheduler.queries.candidates import Filter
from tocsin.actors.scheduler.transitions import redrive as redrives
from tocsin.actors.scheduler.transitions.events import (
    Cancel,
    CancelDead,
    Extend,
    Reschedule,
    RetryDead,
    StartRedrive,
    StopRedrive,
)
from tocsin.actors.scheduler.transitions.job import Completion
from tocsin.dispatch.instants import show
from tocsin.dispatch.pulled import MAX_RESULT, Settlement, check_end
from tocsin.dispatch.words import word
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError, StaleLeaseError

ERROR_MAX = 2_000
CANCEL_PAGE = 500


class Changing(Handle):
    """The part of a handle that changes jobs."""

    async def cancel(self, id: str) -> Cancelled:
        """Remove a pending, waiting or running job. Its id is free at once; a running attempt is not stopped,
        but whatever it answers changes nothing. A dead job is not cancelled by this: see `dead_cancel`."""
        return await self._change(Cancel(arguments.schedule_id(id)), Cancelled(False, False))

    async def cancel_all(
        self,
        *,
        pool: str | None = None,
        label: str | None = None,
        path: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> Matched:
        """Cancel every job there is now that fits all filters (`all=True`: every job), a page at a time."""
        if all == any(one is not None for one in (pool, label, path)):
            raise InvalidInputError(f"give pool, label or {word('function_path')}, or {word('all')} and none of them")
        wanted = Filter(self._name(pool, "pool"), None, self._name(label, "label"), _path_of(path))
        await self._fill_labels(wanted)
        until, cursor, matched, cancelled = self._now(), None, 0, 0
        while True:
            async with self._service.paging:
                page = await listing.list_by_id(self._view(), self.name, until, CANCEL_PAGE, cursor, wanted)
            found = [(one.id, one.incarnation) for one in page.records if one.enqueued_at <= until]
            matched += len(found)
            if not dry_run:
                cancelled += await self._cancel_many(found)
            if not page.truncated:
                return Matched(matched, cancelled)
            cursor = page.cursor

    async def reschedule(
        self,
        id: str,
        *,
        at: datetime | int | None = None,
        after: timedelta | float | str | None = None,
    ) -> Rescheduled:
        """Move a pending or waiting job to an instant, or to a delay from now. A running one is not moved."""
        if (at is None) == (after is None):
            raise InvalidInputError("give exactly one of at and after")
        if at is not None:
            due = arguments.instant_ms(at, "at")
        else:
            due = self._after(arguments.duration_ms(after, "after"), "after")
        return await self._change(Reschedule(arguments.schedule_id(id), due), Rescheduled(False))

    async def rescheduled(self, id: str, scheduled_for: Any, delay_ms: Any) -> Rescheduled:
        """`reschedule` with wire values; for the HTTP face."""
        if (scheduled_for is None) == (delay_ms is None):
            raise InvalidInputError("give exactly one of scheduledFor and delayMs")
        if scheduled_for is not None:
            due = arguments.epoch_ms(scheduled_for, "scheduledFor")
        else:
            due = self._after(arguments.integer(delay_ms, "delayMs", *arguments.DELAY_MS), "delayMs")
        return await self._change(Reschedule(arguments.schedule_id(id), due), Rescheduled(False))

    async def complete(
        self,
        id: str,
        lease: str,
        *,
        ok: bool = True,
        error: str | None = None,
        retryable: bool = True,
        delay: timedelta | float | str | None = None,
        charge: bool = True,
        result: Any = None,
    ) -> bool:
        """Settle an attempt that was claimed from a queue, or whose callback was answered `tocsin-accepted: 1`.

        `ok=False` climbs the retry ladder (or waits `delay`); with `retryable=False` the job is dead; with
        `charge=False` it is no failure, until the job is a day past due: these and `error` go with `ok=False` only.
        The same lease again within ten minutes answers as at first; a lease that is not alive raises StaleLeaseError.
        `result` is JSON of at most 64 KiB, for what follows in a chain and for `result`; up to 2 KiB are kept in the
        history.
        """
        settled = await self.settle(
            id, lease, ok=ok, error=error, retryable=retryable, delay=delay, charge=charge, result=result
        )
        return settled.settled

    async def settle(
        self,
        id: str,
        lease: str,
        *,
        ok: bool = True,
        error: str | None = None,
        retryable: bool = True,
        delay: timedelta | float | str | None = None,
        charge: bool = True,
        result: Any = None,
    ) -> Settlement:
        """`complete`, and what becomes of the job: done, retrying and when, dead and why, or cancelled meanwhile."""
        check_end(ok=ok, error=error, retryable=retryable, delay=delay, charge=charge, result=result)
        delay_ms = None if delay is None else arguments.duration_ms(delay, "delay")
        kept = None if result is None else arguments.encode_args(result, MAX_RESULT, "result")
        return await self.completed(
            id, lease, ok=ok, error=error, retryable=retryable, delay_ms=delay_ms, charge=charge, result=kept
        )

    async def completed(
        self,
        id: str,
        lease: str,
        *,
        ok: bool,
        error: str | None,
        retryable: bool,
        delay_ms: int | None,
        charge: bool,
        result: bytes | None,
    ) -> Settlement:
        """`settle` with wire values; for the HTTP face."""
        if delay_ms is not None:
            name = word("delay_ms")
            self._after(arguments.integer(delay_ms, name, *arguments.DELAY_MS), name)
        if result is not None:
            arguments.raw_args(result, MAX_RESULT, "result")
        said = Completion(
            arguments.schedule_id(id), lease_token(lease), ok, None if error is None else _told(error),
            retryable, delay_ms, result, charge,
        )  # fmt: skip
        try:
            answer = await self._service.inflight(self.name).completions.say(said)
        except NotFoundError:
            raise stale(id) from None
        if isinstance(answer, StaleLeaseError):
            raise answer
        return answer

    async def extend(self, id: str, lease: str, lease_ms: int) -> int:
        """Hold the attempt until `lease_ms` (1 s to 1 h) from now; that instant, epoch ms.

        StaleLeaseError if the lease is not alive, also when the job was cancelled: then stop working on it.
        """
        length = arguments.integer(lease_ms, word("lease_ms"), *arguments.LEASE_MS)
        job_id, token = arguments.schedule_id(id), lease_token(lease)
        try:
            answer = await self._call(Extend(job_id, token, length), create=False)
        except NotFoundError:
            raise stale(id) from None
        if isinstance(answer, StaleLeaseError):
            raise answer
        return answer

    # ---- Dead letters ----------------------------------------------------------------------------

    async def dead(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        pool: str | None = None,
        label: str | None = None,
        reason: str | None = None,
        since: datetime | int | None = None,
    ) -> Page:
        """A page of dead jobs, the newest parked last; `since` leaves out those parked before."""
        parked_since = 0 if since is None else arguments.instant_ms(since, "since")
        wanted = Filter(self._name(pool, "pool"), label=self._name(label, "label"), reason=self._name(reason, "reason"))
        await self._fill_labels(wanted)
        async with self._service.paging:
            return await listing.list_dead(
                self._view(), self.name, self._now(), self._limit(limit), cursor, wanted, parked_since
            )

    async def dead_retry(self, id: str) -> DeadRetried:
        """Make a dead job due now, with a fresh budget; it keeps everything else but `expiresAt`."""
        return await self._change(RetryDead(arguments.schedule_id(id)), DeadRetried(False))

    async def dead_cancel(self, id: str) -> bool:
        """Remove a dead job for good; False if there is none of that id."""
        return await self._change(CancelDead(arguments.schedule_id(id)), False)

    async def dead_retry_all(
        self,
        *,
        pool: str | None = None,
        reason: str | None = None,
        path: str | None = None,
        since: datetime | int | None = None,
        all: bool = False,
        rate_per_second: int = 10,
        dry_run: bool = False,
    ) -> Redrive:
        """Retry the dead letters parked before this call that fit all filters, so many a second, as a durable job.

        Letters that another such job has already are not matched: ConflictError with its `redriveId` if it has all of
        them. While another one retries jobs of the same pool, this one waits for its end (`waits_for`).
        """
        if all == any(one is not None for one in (pool, reason, path, since)):
            raise InvalidInputError(
                f"give pool, reason, {word('function_path')} or since, or {word('all')} and none of them"
            )
        if reason is not None and reason not in DEAD_REASONS:
            raise InvalidInputError(f"reason must be one of {', '.join(DEAD_REASONS)}, not {show(reason)}")
        rate = arguments.integer(rate_per_second, word("rate_per_second"), *arguments.RATE_PER_SECOND)
        parked_since = 0 if since is None else arguments.instant_ms(since, "since")
        redrive_id = arguments.mint_id(self._now(), self._service.random.getrandbits(80))
        row = RedriveRow(self._now(), rate, 0, self._name(pool, "pool"), reason, _path_of(path), parked_since)
        while True:
            others = await redrives.running(self._view())
            counted = await redrives.count(self._view(), row, others)
            if counted.under_way and not counted.matched:
                raise ConflictError(
                    f"bulk retry {counted.by!r} goes on, and has every dead job that matches: look how far it is, or "
                    "stop it before you start another",
                    redriveId=counted.by,
                )
            row = msgspec.structs.replace(row, matched=counted.matched, turn=redrives.next_turn(others))
            begins = bool(counted.matched) and not dry_run
            if not begins or await self._call(StartRedrive(redrive_id, row, tuple(others))):
                waits_for = redrives.waits_for(redrive_id, row, others) if begins else None
                return Redrive(redrive_id, counted.matched, 0, begins, waits_for=waits_for)

    async def redrive(self, redrive_id: str) -> Redrive | None:
        """How far a `dead_retry_all` has come; None if there is none of that id."""
        key = redrive_key(arguments.schedule_id(redrive_id))
        row = query.read(RedriveRow, key, (await self._view().get([key])).get(key))
        if row is None:
            return None
        waits = redrives.waits_for(redrive_id, row, await redrives.running(self._view())) if row.next_at else None
        return Redrive(redrive_id, row.matched, row.retried, bool(row.next_at), row.stopped, waits)

    async def redrive_stop(self, redrive_id: str) -> bool:
        """Stop it; what it has retried stays retried. False if there is none, or it has ended."""
        return await self._change(StopRedrive(arguments.schedule_id(redrive_id)), False)


def _path_of(filter: str | None) -> str | None:
    return None if filter is None else arguments.whole_text(filter, word("function_path"))


def _told(error: str) -> str:
    """For people, so whatever a text holds: reasons have names of files in them, which may be no Unicode."""
    return error[:ERROR_MAX].encode("utf-8", "backslashreplace").decode()
