"""Say why a job is not running: every reason, in words and as data, from committed state and what the host knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from tocsin.actors.scheduler.inflight.lanes_to import LANES_FULL
from tocsin.actors.scheduler.inflight.permits import CIRCUIT_OPEN, HOST_FULL, HOST_HELD, NOT_DISPATCHING, SUSPECTS_FULL
from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.health import ORIGIN_COOLING, ORIGIN_NOT_CONFIGURED, code_of
from tocsin.actors.scheduler.model.job_record import Found
from tocsin.actors.scheduler.model.moving import moved_to, moving_to
from tocsin.actors.scheduler.model.records import By, ErrorInfo, Pool, Reason, Record, pause_of
from tocsin.actors.scheduler.model.rows import INSTANCE, PULLED, InstanceRow, PoolRow
from tocsin.actors.scheduler.model.suspects import ALONE, FEW, SOME, level_of
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries.calls import put_off
from tocsin.actors.scheduler.queries.in_front import COUNTED, in_front, in_lanes
from tocsin.actors.scheduler.queries.keys import of_key, place_words
from tocsin.actors.scheduler.state.job_queues import slots_left
from tocsin.actors.scheduler.transitions import redrive as redrives
from tocsin.actors.scheduler.transitions.job import is_expired
from tocsin.dispatch.durations import span
from tocsin.dispatch.origin import lacking
from tocsin.errors import StoreError
from tocsin.storage.api import StoreView

HOLDERS_NAMED = 20
WITH_LINE: Final = frozenset({"POOL_FULL", "POOL_RATE", "KEY_FULL", LANES_FULL, HOST_FULL, "NO_WORKER"})
"""Reasons that end for one job after the other."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that only the host knows: its lanes and permits, the circuit, its store, who waits for work."""

    lanes_limit: int
    max_in_flight: int
    max_suspects: int
    hindrances: Callable[[int], Sequence[str]]
    """Codes of what keeps callbacks of this level (see `suspects`) from starting."""
    circuit: str | None
    """Why the circuit is open, in words; None if it is closed."""
    circuit_since: int | None
    wall: int
    """The present of the host, epoch ms: a test clock's may be another."""
    in_flight: int
    """How many lanes of this scheduler are in use."""
    store_trouble: StoreError | None
    stopping: bool
    alarm_failures: int
    waiting_for: Callable[[str], int]
    """How many claims wait for a queue on this host."""
    of_origin: Callable[[str], Facts]
    """The facts for callbacks to a named origin."""
    origin: str = ""
    """The named origin of which lanes, permits and circuit are told; "" is the host's own."""
    cools_until: int | None = None


async def reasons(view: StoreView, job_id: str, now: int, facts: Facts) -> list[Reason]:
    """Return every reason; none only for a job that may start at this instant. Claims ask the same rules."""
    found = await query.find(view, job_id)
    if found is None:
        return [
            Reason(
                "NOT_FOUND", f"there is no job {job_id!r}: it has ended, was cancelled, or never was; see its history"
            )
        ]
    record, level = found.record(now), level_of(found.place)
    if (extras := found.job.extras) is not None and extras.origin:
        facts = facts.of_origin(extras.origin)
    if record.state == "dead":
        return [*_moves(await _instance(view)), await _dead(view, record)]
    if record.state == "running":
        return [*_moves(await _instance(view)), _running(found, record, facts.wall), *put_off(record, now)]
    if is_expired(found.job, found.place, now):
        return [Reason("EXPIRED", "its time is over: it is recorded as expired, and never sent", record.expires_at)]
    said = _of_job(record, level, now)
    if said and (clock := query.read(ClockRow, CLOCK, (await view.get([CLOCK])).get(CLOCK))) is not None:
        moves = f"advanced to {_clock_time(clock.target)}" if clock.target else "frozen"
        stands = f"this instance has a test clock, which stands at {_clock_time(clock.at)} and is {moves}"
        said.append(Reason("TEST_CLOCK", stands))
    said.extend(await of_instance(view, now))
    pool: Pool | None = None
    if record.pool is not None:
        pool = await query.pool(view, record.pool, now)
        said.extend(of_pool(pool, now, facts.wall))
    if pool is not None or record.queue is not None:
        said.extend(await of_key(view, found, pool))
    if record.queue is None:
        held = [of_callbacks(code, facts) for code in facts.hindrances(level)]
        said += of_host(facts) + [await _in_lanes(view, one, facts) if one.code == LANES_FULL else one for one in held]
    else:
        if record.state == "waiting" and not facts.waiting_for(record.queue):
            said.append(Reason("NO_WORKER", f"no claim waits for queue {record.queue} on this host"))
        said += of_host(facts)
    return await _with_place(view, found, said, now, pool) if record.state == "waiting" else said


async def _with_place(
    view: StoreView, found: Found, said: Sequence[Reason], now: int, pool: Pool | None
) -> list[Reason]:
    """Say of reasons that a line forms behind them how many jobs of its line go before this one."""
    moving = [one for one in said if one.code in WITH_LINE and not (one.code == "POOL_FULL" and one.at is None)]
    if not moving:
        return list(said)
    behind = await in_front(view, found, now)
    where = place_words(behind, " or more" if behind >= COUNTED else "", found)
    placed = [
        msgspec.structs.replace(one, message=f"{one.message}; {where}", behind=behind) if one in moving else one
        for one in said
    ]
    return [_with_turn(one, pool, now) if one.code == "POOL_RATE" and pool is not None else one for one in placed]


def _with_turn(one: Reason, pool: Pool, now: int) -> Reason:
    """Say when the turn of a job comes by the rate of its pool, if nothing else holds it and nobody comes before it."""
    if not one.behind or one.at is None or pool.rate is None:
        return one
    turn = one.at - -one.behind * pool.rate.per_ms // pool.rate.limit
    said = f"{one.message}, so its turn comes in {precise_span(turn - now)} at the earliest"
    return msgspec.structs.replace(one, message=said, at=turn)


async def _in_lanes(view: StoreView, full: Reason, facts: Facts) -> Reason:
    """Say who has the lanes."""
    found = await in_lanes(view, facts.origin)
    if not found:
        return full
    job, since = found[0]
    message = f"{full.message}, the longest by {job} for {_span(facts.wall - since)}"
    return msgspec.structs.replace(full, message=message, holders=[one for one, _ in found[:HOLDERS_NAMED]])


async def _dead(view: StoreView, record: Record) -> Reason:
    """Say why it was given up, and whether a bulk retry comes to it."""
    error = f": {_words(record.last_error)}" if record.last_error else ""
    said, parked = f"it was given up ({record.reason}){error}", record.parked_at or 0
    for name, row in (await redrives.running(view)).items():
        fits = (
            row.since <= parked < row.before
            and row.pool in (None, record.pool)
            and row.reason in (None, record.reason)
            and row.path in (None, record.function_path, record.workflow)
        )
        if fits and (parked, record.id) > row.cursor:
            pace = f"{row.rate} a second, {row.retried:,} of {row.matched:,} so far"
            return Reason("DEAD", f"{said}; the bulk retry {name} comes to it: {pace}", record.parked_at)
    return Reason("DEAD", f"{said}; retry or cancel the dead letter", record.parked_at)


def precise_span(ms: int) -> str:
    """Format a short duration to the ms: rates of pools make jobs wait for less than a second."""
    if ms < 1_000:
        return f"{max(ms, 0)}ms"
    return f"{-(-ms // 100) / 10:.1f}s" if ms < 10_000 else span(ms + 999)


def _span(ms: int) -> str:
    """Format a duration; clocks of two hosts may differ by a little."""
    return span(max(ms, 0))


def _clock_time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _paused(what: str, since: int | None, by: By | None, now: int | None) -> str:
    """Say for how long something has been paused and by whom, as far as that is known."""
    lasts = "" if since is None or now is None else f" for {_span(now - since)}"
    who = "" if by is None else by.user or (f"token {by.token}" if by.token else "")
    return f"{what} {'has been' if lasts else 'is'} paused{lasts}{f', by {who}' if who else ''}"


def _words(error: ErrorInfo) -> str:
    """Return what an error says, behind its code."""
    return f"{error.code}: {error.message}" if error.code else error.message


def _running(found: Found, record: Record, now: int) -> Reason:
    assert record.lease is not None and found.running is not None
    lease, since = record.lease, found.running.started
    lasts, left = _span(now - since), _span(lease.until - now + 999)
    words = {
        "fired": f"it is running: its callback has been on its way for {lasts}, or its host was lost: tried again when "
        f"its lease ends, in {left}",
        "accepted": f"it is running: the receiver accepted it {lasts} ago and has not completed it yet; its lease ends "
        f"in {left}",
        "unknown": f"an attempt got no answer and may still run there: nothing starts before its lease ends, in {left}",
    }
    said = words.get(lease.kind, lease.kind)
    if lease.kind == PULLED:
        who = "a worker" if lease.worker is None else f"worker {lease.worker}"
        said = f"it is running: {who} has it, for {lasts} now; its lease ends in {left}"
    return Reason("RUNNING", said, lease.until, since=since)


def _of_job(record: Record, level: int, now: int) -> list[Reason]:
    found: list[Reason] = []
    if record.next_attempt_at is not None and record.next_attempt_at > now:
        wait = span(record.next_attempt_at - now + 999)  # rounded up: never before
        if record.attempt:
            error = f" after: {_words(record.last_error)}" if record.last_error else ""
            found.append(Reason("RETRY_LATER", f"its next attempt is in {wait}{error}", record.next_attempt_at))
        else:
            found += [Reason("NOT_DUE", f"it is due in {wait}", record.next_attempt_at), *put_off(record, now)]
    if level:
        found.append(_apart(record, level))
    return found


def _apart(record: Record, level: int) -> Reason:
    """Say how a job is kept apart that its hosts or workers may have died of."""
    whom = "hosts were lost while it ran" if record.queue is None else "workers were lost while they had it"
    how = {
        (ALONE, True): "it starts when nothing else runs on this host, and nothing else starts meanwhile",
        (ALONE, False): "it goes to a worker that has nothing else",
        (FEW, True): "it starts beside others, with few that are suspect, too",
        (FEW, False): "it goes to a worker that has nothing else that is suspect",
        (SOME, True): "it starts beside others, with some that are suspect, too",
        (SOME, False): "it goes to a worker that has few that are suspect",
    }
    said = f"{record.losses} {whom}: {how[level, record.queue is None]}"
    return Reason("ALONE" if level == ALONE else "APART", said)


async def of_instance(view: StoreView, now: int | None = None) -> list[Reason]:
    """Say why nothing of this instance starts; nothing if it may. `now`: to say for how long."""
    row = await _instance(view)
    if row.erasing:
        return [Reason("REMOVING", "this instance is being removed")]
    if not row.paused:
        return _moves(row)
    since, by = pause_of(row.pause)
    return [*_moves(row), Reason("INSTANCE_PAUSED", _paused("this instance", since, by, now), since=since, by=by)]


async def _instance(view: StoreView) -> InstanceRow:
    return query.read(InstanceRow, INSTANCE, (await view.get([INSTANCE])).get(INSTANCE)) or InstanceRow()


def _moves(row: InstanceRow) -> list[Reason]:
    """Say that the instance is elsewhere now, or about to be."""
    if (to := moved_to(row)) is not None:
        said = f"this instance has moved to {to}, and nothing of it starts here: ask there"
        return [Reason("INSTANCE_MOVED", said)]
    if (to := moving_to(row)) is not None:
        return [Reason("INSTANCE_MOVING", f"this instance is moving to {to}, and starts nothing meanwhile")]
    return []


def of_pool(pool: Pool, now: int, wall: int | None = None) -> list[Reason]:
    """Say why no job of this pool starts; nothing if one may. The host's `wall`: to say for how long."""
    return [*_of_slots(pool, now, wall), *_of_flow(pool, now)]


def _of_flow(pool: Pool, now: int) -> list[Reason]:
    """Say what its rate and its cooling hold back."""
    found: list[Reason] = []
    name, cools, token = pool.name, pool.cooling_until, pool.next_token_at
    if cools is not None and cools > now:
        said = f"pool {name} cools: a receiver was busy and asked to wait, for another {_span(cools - now + 999)}"
        found.append(Reason("POOL_COOLING", said, cools, name))
    elif token is not None and token > now and pool.rate is not None:
        said = f"pool {name} starts {pool.rate}: its next one may start in {precise_span(token - now)}"
        found.append(Reason("POOL_RATE", said, token, name))
    return found


def _of_slots(pool: Pool, now: int, wall: int | None) -> list[Reason]:
    name = pool.name
    holders = [holder.id for holder in pool.holders[:HOLDERS_NAMED]]
    if slots_left(PoolRow(pool.max_concurrency, pool.paused), pool.in_flight):
        return []
    if pool.paused:
        since, by = pool.paused_at, pool.paused_by
        return [Reason("POOL_PAUSED", _paused(f"pool {name}", since, by, now), pool=name, since=since, by=by)]
    if not pool.max_concurrency:
        said = f"pool {name} is closed: its cap is 0"
        return [Reason("POOL_FULL", said, None, name, holders)]
    said = f"pool {name} is full: {pool.in_flight} of {pool.max_concurrency} slots are held"
    first = min(pool.holders, key=lambda holder: (holder.until, holder.id), default=None)
    ends = None if first is None else first.until
    if first is not None and wall is not None:
        said = f"{said}; the lease of {first.id} ends first, in {_span(first.until - wall + 999)}"
    return [Reason("POOL_FULL", said, ends, name, holders)]


def of_host(facts: Facts) -> list[Reason]:
    """Say what holds up everything on this host."""
    found: list[Reason] = []
    if facts.stopping:
        found.append(Reason("HOST_STOPPING", "the host is stopping"))
    if (trouble := facts.store_trouble) is not None:
        found.append(Reason(code_of(trouble), f"nothing new is started: {trouble}"))
    if facts.alarm_failures:
        found.append(Reason("ALARM_FAILING", f"the scheduler's alarm has failed {facts.alarm_failures} times in a row"))
    return found


def of_callbacks(code: str, facts: Facts) -> Reason:
    """Say what holds up callbacks; pulled work goes on."""
    cools_ms = (facts.cools_until or 0) - facts.wall + 999
    to = f" to the origin {facts.origin}" if facts.origin else ""
    named = f" {facts.origin}" if facts.origin else ""
    words = {
        NOT_DISPATCHING: "this host starts nothing by itself: it was opened with dispatch=False, call run_due()",
        CIRCUIT_OPEN: f"{facts.circuit}; one callback every 5 s is tried{_lasts(facts)}",
        LANES_FULL: f"all {facts.lanes_limit} lanes of this scheduler{to} are in use",
        HOST_FULL: f"all {facts.max_in_flight} callbacks this host may have in flight{to} are: {facts.in_flight} of "
        f"this scheduler, {max(facts.max_in_flight - facts.in_flight, 0)} of others",
        HOST_HELD: "a job that four hosts were lost with runs alone on this host, or is about to; others go on then",
        ORIGIN_NOT_CONFIGURED: lacking(facts.origin),
        ORIGIN_COOLING: f"the origin{named} asked for no callbacks for {_span(cools_ms)} more",
        SUSPECTS_FULL: f"all {facts.max_suspects} places of this host for jobs that hosts were lost with are taken",
    }
    since = facts.circuit_since if code == CIRCUIT_OPEN else None
    return Reason(code, words[code], facts.cools_until if code == ORIGIN_COOLING else None, since=since)


def _lasts(facts: Facts) -> str:
    """Say for how long the circuit has been open."""
    return "" if facts.circuit_since is None else f", for {_span(facts.wall - facts.circuit_since)} now"
