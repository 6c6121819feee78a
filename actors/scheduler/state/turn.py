"""Give every turn of the scheduler what it needs: the state, the instant, chance, and the limits of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tocsin.actors.runtime.actor import ActorContext
from tocsin.actors.scheduler.model.rows import AtRow, DeadRow, JobRow, args_key, at_key, dead_key, job_key
from tocsin.actors.scheduler.state.fronts import Known
from tocsin.actors.scheduler.state.path_counts import WRITTEN_AT_ONCE
from tocsin.actors.scheduler.state.places import find_place
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState

LEASE_MARGIN_MS = 15_000
KEYS_PER_TURN = 4_000
BYTES_PER_TURN = 3 * 1024 * 1024
"""A part of the 20,000 keys and 8 MiB of a commit. A turn that has written this much leaves to the next one what can
wait."""
ACCEPTED: Final = "accepted"
RESTORED: Final = "restored"
Change = tuple[JobRow | None, object, object]
"""A job, what has become of it (`ACCEPTED`, `RESTORED` by an undo, its lease, or what `transitions.job` decides), and
the number of the attempt, 0 if there is none. Without a job: an event that was carried out, and its answer."""
STEPS: Final = 8
"""After so many jobs a turn looks whether it has written that much: eight jobs more never fill a commit."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn, at one instant. `now` is that of the instance, which may have a test clock; `wall` is that of the host:
    leases end by it, since calls take real time. `owner` is this process's id in the store; `began` is when the turn
    began, on the clock that never steps: leases count from there, however long the turn takes."""

    state: SchedulerState
    now: int
    wall: int
    ctx: ActorContext
    owner: str
    began: float = 0.0
    changes: list[Change] | None = None
    """Changes, for the log; None where nobody reads it."""

    @property
    def random(self) -> Random:
        return self.ctx.random

    @property
    def is_full(self) -> bool:
        """Return whether to leave to the next turn what can wait. A page of jobs may write little or, with long args
        and chains, more than a commit holds; and a turn that can never be committed is retried forever."""
        layer, paths = self.state.storage.layer, self.state.paths
        keys = len(layer.puts) + len(layer.deletes)
        keys += len(paths.changes) + min(len(paths.recounted), WRITTEN_AT_ONCE)
        return keys >= KEYS_PER_TURN or layer.size >= BYTES_PER_TURN

    def incarnation(self) -> str:
        """Make an incarnation, unique over all schedulers, hosts and stores: receivers know jobs of many of them by it.
        It holds no dot (the delimiter of the signed text) and no colon or slash (those of webhook-ids and keys)."""
        return f"{self.ctx.activation}-{self.ctx.next_seq()}"

    def token(self) -> str:
        """Make the fencing token of a lease: ordered by the epoch, unique by the number, not to be guessed."""
        return f"{self.ctx.epoch}.{self.ctx.next_seq()}.{self.ctx.random.randbytes(12).hex()}"

    async def jobs(self, ids: Sequence[str]) -> dict[str, Known]:
        """Read job and place of each id that exists, in one hop."""
        keys = {job_id: (job_key(job_id), at_key(job_id)) for job_id in ids}
        rows = await self.state.storage.get_many([key for pair in keys.values() for key in pair])
        known: dict[str, Known] = {}
        for job_id, (key, place) in keys.items():
            if key in rows and (job := self.state.read(JobRow, key, rows[key])) is not None:
                at = await self._place(job, rows[place]) if place in rows else AtRow(job.scheduled_for)
                known[job_id] = Known(job, at)
        return known

    async def _place(self, job: JobRow, row: bytes) -> AtRow:
        at = self.state.read(AtRow, at_key(job.id), row)
        # Its line row still says where the job stands; only the counts are lost.
        return await find_place(self.state, job) if at is None else at

    async def letters(self, ids: Sequence[str]) -> dict[str, tuple[JobRow, DeadRow]]:
        """Read the jobs of these ids that are dead letters, in one hop."""
        keys = [key for job_id in ids for key in (job_key(job_id), dead_key(job_id))]
        rows = await self.state.storage.get_many(keys)
        found: dict[str, tuple[JobRow, DeadRow]] = {}
        for job_id, key, letter in zip(ids, keys[::2], keys[1::2], strict=True):
            dead = self.state.read(DeadRow, letter, rows[letter]) if letter in rows else None
            job = self.state.read(JobRow, key, rows[key]) if dead is not None and key in rows else None
            if dead is not None and job is not None:
                found[job_id] = job, dead
        return found

    async def dead(self, ids: Sequence[str]) -> set[str]:
        """Return which of these jobs are dead letters."""
        rows = await self.state.storage.get_many([dead_key(job_id) for job_id in ids])
        return {job_id for job_id in ids if dead_key(job_id) in rows}

    async def all_args(self, jobs: Sequence[JobRow]) -> dict[str, bytes]:
        """Return the whole args of each job; a hop only if some continue in other rows."""
        keys = [args_key(job.id, n) for job in jobs for n in range(job.args_rows)]
        rows = await self.state.storage.get_many(keys) if keys else {}
        return {
            job.id: job.args + b"".join(rows.get(args_key(job.id, n), b"") for n in range(job.args_rows))
            for job in jobs
        }


def lease_ms(turn: Turn, job: JobRow) -> int:
    """Return how long the lease of a callback is: its deadline and a margin. The deadline is the job's own, else the
    instance's, else the host's, as they are when the attempt starts."""
    return (job.timeout_ms or turn.state.instance.timeout_ms or turn.state.limits.timeout_ms) + LEASE_MARGIN_MS
