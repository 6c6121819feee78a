"""Settle turns: match the ends of attempts with their leases, and apply what `job` decides of each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.instants_of_job import backoff_ms
from tocsin.actors.scheduler.model.rows import DAY_MS, HistRow, JobRow, hist_key
from tocsin.actors.scheduler.state.fronts import Known
from tocsin.actors.scheduler.state.turn import STEPS, Turn
from tocsin.actors.scheduler.transitions import job as decide
from tocsin.actors.scheduler.transitions.apply import apply, apply_late
from tocsin.actors.scheduler.transitions.chains import load_followers, start
from tocsin.actors.scheduler.transitions.job import Decision, Done, End
from tocsin.actors.scheduler.transitions.rates import cool_pool
from tocsin.dispatch.callback import AttemptOutcome, Verdict

STARTED_PER_TURN = 2 * 1024 * 1024
"""About how many bytes of jobs that follow others are started in one turn; the last one may start 2 MiB more."""


class AttemptResult(msgspec.Struct, frozen=True):
    """The end of an attempt, before it is settled."""

    job: JobRow
    token: str
    outcome: AttemptOutcome


async def settle(turn: Turn, finished: Sequence[AttemptResult]) -> int:
    """Match each with its lease, or with the last token of a lease that ended; one that has neither changes nothing.

    Return how many were settled: a turn starts no more of what follows them than one commit holds.
    """
    chained = [end.job for end in finished if end.job.then_size and end.outcome.verdict is Verdict.DONE]
    followers = await load_followers(turn, chained) if chained else {}
    late = [end.job.id for end in finished if end.token not in turn.state.leases]
    waiting = await turn.jobs(late) if late else {}
    settled = started = 0
    for end in finished:
        if started >= STARTED_PER_TURN or (settled % STEPS == 0 and turn.is_full):
            break
        settled += 1
        job, follow = end.job, followers.get(end.job.id, ())
        if end.token not in turn.state.leases:
            started += await _settle_late(turn, end, waiting.pop(job.id, None), follow)
            continue
        lease = turn.state.leases[end.token][1]
        if lease.pool and end.outcome.retry_after_ms:
            cool_pool(turn, lease.pool, lease.origin, end.outcome)
        delay_ms = 0 if end.outcome.verdict is Verdict.DONE else backoff_ms(job, lease.at, turn.ctx.random)
        decision = decide.settle(job, lease, end.outcome, turn.now, delay_ms, turn.wall)
        apply(turn, job, end.token, decision)
        started += start_after(turn, job, decision, follow) if follow else 0
    return settled


def start_after(turn: Turn, job: JobRow, decision: Decision, followers: Sequence[Follower]) -> int:
    """Start what follows a job that is done; return about how many bytes that is."""
    if isinstance(decision, End) and isinstance(decision.next, Done):
        return start(turn, job, followers, decision.next.result)
    return 0


async def _settle_late(turn: Turn, end: AttemptResult, found: Known | None, followers: Sequence[Follower]) -> int:
    """Count a success whose lease ended first, while the job waits for its next attempt. Return about how many bytes
    of what follows the job were started."""
    if (
        found is None
        or end.outcome.verdict is not Verdict.DONE
        or found.job.incarnation != end.job.incarnation
        or found.at.last_token != end.token
        or turn.state.lease_of(end.job.id) is not None
    ):
        return 0
    done = decide.done_with(found.job, end.outcome.result, end.outcome.message)
    return await finish_late(turn, found, end.token, done, followers)


async def finish_late(turn: Turn, known: Known, token: str, end: End, followers: Sequence[Follower]) -> int:
    """Take the job, done after its lease had ended, out of the queue to which it had gone back."""
    job, at = known.job, known.at
    started, due = await _start_of(turn, known, token)
    apply_late(turn, job, at, token, started, due, end)
    return start_after(turn, job, end, followers)


async def _start_of(turn: Turn, known: Known, token: str) -> tuple[int, int]:
    """Find when a lease that is gone was given, and when its attempt was due: the history says so where it ended."""
    job, at = known.job, known.at
    for ended in (turn.now, turn.now - DAY_MS):
        key = hist_key(ended, job.id, job.incarnation, f"{at.attempt:06d}")
        if (value := (await turn.state.storage.get_many([key])).get(key)) is not None:
            row = turn.state.read(HistRow, key, value)
            if row is not None and row.token == token:
                return row.started, row.due
    return turn.now, at.next_at
