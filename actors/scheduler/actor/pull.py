"""Pull turns: due jobs of queues exchange their place in line for a lease of the worker whose claim waits.

Queues have turns, so one with a long backlog does not starve the others; in each, jobs start by (due - priority x 30 s,
id). Suspects have a share of each worker; one that must run alone goes to a worker that has nothing else, and that one
gets nothing more meanwhile.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tocsin.actors.scheduler.inflight.waiting_claims import PullClaim, WaitingClaims
from tocsin.actors.scheduler.model.line_names import level_in, marked, queue_in
from tocsin.actors.scheduler.model.suspects import ALONE, LEVELS, WORKER_SHARE, share_of_level
from tocsin.actors.scheduler.state.ready_heap import Others
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.apply import apply
from tocsin.actors.scheduler.transitions.claim import Ask, Claim, claim_asked
from tocsin.actors.scheduler.transitions.job import unsent

Given = list[tuple[PullClaim, list[Claim]]]
"""Which claim gets which jobs."""
Ready = tuple[str, str, int]
"""A line with a job that may start, its queue and the level of its jobs."""
ROUNDS = 4
JOBS_PER_TURN = 512
BYTES_PER_TURN = 4 * 1024 * 1024
"""How many bytes of args one turn may give, about: all of them are in memory until their workers have them."""


async def pull(turn: Turn, waiting_claims: WaitingClaims, given: Given, *, in_order: bool = False) -> bool:
    """Give due jobs to waiting claims, noting in `given` which claim gets which; claims that get nothing keep their
    places. True if there may be more to give: a turn gives only so much.

    Where callbacks and pulled jobs want the slots of one pool, the first in start order goes first: with `in_order` the
    callbacks that stand in front are still to be claimed.
    """
    jobs, size = 0, 0
    for _ in range(ROUNDS):
        if not waiting_claims.waiting:
            return False
        if jobs >= JOBS_PER_TURN or size >= BYTES_PER_TURN or turn.is_full:
            break
        shares = _Round(turn, waiting_claims).share_out(JOBS_PER_TURN - jobs)
        asks = _asks(turn, shares, in_order)
        got: dict[PullClaim, list[Claim]] = {claim: [] for claims in shares.values() for claim in claims}
        for claim in got:
            if not claim.reserved:
                waiting_claims.reserve(claim)
        given.extend(got.items())  # before anything is awaited: a turn that is lost gives claims their places back
        if asks:
            for claims, found in zip(asks.values(), await claim_asked(turn, list(asks)), strict=True):
                for claim, job in zip(claims, found, strict=False):
                    got[claim].append(job)
                    jobs, size = jobs + 1, size + len(job.args)
        if unserved := [claim for claim, found in got.items() if not found]:
            given[:] = [one for one in given if one[1]]
            waiting_claims.requeue(unserved)
        if not asks:
            return False
    return True


class _Round:
    """Shares out due jobs among claims, one after the other, each queue in its turn."""

    def __init__(self, turn: Turn, waiting_claims: WaitingClaims) -> None:
        self._turn, self._state, self._waiting_claims = turn, turn.state, waiting_claims
        self._busy: Counter[str] = Counter()  # workers that get something now
        self._alone: set[str] = set()  # workers that get a job which runs alone
        self._suspects: Counter[str] = Counter()  # how much of its share of suspects each worker gets

    def share_out(self, most: int) -> dict[str, list[PullClaim]]:
        """Choose for up to `most` jobs, by queue, the claims that may take them."""
        waiting_claims, in_queue = self._waiting_claims, self._state.lines.in_queue
        if self._state.alone or waiting_claims.alone_since is not None:
            waiting_claims.note_alone(bool(self._state.alone))
        if waiting_claims.kept_free is not None:
            waiting_claims.check_kept_free(partial(self._state.lines.pulled.any_ready, self._turn.now))
        ready, again = _ready_queues(self._turn, waiting_claims), deque[Ready]()
        later, put_off = deque[Ready](), set[str]()  # others come first
        served: list[str] = []
        shares: dict[str, list[PullClaim]] = {}
        while len(served) < most and waiting_claims.waiting:
            one = next(ready, None) or (again.popleft() if again else later.popleft() if later else None)
            if one is None:
                break
            line, queue, level = one
            if level == ALONE and line not in put_off and waiting_claims.rests:
                put_off.add(line)
                later.append(one)
                continue
            if len(shares.get(line, ())) >= in_queue[line]:
                continue
            claim = waiting_claims.select(queue, self._fits(level))
            if claim is None:
                if level == ALONE:
                    waiting_claims.keep_free(queue, self._held)
                continue
            shares.setdefault(line, []).append(claim)
            self._take(claim, queue, level)
            served.append(line)
            again.append(one)
        for line in served:
            self._state.lines.pulled.had_turn(line)
        return shares

    def _take(self, claim: PullClaim, queue: str, level: int) -> None:
        self._busy[claim.worker] += 1
        claim.wanted -= 1
        if level:
            self._suspects[claim.worker] += share_of_level(level)
        if level == ALONE:
            claim.wanted = 0
            if self._waiting_claims.kept_free and self._waiting_claims.kept_free[0] == queue:
                self._waiting_claims.kept_free = None  # another round sees whether there are more
            self._alone.update([claim.worker] if claim.worker else [])
        if not claim.wanted:
            self._waiting_claims.reserve(claim)

    # ---- Which claims may have a job -------------------------------------------------------------

    def _fits(self, level: int) -> Callable[[PullClaim], bool] | None:
        """Return the rule for jobs of this level; None: any claim in line may have one, as nearly always."""
        if level == ALONE:
            return self._has_nothing
        if level:
            return partial(self._has_share, level)
        return self._takes if self._state.alone or self._alone or self._waiting_claims.kept_free else None

    def _may_have(self, claim: PullClaim) -> bool:
        alone = self._state.alone
        return not (claim.worker and (claim.worker in alone or claim.worker in self._alone))

    def _takes(self, claim: PullClaim) -> bool:
        kept_free = self._waiting_claims.kept_free
        return self._may_have(claim) and not (kept_free and claim.worker == kept_free[1])

    def _has_share(self, level: int, claim: PullClaim) -> bool:
        worker = claim.worker
        share = self._state.suspects_of[worker] + self._suspects[worker] + share_of_level(level)
        return self._takes(claim) and (not worker or share <= WORKER_SHARE)

    def _held(self, claim: PullClaim) -> int | None:
        """Count the jobs of a worker that may have one more; None: it may not, or has no name."""
        worker = claim.worker
        return self._state.pulled_by[worker] + self._busy[worker] if worker and self._may_have(claim) else None

    def _has_nothing(self, claim: PullClaim) -> bool:
        return self._may_have(claim) and not self._held(claim) and claim.wanted == claim.most


def _ready_queues(turn: Turn, waiting_claims: WaitingClaims) -> Iterator[Ready]:
    """Find lines with a due job that may start and that a claim waits for, the one whose turn it is first. Of thousands
    of queues only those are looked at that may be needed."""
    heads, seen = turn.state.lines.pulled, set[str]()
    if waiting_claims.of_all:
        for line in heads.ready_queues(turn.now):
            queue = queue_in(line)
            if waiting_claims.waiting_for(queue):
                seen.add(line)
                yield line, queue, level_in(line)
            if not waiting_claims.of_all:
                break
    named = {
        line: (line, queue, level)
        for queue in waiting_claims.of_queue
        for level in (*LEVELS, 0)
        if (line := marked(queue, level)) not in seen
    }
    for line in heads.ready_of(turn.now, list(named)):
        yield named[line]


def any_to_give(turn: Turn, waiting_claims: WaitingClaims) -> bool:
    """Return whether a claim waits for a job that may start."""
    return waiting_claims.waiting and next(_ready_queues(turn, waiting_claims), None) is not None


def _asks(turn: Turn, shares: dict[str, list[PullClaim]], in_order: bool) -> dict[Ask, list[PullClaim]]:
    lines = turn.state.lines
    callback_first: Others | None = partial(lines.callback_first, now=turn.now) if in_order else None
    of_pool: Counter[str] = Counter()
    asks: dict[Ask, list[PullClaim]] = {}
    for queue, claims in shares.items():
        buckets = lines.pulled.pick(turn.now, queue, len(claims), of_pool, callback_first)
        if buckets:
            asks[Ask(buckets, len(claims), [(claim.worker, claim.lease_ms) for claim in claims])] = claims
    return asks


async def give_back(turn: Turn, tokens: Sequence[str]) -> Sequence[str]:
    """Requeue jobs whose worker went away before it had them, uncharged; return those left for another turn."""
    held = [token for token in tokens if token in turn.state.leases]
    known = await turn.jobs(sorted({turn.state.leases[token][0] for token in held}))
    for n, token in enumerate(held):
        if turn.is_full:
            return held[n:]
        job_id, lease = turn.state.leases[token]
        job = known[job_id].job if job_id in known else None
        apply(turn, job, token, unsent(job, lease, turn.now))
    return ()
