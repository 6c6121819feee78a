"""The promises of queues and chains, watched at the disk, commit by commit, and at the workers.

What a worker says is noted before it is said. What the rows then say must follow from that, or from a lease that ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tocsin.actors.scheduler.model.followers import Follower, followers_of
from tocsin.actors.scheduler.model.line_names import MARK, level_in
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import (
    INSTANCE,
    PULLED,
    AtRow,
    HistRow,
    JobRow,
    LeaseRow,
    LinesRow,
    PoolRow,
    at_key,
    decode,
    job_key,
    lease_key,
    pool_key,
    split_lease_key,
    split_lines_key,
)
from tocsin.actors.scheduler.model.suspects import ALONE, WORKER_SHARE, level_of, share_of_worker
from tocsin.dispatch.pulled import Claimed
from tocsin.storage.api import after
from tocsin.storage.memory import SortedMap

Rows = dict[bytes, bytes | None]
Said = tuple[bool, bytes]
"""Whether it went well, and the JSON of the result."""
Expected = tuple[JobRow, Follower, list[bytes]]
"""The parent, who is to follow it, and what the parent may have come to."""
ENDS = {"done", "cancelled", "expired"}
ENDS_OF_PULLED = {"done", "failed", "returned", "lost", "unsent", "cancelled"}
TURNS_OF_OTHERS = 12
"""So many jobs of other queues may a worker of all queues get while one of a queue waits that may start."""

HIGHEST_CAP = 3
"""Operators of the simulation set no cap above it."""


@dataclass(slots=True)
class Hold:
    """A job in the hands of a worker."""

    job: Claimed
    worker: str
    until: int
    """When its lease ends at the earliest, as far as the worker can know."""
    over: bool = False
    """Its worker has said how it ended: from here on the host may give it to another."""


@dataclass(slots=True)
class Pulled:
    """Notes every broken promise; `hold` fails at the end."""

    maps: dict[str, SortedMap]
    name: str
    calm: bool = False
    """No fault, and nobody misbehaves."""
    on_start: Callable[[JobRow], None] = lambda _: None
    """A job that follows another is on disk."""
    on_done: Callable[[JobRow], None] = lambda _: None
    on_cancelled: Callable[[JobRow], None] = lambda _: None
    """It is about to be cancelled."""
    late: bool = False
    """Hosts stand still in this run."""
    takes: dict[str, Callable[[str], bool]] = field(default_factory=dict)
    """By worker: whether it takes jobs of a queue. Only of those that take all."""
    leases: dict[bytes, LeaseRow] = field(default_factory=dict)
    jobs: dict[str, JobRow] = field(default_factory=dict)
    durable: set[str] = field(default_factory=set)
    """Every lease that was ever on disk."""
    said: dict[str, list[Said]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """By lease: how its attempt ended."""
    came_to: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)
    """By id of jobs: how they ended, and their results."""
    started: set[str] = field(default_factory=set)
    holds: dict[str, list[Hold]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)
    """By incarnation: how often who ran it was lost."""
    retried: set[str] = field(default_factory=set)
    """Incarnations that were dead and then were not: their losses count anew."""
    overtaken: Counter[str] = field(default_factory=Counter)
    given: int = 0
    broken: list[str] = field(default_factory=list)

    def must(self, holds: object, what: str) -> None:
        if not holds:
            self.broken.append(what)

    # ---- At the disk -----------------------------------------------------------------------------

    def commit(self, rows: Rows) -> None:
        """About to be applied."""
        before = self.maps.get(self.name) or SortedMap()
        ends: dict[tuple[str, str], list[HistRow]] = {}
        families: dict[bytes, list[tuple[bytes, bytes | None]]] = {}
        for key, value in rows.items():
            families.setdefault(key.partition(b"/")[0], []).append((key, value))
        for key, value in families.get(b"hist", ()):
            if value is not None:
                _, _, job_id, incarnation, _ = key.decode().split("/")
                row = decode(HistRow, key, value)
                ends.setdefault((job_id, incarnation), []).append(row)
                self._attempt_ends(before, job_id, incarnation, row)
        for key, value in families.get(b"dead", ()):
            letter = self.jobs.get(key[5:].decode())
            if value is None and letter is not None:
                self.retried.add(letter.incarnation)
        if b"job" in families or ends:
            self._jobs(rows, families.get(b"job", []), ends)
        if b"lease" in families:
            self._leases(before, rows, families[b"lease"])

    def _attempt_ends(self, before: SortedMap, job_id: str, incarnation: str, row: HistRow) -> None:
        if not row.token:
            return
        lease = self.leases.get(lease_key(job_id, row.token))
        held = lease is not None
        if lease is not None and lease.kind == PULLED:
            self.must(row.outcome in ENDS_OF_PULLED, f"the attempt of {job_id} by a worker is {row.outcome}")
        self.losses[incarnation] += row.outcome == "lost"
        live = self._live(job_id)
        at = before.get(at_key(job_id))
        late = not live and at is not None and decode(AtRow, b"", at).last_token == row.token
        late = late and before.get(b"dead/" + job_id.encode()) is None and job_id in self.jobs
        never = row.outcome == "unsent" and row.token not in self.durable  # it was over before its batch was on disk
        self.must(
            held or never or (row.outcome == "done" and late), f"{job_id} is {row.outcome} by a lease that is over"
        )
        self.must(
            self.ended.get(row.token) in (None, "lost", "lapsed", "unknown"), f"{row.token} of {job_id} ends twice"
        )
        self.ended[row.token] = row.outcome
        if row.outcome == "lost" and self.calm:
            self.must(False, f"in good weather {job_id} was lost")

    def _jobs(
        self,
        rows: Rows,
        written: list[tuple[bytes, bytes | None]],
        ends: dict[tuple[str, str], list[HistRow]],
    ) -> None:
        expected: dict[str, Expected] = {}
        for (job_id, incarnation), ended in ends.items():
            job = self.jobs.get(job_id)
            last = ended[-1]
            if job is None and last.outcome == "expired":  # accepted and over in one commit
                self.came_to.setdefault(job_id, []).append(("expired", b"null"))
            if job is None or job.incarnation != incarnation or last.outcome not in ENDS:
                continue
            results = self._results_of(job, last)
            self.came_to.setdefault(job_id, []).extend((last.outcome, result or b"null") for result in results)
            if last.outcome == "cancelled" and rows.get(job_key(job_id), b"") is None:
                self.on_cancelled(job)
            if last.outcome == "done":
                self.on_done(job)
                for one in followers_of(job, job.args):
                    expected[one.job.id] = (job, one, results)
        for job_id, (parent, _, _) in expected.items():
            over = any(each == job_id for each, _ in ends)  # it had expired
            self.must(over or rows.get(job_key(job_id)), f"{parent.id} is done, and {job_id} was not started with it")
        for key, value in written:
            job_id = key[4:].decode()
            old = self.jobs.pop(job_id, None)
            if old is not None and (value is None or decode(JobRow, key, value).incarnation != old.incarnation):
                self._is_accounted(rows, old, ends.get((job_id, old.incarnation), []))
            if value is not None:
                job = self.jobs[job_id] = decode(JobRow, key, value)
                new = old is None or old.incarnation != job.incarnation
                kept = f"/{job_id}".encode()
                back = any(gone is None and at.startswith(b"trash/") and at.endswith(kept) for at, gone in rows.items())
                if job.parent is not None and new and not back:
                    self._starts(job, expected.get(job_id))

    def _is_accounted(self, rows: Rows, old: JobRow, ends: list[HistRow]) -> None:
        """A job that is gone has ended, or its attempt is left to end alone."""
        if any(row.outcome in ENDS for row in ends):
            return
        prefix = b"lease/%b/" % old.id.encode()
        for key, value in rows.items():
            if key.startswith(prefix) and (value is None or decode(LeaseRow, key, value).orphan):
                self.came_to.setdefault(old.id, []).append(("cancelled", b"null"))
                self.on_cancelled(old)
                return
        kept = b"/%b" % old.id.encode()
        if any(value and key.startswith(b"trash/") and key.endswith(kept) for key, value in rows.items()):
            return  # a dead letter that was cancelled in bulk
        self.must(old.schedule is not None, f"{old.id} is gone, and nothing says why")  # its slot says why

    def _results_of(self, job: JobRow, end: HistRow) -> list[bytes]:
        """What its holder may have said that it came to: the history has short results of pulled jobs."""
        if end.outcome != "done" or (job.schedule is not None and not job.queue):
            return [b""]
        said = [result for ok, result in self.said.get(end.token, []) if ok]
        self.must(said, f"{job.id} is done, and its worker did not say so")
        if end.result is not None:
            self.must(end.result in said, f"the result of {job.id} is {end.result!r}, said was {said}")
            return [end.result]
        return said

    def _starts(self, job: JobRow, expected: Expected | None) -> None:
        if expected is None:
            self.must(False, f"{job.id} follows {job.parent}, which is not done")
            return
        parent, follower, results = expected
        self.must(job.id not in self.started, f"{job.id} is started twice")
        self.started.add(job.id)
        self.must(job.parent == parent.id, f"{job.id} follows {job.parent}, not {parent.id}")
        self.must(
            (parts_of(job, job.args).args, job.queue, job.target)
            == (follower.job.args, follower.job.queue, follower.job.target),
            f"{job.id} is another than was asked for",
        )
        self.must(
            parts_of(job, job.args).parent_result in results,
            f"{job.id} has {parts_of(job, job.args).parent_result!r}, its parent came to {results}",
        )
        self.on_start(job)

    def _live(self, job_id: str) -> list[bytes]:
        prefix = b"lease/%b/" % job_id.encode()
        return [key for key, lease in self.leases.items() if key.startswith(prefix) and not lease.orphan]

    # ---- Leases ----------------------------------------------------------------------------------

    def _leases(self, before: SortedMap, rows: Rows, written: list[tuple[bytes, bytes | None]]) -> None:
        new: list[tuple[str, LeaseRow]] = []
        for key, value in written:
            if value is None:
                self.leases.pop(key, None)
                continue
            lease = decode(LeaseRow, key, value)
            if key not in self.leases:
                new.append((split_lease_key(key)[0], lease))
            self.leases[key] = lease
            self.durable.add(split_lease_key(key)[1])
        for job_id, lease in new:
            self._begins(before, rows, job_id, lease)
        if self.calm and new:
            self._count_turns(before, [lease for _, lease in new if lease.kind == PULLED])

    def _begins(self, before: SortedMap, rows: Rows, job_id: str, lease: LeaseRow) -> None:
        live = self._live(job_id)
        self.must(len(live) <= 1, f"{job_id} has {len(live)} live leases")
        self.must(lease.at.next_at <= lease.started, f"{job_id} was given {lease.at.next_at - lease.started} ms early")
        if lease.pool:
            held = sum(one.pool == lease.pool for one in self.leases.values())
            cap = cap_of(before.get(pool_key(lease.pool)))
            if pool_key(lease.pool) in rows:  # perhaps more than once, and no row tells which caps were in between
                cap = max(cap, HIGHEST_CAP)
            self.must(held <= cap, f"{held} slots of {lease.pool} are held, its cap is {cap}")
        known = self.jobs.get(job_id)
        losses = self.losses[lease.incarnation]
        counts = known is not None and not known.schedule and lease.incarnation not in self.retried
        self.must(not counts or lease.at.losses == losses, f"{job_id} was lost {losses} times")
        if lease.kind == PULLED:
            self.given += 1
            job = self.jobs.get(job_id)
            self.must(lease.orphan or (job is not None and job.queue == lease.queue), f"{job_id} is in no queue")
            mine = [one for one in self.leases.values() if one.kind == PULLED and lease.host and one.host == lease.host]
            alone = any(level_of(one.at) == ALONE for one in mine)
            self.must(not alone or len(mine) == 1, f"{lease.host} has {len(mine)} jobs, one of them must run alone")
            share = sum(share_of_worker(one.at) for one in mine)
            self.must(share <= WORKER_SHARE, f"{lease.host} has {share} shares of suspects, it may have {WORKER_SHARE}")

    def _count_turns(self, before: SortedMap, new: list[LeaseRow]) -> None:
        """Without faults each queue has its turn: of those that may start, none is passed over for long."""
        served = {lease.queue for lease in new}
        for queue in served:
            self.overtaken[queue] = 0
        for queue in self._ready(before, min((lease.started for lease in new), default=0)) - served:
            takers = [lease for lease in new if lease.host in self.takes and self.takes[lease.host](queue)]
            self.overtaken[queue] += len(takers)
            self.must(
                self.overtaken[queue] <= TURNS_OF_OTHERS, f"{queue} waits while others have {TURNS_OF_OTHERS} turns"
            )

    def _ready(self, rows: SortedMap, now: int) -> set[str]:
        """Queues with a job without a pool that was due well before."""
        found = rows.range(b"lines//", after(b"lines//"), 1_000, False)
        lines = [(split_lines_key(key)[1], decode(LinesRow, key, value)) for key, value in found]
        if rows.get(INSTANCE) is not None:
            return set()
        return {
            queue
            for queue, row in lines
            if queue and not level_in(queue)
            if any(first < now - 1 for _, first in row.buckets.values())
        }

    # ---- At the workers --------------------------------------------------------------------------

    def gives(self, job: Claimed, worker: str, now: int, *, steps: bool) -> Hold:
        """A worker has got a job."""
        self.must(job.lease in self.durable, f"{job.id} was given before its lease was on disk")
        row = self.leases.get(lease_key(job.id, job.lease))
        self.must(
            row is None or (row.kind == PULLED and row.host == worker), f"the lease of {job.id} is not {worker}'s"
        )
        hold = Hold(job, worker, job.lease_until)
        others = self.holds.setdefault(job.webhook_id, [])
        if self.late and now >= job.lease_until:
            hold.over = True  # the answer stood still on its way, and what it gives has ended
            return hold
        for other in others:
            began = job.lease_until - job.lease_ms
            late = steps or began >= other.until
            self.must(other.over or late, f"{job.id} is given to {worker} inside the lease of {other.worker}")
            self.must(other.job.lease != job.lease, f"one lease of {job.id} was given twice")
        others.append(hold)
        latest = self.attempts.get(job.webhook_id, 0)
        self.must(row is None or job.attempt > latest, f"attempt of {job.id} repeats")  # else it hears of it too late
        self.attempts[job.webhook_id] = max(job.attempt, latest)
        if job.parent is not None:
            ends = self.came_to.get(job.parent.id, [])
            given = b"null" if isinstance(job.parent.raw_result, msgspec.UnsetType) else bytes(job.parent.raw_result)
            self.must(("done", given) in ends, f"{job.id} is given {given!r} of {job.parent.id}, which ended as {ends}")
        if self.calm:
            self.must(len(others) == 1, f"in good weather {job.id} is given {len(others)} times")
        return hold

    def says(self, lease: str, ok: bool, result: object) -> None:
        """What somebody is about to say of an attempt."""
        told = b"" if result is None else msgspec.json.encode(result)
        self.said.setdefault(lease, []).append((ok, told))

    def settled(self, hold: Hold, ok: bool, answer: Any) -> None:
        """What the host answered."""
        lease = hold.job.lease
        how = self.ended.get(lease)
        self.must(answer.settled, f"the settlement of {hold.job.id} says it is none")
        if answer.state == "done":
            self.must(how == "done", f"{hold.job.id} was answered done, and its attempt is {how}")
        elif answer.state == "cancelled":
            ends = [end for end, _ in self.came_to.get(hold.job.id, [])]
            self.must("cancelled" in ends, f"{hold.job.id} was answered cancelled, and was not")
        else:
            self.must(not ok or how in ("failed", "returned"), f"{hold.job.id} went well and is {answer.state} ({how})")

    def refused(self, hold: Hold, now: int, *, steps: bool) -> None:
        """Its lease is over, says the host."""
        row = self.leases.get(lease_key(hold.job.id, hold.job.lease))
        lives = row is not None and not row.orphan and row.until > now
        self.must(steps or not lives, f"the lease of {hold.job.id} lives, and its worker was refused")
        self.must(not self.calm, f"in good weather a settlement of {hold.job.id} was refused")

    # ---- At any time -----------------------------------------------------------------------------

    def may_start(self, now: int) -> Iterator[tuple[str, bytes]]:
        """Queue and key of each pulled job in line that is due, has a slot, and is held back by nothing."""
        rows = self.maps.get(self.name)
        if rows is None or rows.get(INSTANCE) is not None:
            return
        held = Counter(lease.pool for lease in self.leases.values())
        for key, _ in rows.range(b"line/", after(b"line/"), 10_000, False):
            _, pool, queue, _, due, _ = key.decode().split("/")
            if not queue.lstrip(MARK) or int(due) > now:
                continue
            if not pool or held[pool] < cap_of(rows.get(pool_key(pool))):
                yield queue, key

    def hold(self) -> None:
        assert self.broken == [], self.broken[:3]


def cap_of(row: bytes | None) -> int:
    """Of a pool, by its row."""
    if row is None:
        return 1
    pool = decode(PoolRow, b"", row)
    return 0 if pool.paused else pool.cap
