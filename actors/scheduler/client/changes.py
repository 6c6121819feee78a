"""Changes of what is there: jobs cancelled, moved and settled; dead letters; pools; the whole instance."""

from __future__ import annotations

import logging

import msgspec

from tocsin.actors.scheduler.client.bulk import LocalBulk
from tocsin.actors.scheduler.client.instance import Instance
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.asked_by import PYTHON, AskedBy
from tocsin.actors.scheduler.model.clock import ClockRow, state_of
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.group_records import GroupRecord, record_of
from tocsin.actors.scheduler.model.groups import GroupRow
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.model.queue_settings import QueueSettings
from tocsin.actors.scheduler.queries import groups, instances, queue_stats
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.transitions import events
from tocsin.actors.scheduler.transitions.job import Completion
from tocsin.actors.scheduler.transitions.pools import Erased
from tocsin.dispatch.blanking import without_secrets
from tocsin.dispatch.failure import Failure, checked
from tocsin.dispatch.pulled import MAX_RESULT, Settlement
from tocsin.dispatch.words import word
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError, StaleLeaseError, TocsinError

log = logging.getLogger("tocsin.scheduler")

ERROR_MAX = 2_000


class LocalChanges(LocalBulk):
    """Changes what one scheduler holds."""

    def __init__(self, instance: Instance, who: AskedBy = PYTHON) -> None:
        super().__init__(instance, who)
        self._person = who if who.person else None

    # ---- Jobs ------------------------------------------------------------------------------------

    async def cancel(self, id: str) -> records.Cancelled:
        """Remove a pending, waiting or running job."""
        return await self._instance.change(
            events.Cancel(arguments.schedule_id(id), self._person), records.Cancelled(False, False)
        )

    async def reschedule(self, id: str, due: int) -> records.Rescheduled:
        """Move a pending or waiting job to an instant. InvalidInputError if the job expires before that."""
        moved = await self._instance.change(
            events.Reschedule(arguments.schedule_id(id), due, self._person), records.Rescheduled(False)
        )
        if isinstance(moved, int):
            raise InvalidInputError(
                f"job {id!r} expires at {moved} ({word('expires_at')}), so it would never run at {due}: "
                "choose an earlier instant, or cancel the job and schedule another"
            )
        return moved

    async def complete(
        self,
        id: str,
        lease: str,
        *,
        ok: bool,
        error: Failure | str | None,
        retryable: bool,
        delay_ms: int | None,
        charge: bool,
        result: bytes | None,
    ) -> Settlement:
        """Settle an attempt; `result` is JSON text. StaleLeaseError if its lease is not alive."""
        if delay_ms is not None:
            name = word("delay_ms")
            self._instance.after(arguments.integer(delay_ms, name, *arguments.DELAY_MS), name)
        if result is not None:
            arguments.raw_args(result, MAX_RESULT, "result")
        said = Completion(
            arguments.schedule_id(id), arguments.lease_token(lease), ok, None if error is None else _told(error),
            retryable, delay_ms, result, charge,
        )  # fmt: skip
        try:
            answer = await self._instance.service.inflight(self._instance.name).completions.settle(said)
        except NotFoundError:
            raise _stale(id) from None
        if isinstance(answer, StaleLeaseError):
            raise answer
        return answer

    async def extend(self, id: str, lease: str, lease_ms: int) -> int:
        """Hold the attempt until `lease_ms` from now; that instant."""
        length = arguments.integer(lease_ms, word("lease_ms"), *arguments.LEASE_MS)
        job_id, token = arguments.schedule_id(id), arguments.lease_token(lease)
        try:
            answer = await self._instance.call(events.Extend(job_id, token, length), create=False)
        except NotFoundError:
            raise _stale(id) from None
        if isinstance(answer, StaleLeaseError):
            raise answer
        return answer

    # ---- Dead letters ----------------------------------------------------------------------------

    async def dead_retry(self, id: str) -> records.DeadRetried:
        """Make a dead job due now, with a fresh budget."""
        return await self._instance.change(
            events.RetryDead(arguments.schedule_id(id), self._who), records.DeadRetried(False)
        )

    async def dead_cancel(self, id: str) -> bool:
        """Remove a dead job for good."""
        return await self._instance.change(events.CancelDead(arguments.schedule_id(id), self._who), False)

    async def redrive_stop(self, redrive_id: str) -> bool:
        """Stop a bulk retry; what it has retried stays retried."""
        return await self._instance.change(events.StopRedrive(arguments.schedule_id(redrive_id), self._who), False)

    # ---- Pools and the instance ------------------------------------------------------------------

    async def set_pool(self, name: str, settings: PoolSettings) -> records.Pool:
        """Set what is given of a pool."""
        here = self._instance
        created = await here.call(events.SetPool(arguments.plain_name(name, "name"), settings, self._who))
        return msgspec.structs.replace(await query.pool(here.view(), name, here.now_ms()), created=created)

    async def set_queue(self, name: str, settings: QueueSettings) -> records.Queue:
        """Set what is given of a queue."""
        here = self._instance
        await here.call(events.SetQueue(arguments.plain_name(name, "queue"), settings, self._who))
        claims = here.service.inflight(here.name).waiting_claims
        found = await queue_stats.counts(here.view(), here.now_ms(), claims.waiting_for)
        return next((one for one in found if one.name == name), records.Queue(name, 0, 0, 0, claims.waiting_for(name)))

    async def delete_pool(self, name: str) -> bool:
        """Forget what was set of a pool. ConflictError while a job names it."""
        deleted = await self._instance.change(events.DeletePool(arguments.plain_name(name, "name"), self._who), False)
        if isinstance(deleted, ConflictError):
            raise deleted
        return deleted

    async def open_group(self, group: NewGroup) -> GroupRecord:
        """Make a group. The same again changes nothing; another of its name is a ConflictError."""
        self._instance.store()
        made: GroupRow | ConflictError = await self._instance.call(events.OpenGroup(group))
        return await self._of_group(group.name, made)

    async def seal_group(self, name: str) -> GroupRecord:
        """Let no more jobs join it. NotFoundError."""
        name = arguments.plain_name(name, "name")
        nothing: GroupRow | NotFoundError | ConflictError = NotFoundError(f"there is no group {name!r}")
        return await self._of_group(name, await self._instance.change(events.SealGroup(name), nothing))

    async def cancel_group(self, name: str) -> GroupRecord:
        """Begin to cancel its members. NotFoundError; ConflictError if it is complete."""
        name = arguments.plain_name(name, "name")
        nothing: GroupRow | NotFoundError | ConflictError = NotFoundError(f"there is no group {name!r}")
        return await self._of_group(name, await self._instance.change(events.StopGroup(name, self._who), nothing))

    async def _of_group(self, name: str, answered: GroupRow | NotFoundError | ConflictError) -> GroupRecord:
        if not isinstance(answered, GroupRow):
            raise answered
        return await groups.get(self._instance.view(), name) or record_of(name, answered, None)

    async def free_slot(self, id: str) -> Freed:
        """End the lease of an accepted or unknown attempt now. ConflictError while an attempt runs."""
        freed = await self._instance.change(events.FreeSlot(arguments.schedule_id(id), self._who), Freed(False))
        if isinstance(freed, ConflictError):
            raise freed
        return freed

    async def set_instance(self, *, paused: bool | None, timeout_ms: int | None) -> records.InstanceState:
        """Stop or start all firing, or set the deadline of callbacks whose jobs have none (0: the host's again)."""
        if paused is None and timeout_ms is None:
            raise InvalidInputError(f"give paused, {word('timeout_ms')} or both")
        if paused is not None and not isinstance(paused, bool):
            raise InvalidInputError(f"paused must be true or false, not {paused!r}")
        if timeout_ms is not None and (timeout_ms is False or timeout_ms != 0):
            arguments.integer(timeout_ms, word("timeout_ms"), *arguments.TIMEOUT_MS)
        here = self._instance
        return instances.state(here.name, await here.call(events.SetInstance(paused, timeout_ms, self._who)))

    async def remove(self) -> records.Removed:
        """Remove everything of this instance, a page at a time."""
        jobs = rows = 0
        while True:
            erased = await self._instance.change(events.ErasePage(), Erased(0, 0, False))
            jobs, rows = jobs + erased.jobs, rows + erased.rows
            if not erased.more:
                if rows:  # its audit log has gone with it
                    log.warning(
                        "instance %r was removed: %d jobs, %d rows; %s", self._instance.name, jobs, rows, self._who
                    )
                return records.Removed(jobs, rows)

    # ---- The test clock --------------------------------------------------------------------------

    async def set_clock(self, at: int) -> records.ClockState:
        """Make the instance with a test clock. Its name is noted first, so that every host knows the clock."""
        here, instant = self._instance, arguments.instant_ms(at, "at")
        await here.service.note_clock(here.name)
        return _clock(await here.call(events.SetClock(instant, self._who)))

    async def advance_clock(self, *, to: int | None, by_ms: int | None) -> records.ClockState:
        """Begin to advance the test clock."""
        if (to is None) == (by_ms is None):
            raise InvalidInputError(f"give exactly one of to and {word('by_ms')}")
        until = None if to is None else arguments.instant_ms(to, "to")
        by = 0 if by_ms is None else arguments.integer(by_ms, word("by_ms"), *arguments.DELAY_MS)
        return _clock(await self._instance.call(events.AdvanceClock(until, by, self._who), create=False))

    async def freeze_clock(self) -> records.ClockState:
        """End an advance where the clock stands."""
        return _clock(await self._instance.call(events.FreezeClock(self._who), create=False))


def _clock(answer: ClockRow | ConflictError | InvalidInputError) -> records.ClockState:
    if isinstance(answer, TocsinError):
        raise answer
    return state_of(answer)


def _stale(job_id: str) -> StaleLeaseError:
    return StaleLeaseError(f"no lease of job {job_id!r} is alive", id=job_id)


def _told(error: Failure | str) -> Failure:
    """Keep the first characters, for people, without secrets; reasons have names of files, which may be no Unicode."""
    failure = Failure(error) if isinstance(error, str) else checked(error)
    kept = without_secrets(failure.message[:ERROR_MAX]).encode("utf-8", "backslashreplace").decode()
    return msgspec.structs.replace(failure, message=kept)
