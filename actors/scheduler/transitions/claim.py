"""Claim turns: due jobs exchange their place in their queue for a lease. Nothing is sent before the lease is on
disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.damage import job_fault
from tocsin.actors.scheduler.model.line_names import shard_of
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import PULLED, JobRow, LeaseRow, split_line_tail
from tocsin.actors.scheduler.state.fronts import Known, Place
from tocsin.actors.scheduler.state.ready_heap import PRIORITY_MS, PriorityBucket
from tocsin.actors.scheduler.state.turn import STEPS, Turn, lease_ms
from tocsin.actors.scheduler.transitions.apply import apply_to_waiting, set_place_aside, start
from tocsin.actors.scheduler.transitions.fair_choice import Due, FairChoice
from tocsin.actors.scheduler.transitions.job import Expire, damaged, is_expired
from tocsin.storage.api import Range, after


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
    """A bucket taken for this claim, as many of its first places as may start and one more, the jobs that are known
    there, and how many of those places were used."""

    bucket: PriorityBucket
    most: int
    places: Sequence[Place] = ()
    jobs: Mapping[str, Known] = field(default_factory=dict)
    used: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """Buckets that were taken out of their heads, and how many jobs are wanted of them."""

    buckets: list[PriorityBucket]
    most: int
    holders: Sequence[tuple[str, int]] | None = None
    """The worker that gets the n-th of those jobs, and for how many ms; None: callbacks of this host."""


async def claim(turn: Turn, most: int, origin: str = "") -> list[Claim]:
    """Claim up to `most` due callbacks to an origin in start order: (due - priority x 30 s, id)."""
    buckets = turn.state.lines.pick(turn.now, most, origin) if most > 0 else []
    return (await claim_asked(turn, [Ask(buckets, most)]))[0] if buckets else []


async def claim_suspects(turn: Turn, level: int, most: int, origin: str = "") -> list[Claim]:
    """Claim up to `most` due callbacks of suspects of one level and origin, in start order."""
    buckets = turn.state.lines.suspects_ready(turn.now, level, origin)[:most]
    claims = (await claim_asked(turn, [Ask(buckets, most)]))[0] if buckets else []
    return [msgspec.structs.replace(one, level=level) for one in claims]


async def claim_asked(turn: Turn, asks: Sequence[Ask]) -> list[list[Claim]]:
    """Claim what each asks for, limited by due jobs, free pool slots and the turn's write budget.

    No hop where the first jobs of all buckets are known, else two for all of them; one more for long args.
    """
    state = turn.state
    heads = await _heads(turn, asks)
    chosen = _choose(turn, asks, iter(heads))
    long = [known.job for some in chosen for _, _, _, known in some if known is not None and known.job.args_rows]
    whole = await turn.all_args(long) if long else {}
    claims: list[list[Claim]] = [[] for _ in asks]
    for ask, some, mine in zip(asks, chosen, claims, strict=True):
        for n, (head, due, job_id, known) in enumerate(some):
            if n % STEPS == 0 and turn.is_full:
                for left, *_ in some[n:]:
                    left.used -= 1
                break
            if (one := _start(turn, ask, len(mine), head, due, job_id, known, whole)) is not None:
                mine.append(one)
    for head in heads:
        # The bucket stands in line again, with the first row that was not used as its head.
        bucket = head.bucket
        if not bucket.count or state.find_head(bucket):
            continue
        if head.used < len(head.places):
            state.lines.set_head(bucket, head.places[head.used][0])
        else:
            state.lines.headless[bucket.prefix] = bucket
    return claims


async def _heads(turn: Turn, asks: Sequence[Ask]) -> list[_Head]:
    """Return the first places of each bucket, read where they are not known."""
    lines, fronts = turn.state.lines, turn.state.fronts
    heads: list[_Head] = []
    unknown: list[_Head] = []
    for ask in asks:
        for bucket in ask.buckets:
            room = lines.room(bucket.line.pool) if bucket.line.pool else None
            head = _Head(bucket, min(ask.most, bucket.count, ask.most if room is None else room))
            heads.append(head)
            front = fronts.reaching(bucket.prefix, bucket.count, head.most, turn.now)
            if front is None:
                unknown.append(head)
            else:
                head.places, head.jobs = front.places[: head.most + 1], front.jobs
    if unknown:
        await _read(turn, unknown)
    return heads


async def _read(turn: Turn, heads: Sequence[_Head]) -> None:
    """Read the first places of these buckets, and some that are behind them, which later claims will need."""
    state, fronts = turn.state, turn.state.fronts
    ranges: list[Range] = []
    for head in heads:
        prefix, limit = head.bucket.prefix, fronts.ahead(head.most, len(heads))
        ranges.append((prefix + b"%015d/" % head.bucket.first_due, after(prefix), limit))
    for head, rows in zip(heads, await state.storage.scan_many(ranges), strict=True):
        head.places = [split_line_tail(key) for key, _ in rows]
    known: dict[str, Known] = {}
    for head in heads:
        known.update(fronts.known(head.bucket.prefix))
    known |= await turn.jobs([job_id for head in heads for _, job_id in head.places if job_id not in known])
    for head in heads:
        head.jobs = known
        fronts.read(head.bucket.prefix, head.places, known)


Choice = list[tuple[_Head, int, str, Known | None]]


def _choose(turn: Turn, asks: Sequence[Ask], heads: Iterator[_Head]) -> list[Choice]:
    """Return for each ask its first `most` in start order: no more of a pool, for all asks together, than it has
    slots."""
    room: dict[str, int | None] = {}
    rotas = turn.state.lines.rotas
    fair: FairChoice[_Head] | None = None if rotas is None else FairChoice(rotas)
    choices: list[Choice] = []
    for ask in asks:
        waiting: list[Due[_Head]] = []
        for n, bucket in enumerate(ask.buckets):
            if (pool := bucket.line.pool) and pool not in room:
                room[pool] = turn.state.lines.room(pool)
            head, ahead_ms = next(heads), bucket.priority * PRIORITY_MS
            waiting += [(due - ahead_ms, one, n, due, head, one) for due, one in head.places if due <= turn.now]
        if fair is not None:
            waiting = fair.in_turn(waiting, room, ask.most)
        if len(ask.buckets) > 1:
            waiting.sort(key=_start_order)
        chosen: Choice = []
        for _, _, _, due, head, job_id in waiting:
            if len(chosen) == ask.most:
                break
            left = room.get(head.bucket.line.pool)
            if left == 0 or (fair is not None and not fair.may_take(head.bucket.line)):
                continue
            if left is not None:
                room[head.bucket.line.pool] = left - 1
            head.used += 1
            chosen.append((head, due, job_id, head.jobs.get(job_id)))
        choices.append(chosen)
    return choices


_start_order: Final = itemgetter(0, 1, 2)


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
    """Give the n-th job of an ask its lease; None where it cannot start."""
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
        until=turn.wall + length_ms,
        length_ms=length_ms,
        started=turn.now,
        kind="fired" if ask.holders is None else PULLED,
        host=holder,
        incarnation=job.incarnation,
        pool=job.pool,
        queue=job.queue,
        priority=job.priority,
        shard=shard_of(job.shard_key or "") if at.in_turn else "",
        origin="" if job.extras is None else job.extras.origin,
        at=msgspec.structs.replace(at, attempt=at.attempt + 1, last_token=token),
    )
    start(turn, job, at, token, lease)
    if ask.holders is not None:
        turn.state.held.keep(token, known)
    if job.args_size is None:
        return Claim(token, job, lease, whole)
    blob = parts_of(job, whole)
    return Claim(token, job, lease, blob.args, parent_result=blob.parent_result)
