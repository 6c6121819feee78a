"""Why a job is not running: every reason, in words and as data, from committed state and what the host knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tocsin.actors.scheduler import query
from tocsin.actors.scheduler.health import code_of
from tocsin.actors.scheduler.lines import LOSSES_TOGETHER
from tocsin.actors.scheduler.records import Reason, Record
from tocsin.actors.scheduler.rows import INSTANCE, PULLED, InstanceRow
from tocsin.errors import StoreError
from tocsin.storage.api import StoreView

HOLDERS_NAMED = 20


@dataclass(frozen=True, slots=True)
class Facts:
    """What only the host knows: its lanes and permits, the circuit, its store, who waits for work."""

    lanes_in_flight: int
    lanes_limit: int
    in_flight: int
    max_in_flight: int
    circuit: str | None
    """Why it is open, in words."""
    store_trouble: StoreError | None
    stopping: bool
    alarm_failures: int
    waiting_for: Callable[[str], int]
    """How many claims wait for a queue on this host."""


async def reasons(view: StoreView, job_id: str, now: int, facts: Facts) -> list[Reason]:
    """Empty only for a job that may start at this instant."""
    record = await query.get(view, job_id, now)
    if record is None:
        return [
            Reason(
                "NOT_FOUND", f"there is no job {job_id!r}: it has ended, was cancelled, or never was; see its history"
            )
        ]
    if record.state == "dead":
        error = f": {record.last_error.message}" if record.last_error else ""
        return [
            Reason(
                "DEAD", f"it was given up ({record.reason}){error}; retry or cancel the dead letter", record.parked_at
            )
        ]
    if record.state == "running":
        return [_running(record)]
    found = _of_job(record, now)
    found.extend(await _of_instance(view))
    if record.pool is not None:
        found.extend(await _of_pool(view, record.pool))
    if record.queue is None:
        return found + _of_host(facts) + _of_callbacks(facts)
    if record.state == "waiting" and not facts.waiting_for(record.queue):
        found.append(Reason("NO_WORKER", f"no claim waits for queue {record.queue} on this host"))
    return found + _of_host(facts)


def _running(record: Record) -> Reason:
    assert record.lease is not None
    words = {
        "fired": "it is running: its callback is on its way",
        "accepted": "it is running: the receiver accepted it and has not completed it yet",
        "unknown": "an attempt got no answer and may still run there: nothing starts before its lease ends",
    }
    if record.lease.kind == PULLED:
        who = "a worker" if record.lease.worker is None else f"worker {record.lease.worker}"
        return Reason("RUNNING", f"it is running: {who} has it", record.lease.until)
    return Reason("RUNNING", words.get(record.lease.kind, record.lease.kind), record.lease.until)


def _of_job(record: Record, now: int) -> list[Reason]:
    found: list[Reason] = []
    if record.next_attempt_at is not None and record.next_attempt_at > now:
        wait = record.next_attempt_at - now
        if record.attempt:
            error = f" after: {record.last_error.message}" if record.last_error else ""
            found.append(Reason("RETRY_LATER", f"its next attempt is in {wait} ms{error}", record.next_attempt_at))
        else:
            found.append(Reason("NOT_DUE", f"it is due in {wait} ms", record.next_attempt_at))
    if record.losses >= LOSSES_TOGETHER:
        if record.queue is None:
            said = f"{record.losses} hosts were lost while it ran: it starts when nothing else runs"
        else:
            said = f"{record.losses} workers were lost while they had it: it goes to one that has nothing else"
        found.append(Reason("ALONE", said))
    return found


async def _of_instance(view: StoreView) -> list[Reason]:
    row = query.read(InstanceRow, INSTANCE, (await view.get([INSTANCE])).get(INSTANCE))
    if row is None or not row.paused:
        return []
    if row.erasing:
        return [Reason("REMOVING", "this instance is being removed")]
    return [Reason("INSTANCE_PAUSED", "this instance is paused")]


async def _of_pool(view: StoreView, name: str) -> list[Reason]:
    pool = await query.pool(view, name)
    holders = [holder.id for holder in pool.holders[:HOLDERS_NAMED]]
    if pool.paused:
        return [Reason("POOL_PAUSED", f"pool {name} is paused", pool=name)]
    if pool.in_flight >= pool.max_concurrency:
        said = f"pool {name} is full: {pool.in_flight} of {pool.max_concurrency} slots are held"
        ends = min((holder.until for holder in pool.holders), default=None)
        return [Reason("POOL_FULL", said, ends, name, holders)]
    return []


def _of_host(facts: Facts) -> list[Reason]:
    found: list[Reason] = []
    if facts.stopping:
        found.append(Reason("HOST_STOPPING", "the host is stopping"))
    if (trouble := facts.store_trouble) is not None:
        found.append(Reason(code_of(trouble), f"nothing new is started: {trouble}"))
    if facts.alarm_failures:
        found.append(Reason("ALARM_FAILING", f"the scheduler's alarm has failed {facts.alarm_failures} times in a row"))
    return found


def _of_callbacks(facts: Facts) -> list[Reason]:
    """What holds up callbacks, and no work that is pulled."""
    found: list[Reason] = []
    if facts.circuit is not None:
        found.append(Reason("CIRCUIT_OPEN", f"{facts.circuit}; one callback every 5 s is tried"))
    if facts.lanes_in_flight >= facts.lanes_limit:
        found.append(Reason("LANES_FULL", f"all {facts.lanes_limit} lanes of this scheduler are in use"))
    if facts.in_flight >= facts.max_in_flight:
        found.append(Reason("HOST_FULL", f"all {facts.max_in_flight} callbacks this host may have in flight are"))
    return found
