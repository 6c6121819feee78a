"""Do what is due when time has passed: end or renew leases, ring timers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tocsin.actors.scheduler.model.acts import UNDO
from tocsin.actors.scheduler.model.audit import AUDIT, audit_day
from tocsin.actors.scheduler.model.groups import GROUP, STOP
from tocsin.actors.scheduler.model.instants_of_job import backoff_ms
from tocsin.actors.scheduler.model.later_rows import LATER, THROTTLE
from tocsin.actors.scheduler.model.rows import (
    SOON,
    ResultRow,
    hist_day,
    idem_day,
    result_key,
    split_timer_key,
    timer_key,
)
from tocsin.actors.scheduler.schedules.apply_ends import apply_ends
from tocsin.actors.scheduler.schedules.events import NEW_WORK, RINGS
from tocsin.actors.scheduler.state.scheduler_state import EXPIRE, HISTORY, IDEM, RESULT, RETIRE
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import job as decide
from tocsin.actors.scheduler.transitions.apply import apply, apply_to_letter, apply_to_waiting
from tocsin.actors.scheduler.transitions.following import FOLLOW, follow_later
from tocsin.actors.scheduler.transitions.groups import look_again
from tocsin.actors.scheduler.transitions.job import Drop, Expire
from tocsin.actors.scheduler.transitions.put_off import end_periods, ring_later
from tocsin.actors.scheduler.transitions.redrive import REDRIVE, drive
from tocsin.actors.scheduler.transitions.stopping import go_on_stopping
from tocsin.actors.scheduler.transitions.undo import go_on
from tocsin.storage.api import Row, after

TIMERS_PER_TURN = 500
SOON_PER_TURN = 100
PAGES_WHILE_FULL = 20
"""How many pages of timers are searched, while the store is full, for timers that may ring."""
ROWS_PER_TURN = 500
RENEW_BEFORE_MS = 5_000

Live = Callable[[str], bool]


# ---- Leases --------------------------------------------------------------------------------------


async def end_leases(turn: Turn, live: Live, undelivered: Live = lambda token: False) -> None:
    """Renew the leases of attempts that are live on this host; end the others that are over. If no worker had the job
    yet (`undelivered`), none was lost with it."""
    over: list[str] = []
    for token in turn.state.ended(turn.wall + RENEW_BEFORE_MS):
        _, lease = turn.state.leases[token]
        if lease.kind == "fired" and live(token):
            apply(turn, None, token, decide.renew(lease, turn.wall))
        elif turn.state.end_of(token) <= turn.wall:
            over.append(token)
        else:
            turn.state.remember_end(token)
    if over:
        await _end(turn, over, undelivered)


async def _end(turn: Turn, tokens: Sequence[str], undelivered: Live) -> None:
    ids = {turn.state.leases[token][0] for token in tokens if not turn.state.leases[token][1].orphan}
    known = await turn.jobs(sorted(ids))
    for token in tokens:
        if turn.is_full:
            turn.state.remember_end(token)
            continue
        job_id, lease = turn.state.leases[token]
        job = known[job_id].job if job_id in known else None
        if undelivered(token):
            end = decide.unsent(job, lease, turn.now, message="no worker had it")
        else:
            delay_ms = 0 if job is None else backoff_ms(job, lease.at, turn.random)
            end = decide.lease_ended(job, lease, turn.now, delay_ms)
            turn.state.tally.expired = [*turn.state.tally.expired, lease.kind]
        apply(turn, job, token, end)


async def return_unsent(turn: Turn, live: Live) -> None:
    """At activation, return jobs to their lines, uncharged, whose leases are this process's and not live: they were
    never sent."""
    unsent = [
        token
        for token, (_, lease) in turn.state.leases.items()
        if lease.kind == "fired" and lease.host == turn.owner and not live(token)
    ]
    ids = sorted({turn.state.leases[token][0] for token in unsent})
    known = await turn.jobs(ids) if ids else {}
    for token in unsent:
        if turn.is_full:
            return  # the leases that are left end as those of a lost host do
        job_id, lease = turn.state.leases[token]
        job = known[job_id].job if job_id in known else None
        apply(turn, job, token, decide.unsent(job, lease, turn.now, outcome=None))


# ---- Timers --------------------------------------------------------------------------------------


async def run_timers(turn: Turn, *, full: bool = False) -> None:
    """Let a page of due timers ring; without those that make new work while the store is full."""
    state = turn.state
    if full:
        rows = await _due_while_full(turn)
    else:
        rows, first = await _due_and_next(turn)
        state.note_next_timer(first)  # timers that are put from here on may be earlier
    by_kind: dict[str, list[tuple[int, str]]] = {}
    kept: list[bytes] = []
    for key, _ in rows:
        try:
            ms, kind, name = split_timer_key(key)
        except ValueError:
            state.set_aside(key, b"", "its key has another shape")
            continue
        if kind in RINGS:
            kept.append(key)
        else:
            state.storage.delete(key)
        by_kind.setdefault(kind, []).append((ms, name))
    for kind, due in by_kind.items():
        if (ring := TIMERS.get(kind)) is not None:
            await ring(turn, due)
    if turn.state.occurrences.ended:
        await apply_ends(turn)  # an occurrence that is over by now is in no slot's way, and counted as such
    for kind, due in by_kind.items():
        if (ring := RINGS.get(kind)) is not None:
            await ring(turn, due)
    tick = state.occurrences.tick
    tick.rest = tick.rest or full or len(rows) >= TIMERS_PER_TURN
    # Some may be left that are due: behind a full page, or where their schedules were too much for one turn.
    if full or len(rows) >= SOON_PER_TURN or await state.storage.get_many(kept):
        await state.look_at_timers()


async def _due_and_next(turn: Turn) -> tuple[list[Row], list[Row]]:
    """Return a page of timers that are due, and the first that is not."""
    start, soon, now = b"timer/", timer_key(SOON, "", "")[:-2], b"timer/%015d/" % (turn.now + 1)
    later, sooner, next_one = await turn.state.storage.scan_many(
        [(soon, now, TIMERS_PER_TURN), (start, soon, SOON_PER_TURN), (now, after(b"timer/"), 1)]
    )
    return later + sooner, next_one


async def _due_while_full(turn: Turn) -> list[Row]:
    """Return a page of due timers that make no new work."""
    start, end = b"timer/", b"timer/%015d/" % (turn.now + 1)
    found: list[Row] = []
    for _ in range(PAGES_WHILE_FULL):
        rows = await turn.state.storage.scan(start, end, limit=TIMERS_PER_TURN)
        found += [row for row in rows if row[0].split(b"/")[2:3] not in NEW_WORK]
        if len(rows) < TIMERS_PER_TURN or len(found) >= TIMERS_PER_TURN:
            break
        start = rows[-1][0] + b"\x00"
    return found[:TIMERS_PER_TURN]


Due = Sequence[tuple[int, str]]
"""Instant and key of each timer of one kind."""


async def _expire(turn: Turn, due: Due) -> None:
    """Expire jobs that wait. A running job is checked when its attempt ends."""
    ids = [job_id for _, job_id in due]
    known, dead = await turn.jobs(ids), await turn.dead(ids)
    for ms, job_id in due:
        found = known.get(job_id)
        if turn.is_full:
            turn.state.put_timer(ms, EXPIRE, job_id)
            continue
        if found is None or job_id in dead or found.job.expires_at != ms or not found.at.expires:
            continue
        if turn.state.lease_of(job_id) is None:
            apply_to_waiting(turn, found.job, found.at, Expire(found.at))


async def _forget_history(turn: Turn, due: Due) -> None:
    """Delete the history of whole days, a page a turn."""
    for _, day in due:
        await _forget(turn, HISTORY, hist_day(int(day)), day)


async def _forget(turn: Turn, kind: str, prefix: bytes, day: str) -> None:
    """Delete a page of what one day has left; the days that do not fit into the commit wait for the next turn."""
    if turn.is_full:
        turn.state.put_timer(turn.now, kind, day)
        return
    rows = await turn.state.storage.scan(prefix, after(prefix), limit=ROWS_PER_TURN)
    for key, _ in rows:
        turn.state.storage.delete(key)
    if len(rows) == ROWS_PER_TURN:
        turn.state.put_timer(turn.now, kind, day)


async def _retire(turn: Turn, due: Due) -> None:
    """Drop and count dead letters that are past their age."""
    ids = [job_id for _, job_id in due]
    letters = await turn.letters(ids)
    for ms, job_id in due:
        if turn.is_full:
            turn.state.put_timer(ms, RETIRE, job_id)
        elif job_id in letters and letters[job_id][1].retire_at == ms:
            apply_to_letter(turn, *letters[job_id], Drop(aged=True))


async def _forget_results(turn: Turn, due: Due) -> None:
    rows = await turn.state.storage.get_many([result_key(job_id) for _, job_id in due])
    for ms, job_id in due:
        key = result_key(job_id)
        row = turn.state.read(ResultRow, key, rows[key]) if key in rows else None
        if row is not None and row.until <= ms:  # else the row is of a later job of the same id
            turn.state.storage.delete(key)


async def _forget_answers(turn: Turn, due: Due) -> None:
    for _, day in due:
        await _forget(turn, IDEM, idem_day(int(day)), day)


async def _forget_audit(turn: Turn, due: Due) -> None:
    for _, day in due:
        await _forget(turn, AUDIT, audit_day(int(day)), day)


TIMERS: dict[str, Callable[[Turn, Due], Awaitable[None]]] = {
    AUDIT: _forget_audit,
    EXPIRE: _expire,
    FOLLOW: follow_later,
    GROUP: look_again,
    HISTORY: _forget_history,
    IDEM: _forget_answers,
    RESULT: _forget_results,
    RETIRE: _retire,
    UNDO: go_on,
    REDRIVE: drive,
    LATER: ring_later,
    THROTTLE: end_periods,
    STOP: go_on_stopping,
}
