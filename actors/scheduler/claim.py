"""Claim turns: due jobs exchange their place in line for a lease. Nothing is sent before that is on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from tocsin.actors.scheduler.lines import PRIORITY_MS, Stream
from tocsin.actors.scheduler.rows import (
    AtRow,
    HistRow,
    JobRow,
    LeaseRow,
    at_key,
    bad_key,
    job_key,
    line_key,
    split_line_tail,
)
from tocsin.actors.scheduler.turn import Turn, lease_ms
from tocsin.storage.api import Range, Row, after


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt that may be sent once its lease is durable."""

    token: str
    job: JobRow
    lease: LeaseRow
    args: bytes
    permits: int = 1
    """How many of the host's permits it holds: all of them if it must run alone."""


@dataclass(slots=True)
class _Head:
    """A stream taken for this claim, the rows read of it, and how many of those were used."""

    stream: Stream
    rows: list[tuple[int, str]]
    used: int = 0


async def claim(turn: Turn, most: int) -> list[Claim]:
    """Up to `most` due jobs in start order: (due - priority x 30 s, id)."""
    streams = turn.book.lines.pick(turn.now, most) if most > 0 else []
    return await _claim(turn, streams, most) if streams else []


async def claim_alone(turn: Turn, permits: int) -> list[Claim]:
    """The due job that must start alone, if there is one and it has not expired."""
    stream = turn.book.lines.alone_ready(turn.now)
    claims = await _claim(turn, [stream], 1) if stream is not None else []
    return [replace(one, permits=permits) for one in claims]


async def _claim(turn: Turn, streams: list[Stream], most: int) -> list[Claim]:
    rows = await turn.book.storage.scan_many([_range(turn, stream, most) for stream in streams])
    heads = [_Head(stream, [split_line_tail(key) for key, _ in found]) for stream, found in _paired(streams, rows)]
    chosen = list(_choose(turn, heads, most))
    known = await turn.jobs([job_id for _, _, job_id in chosen])
    claims: list[tuple[JobRow, str, LeaseRow]] = []
    for head, due, job_id in chosen:
        if job_id not in known:
            _set_aside(turn, head.stream, due, job_id)
            continue
        job = known[job_id].job
        at = msgspec.structs.replace(known[job_id].at, next_at=due)
        turn.book.leave_line(job, at)
        if expired(job, at, turn.now):
            expire(turn, job, at)
            continue
        claims.append((job, *_lease(turn, job, at)))
    for head in heads:
        _give_back(turn, head)
    args = await turn.all_args([job for job, _, _ in claims])
    return [Claim(token, job, lease, args[job.id]) for job, token, lease in claims]


def expired(job: JobRow, at: AtRow, now: int) -> bool:
    return job.expires_at is not None and at.expires and job.expires_at <= now


def expire(turn: Turn, job: JobRow, at: AtRow) -> None:
    """Its time is over: recorded, never dispatched, not dead. It stands in no line any more."""
    turn.book.erase_job(job)
    turn.book.count(expired=1)
    turn.book.occurrences.note(job, "expired")
    turn.book.note(job, HistRow("expired", at.attempt, turn.now, turn.now, at.next_at))


def _paired(streams: list[Stream], rows: list[list[Row]]) -> Iterator[tuple[Stream, list[Row]]]:
    return zip(streams, rows, strict=True)


def _range(turn: Turn, stream: Stream, most: int) -> Range:
    """As many rows as may start, and one more: it is the next head."""
    room = turn.book.lines.room(stream.line.pool)
    limit = min(most, stream.count, most if room is None else room) + 1
    return stream.prefix + b"%015d/" % stream.first_due, after(stream.prefix), limit


def _choose(turn: Turn, heads: list[_Head], most: int) -> Iterator[tuple[_Head, int, str]]:
    """The first `most` in start order, no more of a pool than it has slots."""
    lines = turn.book.lines
    waiting = [
        (due - head.stream.priority * PRIORITY_MS, job_id, n, due, head)
        for n, head in enumerate(heads)
        for due, job_id in head.rows
        if due <= turn.now
    ]
    waiting.sort(key=lambda one: one[:3])
    room = {head.stream.line.pool: lines.room(head.stream.line.pool) for head in heads}
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


def _lease(turn: Turn, job: JobRow, at: AtRow) -> tuple[str, LeaseRow]:
    token = turn.token()
    lease = LeaseRow(
        until=turn.now + lease_ms(job),
        length_ms=lease_ms(job),
        started=turn.now,
        kind="fired",
        host=turn.owner,
        incarnation=job.incarnation,
        pool=job.pool,
        queue=job.queue,
        priority=job.priority,
        at=msgspec.structs.replace(at, attempt=at.attempt + 1, last_token=token),
    )
    turn.book.put_lease(job.id, token, lease)
    return token, lease


def _give_back(turn: Turn, head: _Head) -> None:
    """The stream stands in line again, with the first row that was not used as its head."""
    if not head.stream.count:
        return
    if head.used < len(head.rows):
        turn.book.know_head(head.stream, head.rows[head.used][0])
    else:
        turn.book.lose_head(head.stream)


def _set_aside(turn: Turn, stream: Stream, due: int, job_id: str) -> None:
    """A place in line whose job is missing or unreadable: keep it to be looked at, out of the way."""
    line = stream.line
    key = line_key(line.pool, line.queue, stream.priority, due, job_id)
    turn.book.storage.put(bad_key(key), b"")
    turn.book.storage.delete(at_key(job_id))
    turn.book.storage.delete(job_key(job_id))
    turn.book.drop_line(line.pool, line.queue, stream.priority, due, job_id)
