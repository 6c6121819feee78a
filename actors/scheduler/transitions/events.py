"""The events of a scheduler that concern jobs, pools and its instance.

Objects that live in this host only, such as completions that wait, stay there: their events name them, or say that
there are some. `by` says who asks for an action that the audit log notes; None: it is not noted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import Act
from tocsin.actors.scheduler.model.clock import ClockRow
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.groups import GroupRow
from tocsin.actors.scheduler.model.moving import ImportRow
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.model.queue_settings import QueueSettings
from tocsin.actors.scheduler.model.records import Cancelled, DeadRetried, Rescheduled
from tocsin.actors.scheduler.model.rows import InstanceRow, RedriveRow
from tocsin.actors.scheduler.transitions.kept_answers import Kept
from tocsin.actors.scheduler.transitions.pools import Erased
from tocsin.actors.scheduler.transitions.submit import Answer
from tocsin.actors.scheduler.transitions.undo import Undoing
from tocsin.dispatch.pulled import Settlement
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError, StaleLeaseError, TocsinError


class Submit(Event[list[Answer]], frozen=True):
    jobs: Sequence[NewJob]


class SubmitOnce(Event[Kept | TocsinError], frozen=True):
    """`key` hashes identity, route and Idempotency-Key, `body` the request. The renderer of this number writes the
    answer."""

    jobs: Sequence[NewJob]
    key: bytes
    body: bytes
    renderer: int


class Cancel(Event[Cancelled], frozen=True):
    job_id: str
    by: AskedBy | None = None


class CancelMany(Event[tuple[int, int]], frozen=True):
    """Cancel jobs of these ids and incarnations. Answered with how many were cancelled, and how many are left."""

    jobs: Sequence[tuple[str, str]]
    act: Act | None = None


class DiscardMany(Event[tuple[int, int]], frozen=True):
    """Cancel dead letters of these ids, parked at these instants. Answered with how many were cancelled, and how many
    are left."""

    letters: Sequence[tuple[str, int]]
    act: Act | None = None


class StartUndo(Event[Undoing | ConflictError | NotFoundError], frozen=True):
    undo_id: str
    action_id: str
    by: AskedBy


class UndoPage(Event[Undoing | None], frozen=True):
    """Go on with an undo. Answered with None if there is none of that id."""

    undo_id: str


class Reschedule(Event[Rescheduled | int], frozen=True):
    """Answered with the instant of its expiry, epoch ms, if the job would never run at `due`."""

    job_id: str
    due: int
    by: AskedBy | None = None


class RetryDead(Event[DeadRetried], frozen=True):
    job_id: str
    by: AskedBy | None = None


class CancelDead(Event[bool], frozen=True):
    job_id: str
    by: AskedBy | None = None


class StartRedrive(Event[bool], frozen=True):
    """`known`: the ids of the redrives that were counted with. Answered with whether it began."""

    redrive_id: str
    row: RedriveRow
    known: Sequence[str]
    by: AskedBy | None = None


class StopRedrive(Event[bool], frozen=True):
    redrive_id: str
    by: AskedBy | None = None


class SetPool(Event[bool], frozen=True):
    """Set a pool. Answered with whether the pool was unknown until now."""

    name: str
    settings: PoolSettings
    by: AskedBy | None = None


class SetQueue(Event[bool], frozen=True):
    """Set a queue. Answered with whether that changed anything."""

    name: str
    settings: QueueSettings
    by: AskedBy | None = None


class DeletePool(Event[bool | ConflictError], frozen=True):
    name: str
    by: AskedBy | None = None


class FreeSlot(Event[Freed | ConflictError], frozen=True):
    """End the lease of an attempt whose callback is over."""

    job_id: str
    by: AskedBy


class OpenGroup(Event[GroupRow | ConflictError], frozen=True):
    """Make a group, or find it made as it is asked for."""

    group: NewGroup


class SealGroup(Event[GroupRow | NotFoundError | ConflictError], frozen=True):
    name: str


class StopGroup(Event[GroupRow | NotFoundError | ConflictError], frozen=True):
    """Begin to cancel the members of a group."""

    name: str
    by: AskedBy | None = None


class SetInstance(Event[InstanceRow], frozen=True):
    paused: bool | None
    timeout_ms: int | None
    by: AskedBy | None = None


class SetClock(Event[ClockRow | ConflictError | InvalidInputError], frozen=True):
    """Give a new instance a test clock that stands at this instant."""

    at: int
    by: AskedBy | None = None


class AdvanceClock(Event[ClockRow | ConflictError | InvalidInputError], frozen=True):
    """Begin to advance the test clock to an instant, or if that is None by so long."""

    to: int | None
    by_ms: int
    by: AskedBy | None = None


class FreezeClock(Event[ClockRow | ConflictError | InvalidInputError], frozen=True):
    """End an advance where the clock stands."""

    by: AskedBy | None = None


class ErasePage(Event[Erased], frozen=True):
    """Remove part of everything: begin, or go on with what a crash interrupted."""


class BeginImport(Event[ConflictError | None], frozen=True):
    """Let rows of a file come into this instance, which must be new."""

    token: str


class ImportRows(Event[ConflictError | None], frozen=True):
    """Store some rows of the import of this token."""

    token: str
    rows: Sequence[tuple[bytes, bytes]]


class EndImport(Event[ConflictError | None], frozen=True):
    """Let the instance run: all of its rows are here, and sound. `epoch`: of the instance that was exported."""

    token: str
    instance: InstanceRow
    origin: ImportRow
    epoch: int
    by: AskedBy | None = None
    jobs: int = 0
    """How many came, live and dead ones."""


class Seal(Event[ConflictError | None], frozen=True):
    """Begin to leave for another place: take no new work and start nothing. `closed`: nothing changes any more."""

    move: str
    to: str
    closed: bool
    by: AskedBy | None = None


class Unseal(Event[bool], frozen=True):
    """Stay after all. Answered with whether the instance was about to leave by this move."""

    move: str
    by: AskedBy | None = None


class Complete(Event[Sequence[Settlement | StaleLeaseError]], frozen=True):
    """Settle the attempts of which this batch of completions tells. Refusals are answered, not raised: a raised one
    ends the activation, and anybody may send a wrong lease."""

    batch: int


class Extend(Event[int | StaleLeaseError], frozen=True):
    job_id: str
    lease: str
    lease_ms: int


class GiveBack(Event[Sequence[str]], frozen=True):
    """Requeue jobs that a worker had claimed and never got. Answered with those that are left for another turn."""

    leases: Sequence[str]


class SettleFinished(Event[None], frozen=True):
    """Settle the attempts that have ended in the lanes."""


class CountPaths(Event[bool], frozen=True):
    """Write counts by path. Answered with whether some are still to be written."""


class ClaimMore(Event[None], frozen=True):
    """Claim: a permit is free, or a worker waits for a job."""


OrdinaryEvent = (
    ClaimMore
    | SettleFinished
    | Submit
    | SubmitOnce
    | Complete
    | Extend
    | GiveBack
    | Cancel
    | CancelMany
    | DiscardMany
    | StartUndo
    | UndoPage
    | Reschedule
    | RetryDead
    | CancelDead
    | StartRedrive
    | StopRedrive
    | SetPool
    | SetQueue
    | DeletePool
    | FreeSlot
    | OpenGroup
    | SealGroup
    | StopGroup
    | SetInstance
    | SetClock
    | AdvanceClock
    | FreezeClock
)
"""Events whose turns end alike."""
Moving = BeginImport | ImportRows | EndImport | Seal | Unseal
"""Events by which an instance comes or goes."""
