"""Write the rows of a scheduler, each together with the memory that mirrors it.

All turns (submit, claim, settle, ...) write rows through this module. Memory changes with the row, in the turn. If the
turn fails, the runtime drops the actor, and memory is read again (`rebuild.load`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tocsin.actors.runtime.overlay import ActorStorage
from tocsin.actors.scheduler.model.clock import ClockRow
from tocsin.actors.scheduler.model.flow_rows import FLOW_LAYOUT
from tocsin.actors.scheduler.model.line_names import line_of
from tocsin.actors.scheduler.model.rows import (
    DAY_MS,
    INSTANCE,
    LAYOUT,
    META_COUNTERS,
    META_LAYOUT,
    META_RECOUNT,
    META_SLOT,
    AtRow,
    BadRow,
    DeadRow,
    HistRow,
    IdemRow,
    InstanceRow,
    JobRow,
    ParkedRow,
    PoolRow,
    R,
    RedriveRow,
    ResultRow,
    args_key,
    at_key,
    bad_key,
    bucket_prefix,
    dead_key,
    decode,
    encode,
    hist_key,
    idem_key,
    job_key,
    line_key,
    lines_key,
    parked_key,
    pool_key,
    result_key,
    split_line_tail,
    timer_key,
)
from tocsin.actors.scheduler.state.fronts import Fronts
from tocsin.actors.scheduler.state.labels import Labels
from tocsin.actors.scheduler.state.leases import Leases
from tocsin.actors.scheduler.state.limits import DEFAULTS, HISTORY_MS
from tocsin.actors.scheduler.state.limits import TIMEOUT_MS as TIMEOUT_MS
from tocsin.actors.scheduler.state.limits import Limits as Limits
from tocsin.actors.scheduler.state.occurrences import FailedSlots, Occurrences
from tocsin.actors.scheduler.state.path_counts import Paths
from tocsin.actors.scheduler.state.ready_heap import PriorityBucket
from tocsin.storage.api import Row, after

log = logging.getLogger("tocsin.scheduler")

PAGE = 5_000
EXPIRE = "expire"
HISTORY = "history"
RETIRE = "retire"
IDEM, RESULT = "idem", "result"
NO_DAYS: Final[Mapping[str, int]] = {}


class SchedulerState(Leases):
    """Rows and memory of one scheduler. Public attributes are for reading."""

    clock: ClockRow | None = None
    """Of its own, if it is a test clock. Only such an instance has the attribute: one more would cost others 1 KB."""
    to_cool: Sequence[tuple[str, int]] = ()
    """Origins that are to cool once this turn is durable, each for so many ms."""
    following: tuple[tuple[JobRow, DeadRow], ...] = ()  # deaths of this turn that other jobs are to follow

    def __init__(
        self, storage: ActorStorage, limits: Limits = DEFAULTS, failed_slots: FailedSlots | None = None
    ) -> None:
        super().__init__(storage, limits.clocks_differ_ms)
        self.limits = limits
        self.fronts = Fronts()
        self.paths = Paths(storage)
        self.labels = Labels(storage)
        self.to_tell: list[str] = []
        """Ids of jobs that ended in this turn and whose result somebody may wait for."""
        self.deaths: list[tuple[JobRow, DeadRow]] = []
        """Jobs that died in this turn."""
        self.instance = InstanceRow()
        self.next_timer: int | None = None  # no timer is earlier
        self.history_ms = HISTORY_MS
        self.redrives: dict[str, RedriveRow] | None = None
        """Bulk retries that have not ended; None until they are first asked for (`redrive`)."""
        self.occurrences = Occurrences(failed_slots)
        self.damaged = False  # a row was unreadable: what is summarised must be rebuilt
        self.has_layout = False  # whether the row of the layout is written
        self.has_flow = False  # whether it says that rows of `flow_rows` are used
        self.days = NO_DAYS  # for which day the timer was put last that drops rows of this kind
        self.sealed_counters = encode(self.counters)

    # ---- Reading rows -------------------------------------------------------------------------------

    async def all_rows(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Read every row of a family, a page at a time."""
        found: list[tuple[bytes, bytes]] = []
        start, end = prefix, after(prefix)
        while True:
            page = await self.storage.scan(start, end, limit=PAGE)
            found.extend(page)
            if len(page) < PAGE:
                return found
            start = page[-1][0] + b"\x00"

    def read(self, kind: type[R], key: bytes, value: bytes) -> R | None:
        """Decode a row. An unreadable one is set aside: reported and kept, so that it stops nothing. None then."""
        try:
            return decode(kind, key, value)
        except BadRow as error:
            self.set_aside(key, value, str(error))
            return None

    def set_aside(self, key: bytes, value: bytes, reason: str) -> None:
        """Move an unreadable row to bad/, and note that what is summarised must be rebuilt."""
        log.error("an unreadable row was moved to bad/: %r: %s", key, reason)
        self.storage.put(bad_key(key), value)
        self.storage.delete(key)
        self.damaged = True
        if key.startswith((b"job/", b"group/")):
            self.storage.put(META_RECOUNT, b"")
        self.occurrences.set_aside(key)

    def use_flow(self) -> None:
        """Note that rows of `flow_rows` are used from now on, before the first of them is written: an older tocsin,
        which would misread them, refuses this scheduler then. Whoever writes such a row calls this."""
        if not self.has_flow:
            self.storage.put(META_LAYOUT, b"%d" % FLOW_LAYOUT)
            self.has_flow = self.has_layout = True

    def write_at(self, job: JobRow, at: AtRow) -> None:
        """Write the job's place if it says more than the job itself."""
        if at != AtRow(job.scheduled_for):
            self.storage.put(at_key(job.id), encode(at))

    async def look_at_timers(self) -> None:
        """Look up when the next timer rings."""
        self.note_next_timer(await self.storage.scan(b"timer/", after(b"timer/"), limit=1))

    def note_next_timer(self, first: Sequence[Row]) -> None:
        """Take from the first timer row, if there is one, when the next timer rings."""
        self.next_timer = int(first[0][0][6:21]) if first and first[0][0][6:21].isdigit() else None

    # ---- Jobs and lines --------------------------------------------------------------------------

    def add_job(self, job: JobRow, rest_of_args: Sequence[bytes], at: AtRow) -> AtRow:
        """Write a new job and its place in line; return the place."""
        self._count_paths(job, 1)
        self.counters.accepted += 1
        self.put_job(job, rest_of_args)
        return self.enter_line(job, at)

    def put_job(self, job: JobRow, rest_of_args: Sequence[bytes]) -> None:
        """Write the rows of a job that say what it is, and nothing of where it stands."""
        if job.extras is not None:
            self.use_flow()
        self.storage.put(job_key(job.id), encode(job))
        for n, part in enumerate(rest_of_args):
            self.storage.put(args_key(job.id, n), part)
        if job.expires_at is not None:
            self.put_timer(job.expires_at, EXPIRE, job.id)

    def add_plain_jobs(self, jobs: Sequence[JobRow]) -> None:
        """Write new jobs that each have a row, a place in line at their own instant, and nothing else."""
        rows: dict[bytes, bytes] = {}
        places: dict[tuple[str, str, int], tuple[bytes, list[JobRow]]] = {}
        for job in jobs:
            bucket, due = (job.pool, job.queue, job.priority), job.scheduled_for
            place = places.get(bucket)
            if place is None:
                place = places[bucket] = bucket_prefix(*bucket), []
            job_id = job.id.encode()
            rows[b"job/" + job_id] = encode(job)
            rows[b"%b%015d/%b" % (place[0], due, job_id)] = b""
            place[1].append(job)
        self.storage.put_many(rows)
        self.paths.changes.update([job.function_path or job.target for job in jobs])
        self.counters.waiting += len(jobs)
        self.counters.accepted += len(jobs)
        for bucket, (prefix, entering) in places.items():
            first_due = min([job.scheduled_for for job in entering])
            count = self.lines.add(*bucket, first_due, len(entering)).count
            self.fronts.entered_together(prefix, count, entering)

    def _count_paths(self, job: JobRow, by: int) -> None:
        """Count the job and all that follow it, each under its own path."""
        changes = self.paths.changes
        changes[job.target] += by
        for target in job.chained:
            changes[target] += by

    def erase_job(self, job: JobRow, how: str | None) -> None:
        """Erase the job and what hangs on it, but for its line, lease or dead row. `how` it ended is for its schedule;
        None if the schedule was told before."""
        self._count_paths(job, -1)
        if job.schedule is not None and how is not None:
            self.occurrences.ended.append((job.schedule, job.id, how))
        self.storage.delete(job_key(job.id))
        if job.labels:
            self.labels.erase(job)
        for n in range(job.args_rows):
            self.storage.delete(args_key(job.id, n))
        if job.expires_at is not None:
            self.storage.delete(timer_key(job.expires_at, EXPIRE, job.id))

    def enter_line(self, job: JobRow, at: AtRow) -> AtRow:
        """Write the job's place in its line, and return it. It is written only if it says more than the job itself."""
        rotas = self.lines.rotas
        if (rotas is not None and rotas.are_fair(job.pool, job.queue)) != at.in_turn:
            at = msgspec.structs.replace(at, in_turn=not at.in_turn)
            self.use_flow()
        due, queue = at.next_at, line_of(job, at)
        self.write_at(job, at)
        self.storage.put(line_key(job.pool, queue, job.priority, due, job.id), b"")
        if job.labels:
            self.labels.wait(job, due)
        self.counters.waiting += 1
        bucket = self.lines.add(job.pool, queue, job.priority, due)
        self.fronts.entered(bucket.prefix, bucket.count, job, at)
        return at

    def leave_line(self, job: JobRow, at: AtRow) -> None:
        """Delete the job's place in its line."""
        self.drop_line(job.pool, line_of(job, at), job.priority, at.next_at, job.id)
        if at != AtRow(job.scheduled_for):
            self.storage.delete(at_key(job.id))

    def drop_line(self, pool: str, queue: str, priority: int, due: int, job_id: str) -> None:
        """Delete a row of a line."""
        self.storage.delete(line_key(pool, queue, priority, due, job_id))
        self.counters.waiting -= 1
        bucket = self.lines.remove(pool, queue, priority, due)
        self.fronts.left(bucket.prefix, due, job_id)

    # ---- Dead letters, timers, pools -------------------------------------------------------------

    def park(self, job: JobRow, dead: DeadRow, *, again: bool = False) -> None:
        """Write the job's dead letter; tell of its death, unless it was dead before."""
        dead = self.put_letter(job, dead)
        self._count_paths(job, -1)
        if not again:
            self.deaths.append((job, dead))
            if job.extras is not None and job.extras.on_dead_size:
                self.following = (*self.following, (job, dead))
        self.note_end(job)

    def put_letter(self, job: JobRow, dead: DeadRow) -> DeadRow:
        """Write the job's dead letter, its index rows and the timer of its age; return it with its age."""
        if self.limits.dead_ms is not None:
            dead = msgspec.structs.replace(dead, retire_at=dead.parked_at + self.limits.dead_ms)
            self.put_timer(dead.parked_at + self.limits.dead_ms, RETIRE, job.id)
        self.storage.put(dead_key(job.id), encode(dead))
        row = ParkedRow(dead.reason, job.pool, job.target)
        self.storage.put(parked_key(dead.parked_at, job.id), encode(row))
        self.labels.park(job, dead)
        self.counters.dead += 1
        self.counters.died += 1
        return dead

    def unpark(self, job: JobRow, dead: DeadRow) -> None:
        """Delete the job's dead letter and what belongs to it."""
        self.storage.delete(dead_key(job.id))
        self.storage.delete(parked_key(dead.parked_at, job.id))
        self.labels.unpark(job, dead)
        if dead.retire_at is not None:
            self.storage.delete(timer_key(dead.retire_at, RETIRE, job.id))
        self._count_paths(job, 1)
        self.counters.dead -= 1

    def put_timer(self, ms: int, kind: str, key: str) -> None:
        """Write a timer: the alarm rings at this instant, or at once if it has passed."""
        self.storage.put(timer_key(ms, kind, key), b"")
        if self.next_timer is None or ms < self.next_timer:
            self.next_timer = ms

    def drop_timer(self, ms: int, kind: str, key: str) -> None:
        self.storage.delete(timer_key(ms, kind, key))

    def put_pool(self, name: str, row: PoolRow) -> None:
        if row.flow is not None:
            self.use_flow()
        self.storage.put(pool_key(name), encode(row))
        self.lines.set_pool(name, row)
        self.lines.pool_changed(name)

    def drop_pool(self, name: str) -> None:
        if self.lines.meters is not None:
            self.lines.meters.set(name, None)
        self.storage.delete(pool_key(name))
        self.lines.set_pool(name, None)
        self.lines.pool_changed(name)

    def put_instance(self, row: InstanceRow) -> None:
        self.storage.put(INSTANCE, encode(row))
        self.instance = row
        if (stopped := row.paused or row.moving is not None) != self.lines.paused:
            self.lines.pause(stopped)

    # ---- Counting and closing --------------------------------------------------------------------

    def note(self, job: JobRow, row: HistRow) -> None:
        """Write a row of history, for the end of an attempt or of a job that had none."""
        n = f"{row.attempt:06d}" + ("" if row.token else f"-{row.outcome}")
        self.storage.put(hist_key(row.ended, job.id, job.incarnation, n), encode(row))
        day = row.ended // DAY_MS
        if day != self.days.get(HISTORY):
            self.days = {**self.days, HISTORY: day}
            self.put_timer((day + 1) * DAY_MS + self.history_ms, HISTORY, str(day))

    def note_end(self, job: JobRow) -> None:
        """Tell whoever waits for the job's result, once the turn is durable, that it ended."""
        if job.keep_result_ms is not None:
            self.to_tell.append(job.id)

    def keep_result(
        self, job: JobRow, state: str, now: int, result: bytes | None = None, no_result: str | None = None
    ) -> None:
        """Write how the job ended, if its result is to be kept."""
        if job.keep_result_ms is not None:
            until = now + job.keep_result_ms
            row = ResultRow(job.incarnation, state, now, until, result, no_result)
            self.storage.put(result_key(job.id), encode(row))
            self.put_timer(until, RESULT, job.id)
            self.note_end(job)

    def remember_answer(self, digest: bytes, row: IdemRow) -> None:
        """Keep the answer to a request with an Idempotency-Key for 24 hours and the rest of that day."""
        day = row.at // DAY_MS
        self.storage.put(idem_key(day, digest), encode(row))
        if day != self.days.get(IDEM):
            self.days = {**self.days, IDEM: day}
            self.put_timer((day + 2) * DAY_MS, IDEM, str(day))

    def find_head(self, bucket: PriorityBucket) -> bool:
        """Say when the first job of the bucket is due, if that is known without reading."""
        due = self.fronts.first_due(bucket.prefix)
        if due is not None:
            self.lines.set_head(bucket, due)
        return due is not None

    async def close(self) -> None:
        """End the turn: look up the first jobs that are not known (one hop), and write the summaries that changed."""
        lines, storage = self.lines, self.storage
        if lines.headless:
            buckets = [bucket for bucket in lines.take_headless() if not self.find_head(bucket)]
            ranges = [(s.prefix + b"%015d/" % s.first_due, after(s.prefix), 1) for s in buckets]
            for bucket, rows in zip(buckets, await storage.scan_many(ranges) if ranges else (), strict=True):
                if bucket.count and rows:
                    lines.set_head(bucket, split_line_tail(rows[0][0])[0])
        summaries: dict[bytes, bytes | None] = {}
        if lines.touched:
            for name, row in lines.sealed():
                summaries[lines_key(*name)] = None if row is None else encode(row)
        if lines.meters is not None:
            summaries.update(lines.meters.sealed())
        counters = encode(self.counters)
        if counters != self.sealed_counters:
            summaries[META_COUNTERS] = self.sealed_counters = counters
        for key, value in summaries.items():
            if value is None:
                storage.delete(key)
            else:
                storage.put(key, value)
        if not self.has_layout and (storage.layer.puts or storage.layer.deletes):  # the first rows since it was removed
            storage.put(META_LAYOUT, b"%d" % (FLOW_LAYOUT if self.has_flow else LAYOUT))
            self.has_layout = True
        seen = self.occurrences
        if seen.latest_slot != seen.sealed_slot:
            storage.put(META_SLOT, b"%d" % seen.latest_slot)
            seen.sealed_slot = seen.latest_slot
        if self.labels.next_to_fill is not None:
            await self.labels.fill(self.labels.next_to_fill, self._running)
        if self.paths.changes or self.paths.counting:
            await self.paths.close()

    def _running(self, job_id: str) -> AtRow | None:
        token = self.lease_of(job_id)
        return None if token is None else self.leases[token][1].at
