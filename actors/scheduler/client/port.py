"""`SchedulerPort`: one scheduler as HTTP, the outbox and the handles of users reach it, wherever it is.

Takes and returns wire values: epoch ms, ms, JSON text, records. All but `checks` is a coroutine that waits for an
answer, and `msgspec.json` can encode arguments and answers and read them again by the annotations here, so an
implementation may send each call to the process that holds the store. Errors are TocsinErrors (`refusals.Refusal`
carries them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tocsin.actors.scheduler.client.job_checks import JobChecks
from tocsin.actors.scheduler.client.port_of_schedules import SchedulesPort as SchedulesPort
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.activity import Activity
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit_records import AuditPage, DeadGroups, Undone
from tocsin.actors.scheduler.model.feed_frames import FeedPage
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.group_records import GroupPage, GroupRecord
from tocsin.actors.scheduler.model.moving import ImportRow, TransferState
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.model.queue_settings import QueueSettings
from tocsin.actors.scheduler.model.rows import InstanceRow
from tocsin.actors.scheduler.transitions.kept_answers import Kept, KeptForm
from tocsin.dispatch.failure import Failure
from tocsin.dispatch.pulled import Claimed, Settlement, WorkerInfo, WorkerSnapshot
from tocsin.dispatch.refusals import Refusal


class Submitted(msgspec.Struct, frozen=True):
    """The answer to jobs that were submitted together: those accepted, in order, and by their places the others."""

    accepted: Sequence[records.Scheduled]
    refused: dict[int, Refusal] = {}


class JobsPort(Protocol):
    """Accepts checked jobs."""

    async def submit(self, job: NewJob) -> records.Scheduled:
        """Store one job."""
        ...

    async def submit_many(self, jobs: Sequence[NewJob]) -> Submitted:
        """Store jobs in one commit. StoreFull and its kin also for none: whether anything could be stored now."""
        ...

    async def submit_once(self, jobs: Sequence[NewJob], *, key: bytes, body: bytes, form: KeptForm) -> Kept:
        """Store jobs once for a request: `key` hashes who asks it, `body` what it holds. Its one answer, which is
        written in this form and kept for 24 hours."""
        ...

    async def first_answer(self, *, key: bytes, body: bytes) -> Kept | None:
        """Return the answer that such a request has had already, or None."""
        ...


class ChangesPort(Protocol):
    """Changes what one scheduler holds."""

    async def cancel(self, id: str) -> records.Cancelled:
        """Remove a pending, waiting or running job."""
        ...

    async def cancel_all(
        self, *, pool: str | None, label: str | None, path: str | None, all: bool, dry_run: bool
    ) -> records.Matched:
        """Cancel every job there is now that fits all filters."""
        ...

    async def reschedule(self, id: str, due: int) -> records.Rescheduled:
        """Move a pending or waiting job to an instant."""
        ...

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
        ...

    async def extend(self, id: str, lease: str, lease_ms: int) -> int:
        """Hold the attempt until `lease_ms` from now; that instant."""
        ...

    async def dead_retry(self, id: str) -> records.DeadRetried:
        """Make a dead job due now, with a fresh budget."""
        ...

    async def dead_cancel(self, id: str) -> bool:
        """Remove a dead job for good."""
        ...

    async def dead_retry_all(
        self,
        *,
        pool: str | None,
        reason: str | None,
        path: str | None,
        since: int | None,
        ids: Sequence[str] | None,
        all: bool,
        rate_per_second: int,
        dry_run: bool,
    ) -> records.Redrive:
        """Retry the dead letters parked before this call that fit all filters."""
        ...

    async def dead_cancel_all(
        self,
        *,
        pool: str | None,
        reason: str | None,
        path: str | None,
        since: int | None,
        ids: Sequence[str] | None,
        all: bool,
        dry_run: bool,
    ) -> records.Matched:
        """Cancel the dead letters parked before this call that fit all filters."""
        ...

    async def undo(self, action_id: str) -> Undone:
        """Undo a bulk action of the last ten minutes. ConflictError if it cannot be undone (any more)."""
        ...

    async def redrive_stop(self, redrive_id: str) -> bool:
        """Stop a bulk retry; what it has retried stays retried."""
        ...

    async def set_pool(self, name: str, settings: PoolSettings) -> records.Pool:
        """Set what is given of a pool: its cap and rate, whether it is paused, how its jobs share it."""
        ...

    async def set_queue(self, name: str, settings: QueueSettings) -> records.Queue:
        """Set what is given of a queue: whether jobs with different shard keys have turns."""
        ...

    async def delete_pool(self, name: str) -> bool:
        """Forget what was set of a pool. ConflictError while a job names it."""
        ...

    async def open_group(self, group: NewGroup) -> GroupRecord:
        """Make a group. The same again changes nothing; another of its name is a ConflictError."""
        ...

    async def seal_group(self, name: str) -> GroupRecord:
        """Let no more jobs join it. NotFoundError."""
        ...

    async def cancel_group(self, name: str) -> GroupRecord:
        """Begin to cancel its members. NotFoundError; ConflictError if it is complete."""
        ...

    async def free_slot(self, id: str) -> Freed:
        """End the lease of an accepted or unknown attempt now. ConflictError while an attempt runs."""
        ...

    async def set_instance(self, *, paused: bool | None, timeout_ms: int | None) -> records.InstanceState:
        """Stop or start all firing, or set the deadline of callbacks whose jobs have none (0: the host's again)."""
        ...

    async def remove(self) -> records.Removed:
        """Remove everything of this instance."""
        ...

    async def set_clock(self, at: int) -> records.ClockState:
        """Make the instance, which must be new, with a test clock that stands at this instant. ConflictError for one
        that is not new, but the same clock again is not refused."""
        ...

    async def advance_clock(self, *, to: int | None, by_ms: int | None) -> records.ClockState:
        """Begin to advance the test clock, to an instant or by so long. ConflictError while another advance goes on, or
        for an instance on the live clock."""
        ...

    async def freeze_clock(self) -> records.ClockState:
        """End an advance where the clock stands."""
        ...


class ReadsPort(Protocol):
    """Reads what one scheduler holds, as it is committed."""

    async def get(self, id: str) -> records.Record | None:
        """Return the job, dead ones included; None if there is none of that id."""
        ...

    async def list(
        self,
        *,
        cursor: str | None,
        limit: int,
        order: str,
        pool: str | None,
        state: str | None,
        label: str | None,
        queue: str | None,
        path: str | None,
    ) -> records.Page:
        """Return a page of live jobs by next attempt or by id."""
        ...

    async def dead(
        self,
        *,
        cursor: str | None,
        limit: int,
        pool: str | None,
        label: str | None,
        reason: str | None,
        since: int | None,
        path: str | None,
    ) -> records.Page:
        """Return a page of dead jobs, the newest parked last; `since` leaves out those parked before."""
        ...

    async def status(self) -> records.Status:
        """Count what this instance holds, exactly but for `due`."""
        ...

    async def clock(self, wait_s: float | None) -> records.ClockState | None:
        """Return how the test clock stands, once no advance goes on, or after so long (None: however long it takes).
        It may answer sooner, too, where the host stops. None: the live clock."""
        ...

    async def changes(self, *, since: str | None, wait_s: float | None) -> FeedPage:
        """Return the frames of the live feed behind a place, or wait for the next one, for at most so long (None:
        however long it takes). Without a place, and after a resync where that is unknown, they begin with a snapshot.
        HostClosedError where nobody may wait any more."""
        ...

    async def why(self, id: str) -> Sequence[records.Reason]:
        """Return every reason the job is not running now."""
        ...

    async def history(self, id: str) -> Sequence[records.Attempt]:
        """Return how its attempts ended, the oldest first."""
        ...

    async def pool(self, name: str) -> records.Pool:
        """Return a pool and its holders."""
        ...

    async def activity(self, minutes: int) -> Activity:
        """Return what the scheduler did in the last minutes, up to 60."""
        ...

    async def redrive(self, redrive_id: str) -> records.Redrive | None:
        """Return how far a bulk retry has come; None if there is none of that id."""
        ...

    async def group(self, name: str) -> GroupRecord | None:
        """Return a group; None if there is none of that name."""
        ...

    async def groups(self, *, cursor: str | None, limit: int) -> GroupPage:
        """Return a page of groups by name."""
        ...

    async def members(self, name: str, *, cursor: str | None, limit: int) -> records.Page:
        """Return a page of the members of a group that live or are dead, by id."""
        ...

    async def dead_groups(self) -> DeadGroups:
        """Return the dead letters by reason and path."""
        ...

    async def audit(
        self,
        *,
        cursor: str | None,
        limit: int,
        action: str | None,
        who: str | None,
        since: int | None,
    ) -> AuditPage:
        """Return a page of what operators did, the newest first."""
        ...


class QueuesPort(Protocol):
    """Serves workers of one scheduler."""

    async def claim(
        self,
        queue: str | Sequence[str],
        *,
        max: int,
        lease_ms: int,
        wait_ms: int,
        worker: WorkerInfo | None,
        exclude: Sequence[str],
    ) -> Sequence[Claimed]:
        """Lease up to `max` due jobs; wait for the first one for at most `wait_ms`, then there are none. Cancelled, it
        gives back what it was about to get."""
        ...

    async def give_back(self, leases: Sequence[tuple[str, str]]) -> None:
        """Requeue, uncharged, what was claimed (id, lease) and did not reach its worker, which has hung up."""
        ...

    async def queues(self) -> Sequence[records.Queue]:
        """Return what each queue holds, and how many claims wait for it."""
        ...

    async def pending(self, prefix: str) -> records.Pending:
        """Tell whether any live job's function path or workflow starts with `prefix`."""
        ...

    async def outcome(self, id: str, wait_s: float | None) -> records.Outcome:
        """Return how a job ended, or how it stands after so long (None: wait until it has ended). It may answer how the
        job stands sooner, too, where the host stops."""
        ...

    async def announce(self, snapshot: WorkerSnapshot) -> None:
        """Note how a worker is, and that it was heard now. InvalidInputError names what cannot be so."""
        ...

    async def workers(self, *, cursor: str | None, limit: int) -> records.WorkerPage:
        """Return a page of the workers that were heard of within five minutes, by id."""
        ...


class TransferPort(Protocol):
    """One scheduler comes out of a file, or leaves for another place."""

    async def begin_import(self, token: str) -> None:
        """Make the instance, which must be new; nothing of it runs. ConflictError if it exists."""
        ...

    async def import_rows(self, token: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Store rows. ConflictError if the import of this token has ended."""
        ...

    async def end_import(self, token: str, instance: InstanceRow, origin: ImportRow, epoch: int, jobs: int) -> None:
        """Check the rows, and let the instance run. InvalidInputError if they are not sound."""
        ...

    async def abandon_import(self, token: str) -> None:
        """Remove what has come."""
        ...

    async def state(self) -> TransferState:
        """Return the part that the instance has in an import or a move."""
        ...

    async def seal(self, move: str, to: str, closed: bool) -> TransferState:
        """Take no new work and start nothing; `closed`: change nothing any more."""
        ...

    async def unseal(self, move: str) -> bool:
        """Go on as before. False if the instance was not about to leave by this move."""
        ...


class SchedulerPort(Protocol):
    """One scheduler. Each method of its parts is one operation, and checks its arguments. `checks` is of the caller's
    process: it makes the checked jobs and definitions that the others take."""

    @property
    def name(self) -> str: ...
    @property
    def checks(self) -> JobChecks: ...
    @property
    def jobs(self) -> JobsPort: ...
    @property
    def changes(self) -> ChangesPort: ...
    @property
    def reads(self) -> ReadsPort: ...
    @property
    def queues(self) -> QueuesPort: ...
    @property
    def schedules(self) -> SchedulesPort: ...

    def asked_by(self, who: AskedBy) -> SchedulerPort:
        """Return the same scheduler, whose audit log names `who` for what is changed through it."""
        ...
