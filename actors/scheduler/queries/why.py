"""Say why a job is not running: every reason, in words and as data, from committed state and what the host knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tocsin.actors.scheduler.inflight.lanes import LANES_FULL
from tocsin.actors.scheduler.inflight.permits import CIRCUIT_OPEN, HOST_FULL, HOST_HELD, NOT_DISPATCHING, SUSPECTS_FULL
from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.health import code_of
from tocsin.actors.scheduler.model.records import ErrorInfo, Reason, Record
from tocsin.actors.scheduler.model.rows import INSTANCE, PULLED, InstanceRow, PoolRow
from tocsin.actors.scheduler.model.suspects import ALONE, FEW, SOME, level_of
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.state.job_queues import slots_left
from tocsin.actors.scheduler.transitions.job import is_expired
from tocsin.dispatch.durations import span
from tocsin.errors import StoreError
from tocsin.storage.api import StoreView

HOLDERS_NAMED = 20


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
    store_trouble: StoreError | None
    stopping: bool
    alarm_failures: int
    waiting_for: Callable[[str], int]
    """How many claims wait for a queue on this host."""


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
    if record.state == "dead":
        error = f": {_words(record.last_error)}" if record.last_error else ""
        return [
            Reason(
                "DEAD", f"it was given up ({record.reason}){error}; retry or cancel the dead letter", record.parked_at
            )
        ]
    if record.state == "running":
        return [_running(record)]
    if is_expired(found.job, found.place, now):
        return [Reason("EXPIRED", "its time is over: it is recorded as expired, and never sent", record.expires_at)]
    said = _of_job(record, level, now)
    if said and (clock := query.read(ClockRow, CLOCK, (await view.get([CLOCK])).get(CLOCK))) is not None:
        moves = f"advanced to {clock.target}" if clock.target else "frozen"
        said.append(Reason("TEST_CLOCK", f"this instance has a test clock, which stands at {clock.at} and is {moves}"))
    said.extend(await of_instance(view))
    if record.pool is not None:
        said.extend(await of_pool(view, record.pool))
    if record.queue is None:
        return said + of_host(facts) + [of_callbacks(code, facts) for code in facts.hindrances(level)]
    if record.state == "waiting" and not facts.waiting_for(record.queue):
        said.append(Reason("NO_WORKER", f"no claim waits for queue {record.queue} on this host"))
    return said + of_host(facts)


def _words(error: ErrorInfo) -> str:
    """Return what an error says, behind its code."""
    return f"{error.code}: {error.message}" if error.code else error.message


def _running(record: Record) -> Reason:
    assert record.lease is not None
    words = {
        "fired": "it is running: its callback is on its way, or its host was lost: tried again when its lease ends",
        "accepted": "it is running: the receiver accepted it and has not completed it yet",
        "unknown": "an attempt got no answer and may still run there: nothing starts before its lease ends",
    }
    if record.lease.kind == PULLED:
        who = "a worker" if record.lease.worker is None else f"worker {record.lease.worker}"
        return Reason("RUNNING", f"it is running: {who} has it", record.lease.until)
    return Reason("RUNNING", words.get(record.lease.kind, record.lease.kind), record.lease.until)


def _of_job(record: Record, level: int, now: int) -> list[Reason]:
    found: list[Reason] = []
    if record.next_attempt_at is not None and record.next_attempt_at > now:
        wait = span(record.next_attempt_at - now + 999)  # rounded up: never before
        if record.attempt:
            error = f" after: {_words(record.last_error)}" if record.last_error else ""
            found.append(Reason("RETRY_LATER", f"its next attempt is in {wait}{error}", record.next_attempt_at))
        else:
            found.append(Reason("NOT_DUE", f"it is due in {wait}", record.next_attempt_at))
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


async def of_instance(view: StoreView) -> list[Reason]:
    """Say why nothing of this instance starts; nothing if it may."""
    row = query.read(InstanceRow, INSTANCE, (await view.get([INSTANCE])).get(INSTANCE))
    if row is None or not row.paused:
        return []
    if row.erasing:
        return [Reason("REMOVING", "this instance is being removed")]
    return [Reason("INSTANCE_PAUSED", "this instance is paused")]


async def of_pool(view: StoreView, name: str) -> list[Reason]:
    """Say why no job of this pool starts; nothing if one may."""
    pool = await query.pool(view, name)
    holders = [holder.id for holder in pool.holders[:HOLDERS_NAMED]]
    if slots_left(PoolRow(pool.max_concurrency, pool.paused), pool.in_flight):
        return []
    if pool.paused:
        return [Reason("POOL_PAUSED", f"pool {name} is paused", pool=name)]
    if not pool.max_concurrency:
        said = f"pool {name} is closed: its cap is 0"
        return [Reason("POOL_FULL", said, None, name, holders)]
    said = f"pool {name} is full: {pool.in_flight} of {pool.max_concurrency} slots are held"
    ends = min((holder.until for holder in pool.holders), default=None)
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
    words = {
        NOT_DISPATCHING: "this host starts nothing by itself: it was opened with dispatch=False, call run_due()",
        CIRCUIT_OPEN: f"{facts.circuit}; one callback every 5 s is tried",
        LANES_FULL: f"all {facts.lanes_limit} lanes of this scheduler are in use",
        HOST_FULL: f"all {facts.max_in_flight} callbacks this host may have in flight are",
        HOST_HELD: "a job that four hosts were lost with runs alone on this host, or is about to; others go on then",
        SUSPECTS_FULL: f"all {facts.max_suspects} places of this host for jobs that hosts were lost with are taken",
    }
    return Reason(code, words[code])
