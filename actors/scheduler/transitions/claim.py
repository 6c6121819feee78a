"""Claim turns: due jobs exchange their place in line for a lease. Nothing is sent before that is on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tocsin.actors.scheduler.model.damage import job_fault
from tocsin.actors.scheduler.model.lost import NO_JOB
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import (
    AtRow,
    JobRow,
    LeaseRow,
    at_key,
    bad_key,
    job_key,
    line_key,
    split_line_tail,
)
from tocsin.actors.scheduler.state.line import PRIORITY_MS, PriorityBucket
from tocsin.actors.scheduler.state.turn import Known, Turn, lease_ms
from tocsin.actors.scheduler.transitions.apply import become
from tocsin.actors.scheduler.transitions.job import Expire, damaged, is_expired
from tocsin.storage.api import Range, after


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt that may be sent once its lease is durable."""

    token: str
    job: JobRow
    lease: LeaseRow
    args: bytes
    level: int = 0
    """How far it is kept apart from others."""
    parent_result: bytes = b""
    """What the job that started this one came to, if it did."""


@dataclass(slots=True)
class _Head:
    """A stream taken for this claim, the rows read of it, and how many of those were used."""

    stream: PriorityBucket
    rows: list[tuple[int, str]]
    used: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """Streams that were taken out of their heads, and how many jobs are wanted of them."""

    streams: list[PriorityBucket]
    most: int
    lease: Lease
    """Of the n-th of those jobs."""


Lease = Callable[[Turn, JobRow, AtRow, int], tuple[str, LeaseRow]]


async def claim(turn: Turn, most: int) -> list[Claim]:
    """Up to `most` due callbacks in start order: (due - priority x 30 s, id)."""
    streams = turn.state.lines.pick(turn.now, most) if most > 0 else []
    return (await claim_asked(turn, [Ask(streams, most, fired)]))[0] if streams else []


async def claim_suspects(turn: Turn, level: int, most: int) -> list[Claim]:
    """Up to `most` due callbacks of suspects of one level, in start order."""
    streams = turn.state.lines.suspects_ready(turn.now, level)[:most]
    claims = (await claim_asked(turn, [Ask(streams, most, fired)]))[0] if streams else []
    return [replace(one, level=level) for one in claims]


async def claim_asked(turn: Turn, asks: Sequence[Ask]) -> list[list[Claim]]:
    """What each asks for, as far as there are due jobs and slots, and the turn is not full of those that had expired.
    Two hops for all of them; one more for long args."""
    ranges = [_range(turn, stream, ask.most) for ask in asks for stream in ask.streams]
    rows = iter(await turn.state.storage.scan_many(ranges))
    room: Room = {}
    chosen: list[list[tuple[_Head, int, str]]] = []
    heads: list[_Head] = []
    for ask in asks:
        mine = [_Head(stream, [split_line_tail(key) for key, _ in next(rows)]) for stream in ask.streams]
        chosen.append(list(_choose(turn, mine, ask.most, room)))
        heads += mine
    known = await turn.jobs([job_id for some in chosen for _, _, job_id in some])
    whole = await turn.all_args([one.job for one in known.values()])
    leased = [list(_leased(turn, some, known, whole, ask.lease)) for ask, some in zip(asks, chosen, strict=True)]
    for head in heads:
        _give_back(turn, head)
    return [[_claim(job, token, lease, whole[job.id]) for job, token, lease in some] for some in leased]


def _leased(
    turn: Turn,
    chosen: Sequence[tuple[_Head, int, str]],
    known: Mapping[str, Known],
    whole: Mapping[str, bytes],
    lease: Lease,
) -> Iterator[tuple[JobRow, str, LeaseRow]]:
    n = 0
    for head, due, job_id in chosen:
        if turn.is_full:
            head.used -= 1  # those that follow in this head are left, too
            continue
        if job_id not in known:
            _set_aside(turn, head.stream, due, job_id)
            continue
        job = known[job_id].job
        at = msgspec.structs.replace(known[job_id].at, next_at=due)
        turn.state.leave_line(job, at)
        if is_expired(job, at, turn.now):
            become(turn, job, Expire(at))
            continue
        if (fault := job_fault(job, whole[job.id])) is not None:
            become(turn, job, damaged(at, fault, turn.now))
            continue
        yield job, *lease(turn, job, at, n)
        n += 1


def _claim(job: JobRow, token: str, lease: LeaseRow, whole: bytes) -> Claim:
    blob = parts_of(job, whole)
    return Claim(token, job, lease, blob.args, parent_result=blob.parent_result)


def _range(turn: Turn, stream: PriorityBucket, most: int) -> Range:
    """As many rows as may start, and one more: it is the next head."""
    room = turn.state.lines.room(stream.line.pool)
    limit = min(most, stream.count, most if room is None else room) + 1
    return stream.prefix + b"%015d/" % stream.first_due, after(stream.prefix), limit


Room = dict[str, int | None]
"""How many more of each pool may start; None: no bound."""


def _choose(turn: Turn, heads: list[_Head], most: int, room: Room) -> Iterator[tuple[_Head, int, str]]:
    """The first `most` in start order, no more of a pool than it has slots: `room` knows what others took."""
    lines = turn.state.lines
    waiting = [
        (due - head.stream.priority * PRIORITY_MS, job_id, n, due, head)
        for n, head in enumerate(heads)
        for due, job_id in head.rows
        if due <= turn.now
    ]
    waiting.sort(key=lambda one: one[:3])
    for head in heads:
        room.setdefault(head.stream.line.pool, lines.room(head.stream.line.pool))
    taken = 0
    for _, job_id, _, due, head in waiting:
        if taken == most:
            return
        left = room[head.stream.line.pool]
        if left == 0:
            continue
        if left is not None:
            room[head.stream.line.pool] = left - 1
        taken += 1
        head.used += 1
        yield head, due, job_id


def fired(turn: Turn, job: JobRow, at: AtRow, n: int) -> tuple[str, LeaseRow]:
    """The lease of a callback."""
    return new_lease(turn, job, at, "fired", turn.owner, lease_ms(turn, job))


def new_lease(turn: Turn, job: JobRow, at: AtRow, kind: str, holder: str, length_ms: int) -> tuple[str, LeaseRow]:
    """The next attempt of a job begins."""
    token = turn.token()
    lease = LeaseRow(
        until=turn.now + length_ms,
        length_ms=length_ms,
        started=turn.now,
        kind=kind,
        host=holder,
        incarnation=job.incarnation,
        pool=job.pool,
        queue=job.queue,
        priority=job.priority,
        at=msgspec.structs.replace(at, attempt=at.attempt + 1, last_token=token),
    )
    turn.state.put_lease(job.id, token, lease)
    return token, lease


def _give_back(turn: Turn, head: _Head) -> None:
    """The stream stands in line again, with the first row that was not used as its head."""
    if not head.stream.count:
        return
    if head.used < len(head.rows):
        turn.state.know_head(head.stream, head.rows[head.used][0])
    else:
        turn.state.lose_head(head.stream)


def _set_aside(turn: Turn, stream: PriorityBucket, due: int, job_id: str) -> None:
    """A place in line whose job is missing or unreadable: keep it to be looked at, out of the way."""
    line = stream.line
    key = line_key(line.pool, line.queue, stream.priority, due, job_id)
    turn.state.storage.put(bad_key(key), NO_JOB)
    turn.state.storage.delete(at_key(job_id))
    turn.state.storage.delete(job_key(job_id))
    turn.state.drop_line(line.pool, line.queue, stream.priority, due, job_id)
