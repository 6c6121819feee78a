"""Claim turns: due jobs exchange their place in their queue for a lease. Nothing is sent before the lease is on
disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tocsin.actors.scheduler.model.damage import job_fault
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import PULLED, JobRow, LeaseRow, split_line_tail
from tocsin.actors.scheduler.state.job_queues import PRIORITY_MS, PriorityBucket
from tocsin.actors.scheduler.state.turn import Known, Turn, lease_ms
from tocsin.actors.scheduler.transitions.apply import apply_to_waiting, set_place_aside, start
from tocsin.actors.scheduler.transitions.job import Expire, damaged, is_expired
from tocsin.storage.api import Range, Row, after


class Claim(msgspec.Struct, frozen=True):
    """One attempt that may be sent once its lease is durable."""

    token: str
    """The fencing token of its lease."""
    job: JobRow
    lease: LeaseRow
    args: bytes
    level: int = 0
    """Its suspect level: how far it is kept apart from others."""
    parent_result: bytes = b""
    """The result of the job that started this one, if there was one."""


@dataclass(slots=True)
class _Head:
    """A bucket taken for this claim, the rows read of it, and how many of those were used."""

    bucket: PriorityBucket
    rows: list[tuple[int, str]]
    used: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """Buckets that were taken out of their heads, and how many jobs are wanted of them."""

    buckets: list[PriorityBucket]
    most: int
    holders: Sequence[tuple[str, int]] | None = None
    """The worker that gets the n-th of those jobs, and for how many ms; None: callbacks of this host."""


async def claim(turn: Turn, most: int) -> list[Claim]:
    """Claim up to `most` due callbacks in start order: (due - priority x 30 s, id)."""
    buckets = turn.state.lines.pick(turn.now, most) if most > 0 else []
    return (await claim_asked(turn, [Ask(buckets, most)]))[0] if buckets else []


async def claim_suspects(turn: Turn, level: int, most: int) -> list[Claim]:
    """Claim up to `most` due callbacks of suspects of one level, in start order."""
    buckets = turn.state.lines.suspects_ready(turn.now, level)[:most]
    claims = (await claim_asked(turn, [Ask(buckets, most)]))[0] if buckets else []
    return [msgspec.structs.replace(one, level=level) for one in claims]


async def claim_asked(turn: Turn, asks: Sequence[Ask]) -> list[list[Claim]]:
    """Claim what each asks for, limited by due jobs, free pool slots and the turn's write budget.

    Two hops for all of them; one more for long args.
    """
    state = turn.state
    ranges = [_range(turn, bucket, ask.most) for ask in asks for bucket in ask.buckets]
    heads, chosen = _choose(turn, asks, iter(await state.storage.scan_many(ranges)))
    known = await turn.jobs([job_id for some in chosen for _, _, job_id in some])
    long = [one.job for one in known.values() if one.job.args_rows]
    whole = await turn.all_args(long) if long else {}
    claims: list[list[Claim]] = [[] for _ in asks]
    for ask, some, mine in zip(asks, chosen, claims, strict=True):
        for head, due, job_id in some:
            if (one := _start(turn, ask, len(mine), head, due, job_id, known.get(job_id), whole)) is not None:
                mine.append(one)
    for head in (head for head in heads if head.bucket.count):
        # The bucket stands in line again, with the first row that was not used as its head.
        if head.used < len(head.rows):
            state.lines.set_head(head.bucket, head.rows[head.used][0])
        else:
            state.lines.headless[head.bucket.prefix] = head.bucket
    return claims


def _range(turn: Turn, bucket: PriorityBucket, most: int) -> Range:
    """Return the range of as many rows as may start, and one more, which is the next head."""
    room = turn.state.lines.room(bucket.line.pool) if bucket.line.pool else None
    limit = min(most, bucket.count, most if room is None else room) + 1
    prefix = bucket.prefix
    return prefix + b"%015d/" % bucket.first_due, after(prefix), limit


Choice = list[tuple[_Head, int, str]]


def _choose(turn: Turn, asks: Sequence[Ask], rows: Iterator[list[Row]]) -> tuple[list[_Head], list[Choice]]:
    """Return what was read of each bucket, and for each ask its first `most` in start order: no more of a pool, for all
    asks together, than it has slots."""
    room: dict[str, int | None] = {}
    heads: list[_Head] = []
    choices: list[Choice] = []
    for ask in asks:
        waiting: list[tuple[int, str, int, int, _Head]] = []
        for bucket in ask.buckets:
            if (pool := bucket.line.pool) and pool not in room:
                room[pool] = turn.state.lines.room(pool)
            head = _Head(bucket, [split_line_tail(key) for key, _ in next(rows)])
            heads.append(head)
            ahead_ms, n = bucket.priority * PRIORITY_MS, len(heads)
            waiting += [(due - ahead_ms, job_id, n, due, head) for due, job_id in head.rows if due <= turn.now]
        waiting.sort(key=lambda one: one[:3])
        chosen: Choice = []
        for _, job_id, _, due, head in waiting:
            if len(chosen) == ask.most:
                break
            left = room.get(head.bucket.line.pool)
            if left == 0:
                continue
            if left is not None:
                room[head.bucket.line.pool] = left - 1
            head.used += 1
            chosen.append((head, due, job_id))
        choices.append(chosen)
    return heads, choices


def _start(
    turn: Turn,
    ask: Ask,
    n: int,
    head: _Head,
    due: int,
    job_id: str,
    known: Known | None,
    args_of: Mapping[str, bytes],
) -> Claim | None:
    """Give the n-th job of an ask its lease; None where it cannot start, or the turn is full."""
    if turn.is_full:
        head.used -= 1  # those that follow in this head are left, too
        return None
    if known is None:
        set_place_aside(turn, head.bucket, due, job_id)
        return None
    job, at = known.job, known.at
    if at.next_at != due:  # the line decides where the job stands
        at = msgspec.structs.replace(at, next_at=due)
    if job.expires_at is not None and is_expired(job, at, turn.now):
        apply_to_waiting(turn, job, at, Expire(at))
        return None
    whole = args_of.get(job_id, job.args)
    if (fault := job_fault(job, whole)) is not None:
        apply_to_waiting(turn, job, at, damaged(at, fault, turn.now))
        return None
    holder, length_ms = (turn.owner, lease_ms(turn, job)) if ask.holders is None else ask.holders[n]
    token = turn.token()
    lease = LeaseRow(
        until=turn.now + length_ms,
        length_ms=length_ms,
        started=turn.now,
        kind="fired" if ask.holders is None else PULLED,
        host=holder,
        incarnation=job.incarnation,
        pool=job.pool,
        queue=job.queue,
        priority=job.priority,
        at=msgspec.structs.replace(at, attempt=at.attempt + 1, last_token=token),
    )
    start(turn, job, at, token, lease)
    if job.args_size is None:
        return Claim(token, job, lease, whole)
    blob = parts_of(job, whole)
    return Claim(token, job, lease, blob.args, parent_result=blob.parent_result)
