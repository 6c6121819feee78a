"""Pull turns: due jobs of queues exchange their place in line for a lease of the worker whose claim waits.

Queues have turns, so one with a long backlog does not starve the others; in each, jobs start by (due - priority x 30 s,
id). Suspects have a share of each worker; one that must run alone goes to a worker that has nothing else, and that one
gets nothing more meanwhile.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import partial

from tocsin.actors.scheduler.inflight.waiting_claims import PullClaim, WaitingClaims
from tocsin.actors.scheduler.model.suspects import ALONE, LEVELS, WORKER_SHARE, level_in, marked, plain, share_of_level
from tocsin.actors.scheduler.state.job_queues import Others
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.apply import apply
from tocsin.actors.scheduler.transitions.claim import Ask, Claim, claim_asked
from tocsin.actors.scheduler.transitions.job import unsent

Given = list[tuple[PullClaim, list[Claim]]]
ROUNDS = 4
JOBS_PER_TURN = 512
BYTES_PER_TURN = 4 * 1024 * 1024
"""About what the args of that many jobs may take: they are all in memory until their workers have them."""


async def pull(turn: Turn, pulls: WaitingClaims, given: Given, *, in_order: bool = False) -> bool:
    """Give waiting claims what is due, noting in `given` who gets what; claims that get nothing keep their places.
    True if there may be more to give: a turn gives only so much.

    Where callbacks and pulled jobs want the slots of one pool, the first in start order goes first: with `in_order` the
    callbacks that stand in front are still to be claimed.
    """
    jobs, size = 0, 0
    for _ in range(ROUNDS):
        if jobs >= JOBS_PER_TURN or size >= BYTES_PER_TURN or turn.is_full:
            break
        shares = _share_out(turn, pulls, JOBS_PER_TURN - jobs)
        asks = _asks(turn, shares, in_order)
        got: dict[PullClaim, list[Claim]] = {claim: [] for claims in shares.values() for claim in claims}
        for claim in got:
            pulls.served(claim)
        given.extend(got.items())
        if asks:
            for claims, found in zip(asks.values(), await claim_asked(turn, list(asks)), strict=True):
                for claim, job in zip(claims, found, strict=False):
                    got[claim].append(job)
                    jobs, size = jobs + 1, size + len(job.args)
        given[:] = [one for one in given if one[1]]
        pulls.back([claim for claim, found in got.items() if not found])
        if not asks:
            return False
    return True


def _share_out(turn: Turn, pulls: WaitingClaims, most: int) -> dict[str, list[PullClaim]]:
    """Which claims may take a job of which queue, one after the other, each queue in its turn."""
    if not pulls.waiting:
        return {}
    state = turn.state
    ready, again = _ready_queues(turn, pulls), deque[str]()
    later, put_off = deque[str](), set[str]()  # others come first
    served: list[str] = []
    shares: dict[str, list[PullClaim]] = {}
    busy: Counter[str] = Counter()  # workers that get something now
    alone: set[str] = set()  # and those that get one which runs alone
    suspects: Counter[str] = Counter()  # and how much of its share of suspects each gets

    def may_have(claim: PullClaim) -> bool:
        return claim.wanted > 0 and not (claim.worker and (claim.worker in state.alone or claim.worker in alone))

    def takes(claim: PullClaim) -> bool:
        return may_have(claim) and not (pulls.kept_free and claim.worker == pulls.kept_free[1])

    def has_share(level: int, claim: PullClaim) -> bool:
        share = state.suspects_of[claim.worker] + suspects[claim.worker] + share_of_level(level)
        return takes(claim) and (not claim.worker or share <= WORKER_SHARE)

    def held(claim: PullClaim) -> int | None:
        return state.pulled_by[claim.worker] + busy[claim.worker] if claim.worker and may_have(claim) else None

    def has_nothing(claim: PullClaim) -> bool:
        return may_have(claim) and not held(claim) and claim.wanted == claim.most

    pulls.note_alone(bool(state.alone))
    pulls.check_kept_free(partial(state.lines.pulled.any_ready, turn.now))

    total = 0
    while total < most and pulls.waiting:
        queue = next(ready, None) or (again.popleft() if again else later.popleft() if later else None)
        if queue is None:
            break
        level = level_in(queue)
        if level == ALONE and pulls.rests and queue not in put_off:
            put_off.add(queue)
            later.append(queue)
            continue
        share = shares.get(queue, [])
        if len(share) >= state.lines.in_queue[queue]:
            continue
        fits = has_nothing if level == ALONE else partial(has_share, level) if level else takes
        claim = pulls.first(plain(queue), fits)
        if claim is None:
            if level == ALONE:
                pulls.keep_free(plain(queue), held)
            continue
        shares.setdefault(queue, []).append(claim)
        total += 1
        busy[claim.worker] += 1
        suspects[claim.worker] += share_of_level(level)
        if level == ALONE:
            claim.wanted = 0
            if pulls.kept_free and pulls.kept_free[0] == plain(queue):
                pulls.kept_free = None  # another round sees whether there are more
            alone.update([claim.worker] if claim.worker else [])
        else:
            claim.wanted -= 1
        if not claim.wanted:
            pulls.served(claim)
        served.append(queue)
        again.append(queue)
    for queue in served:
        state.lines.pulled.had_turn(queue)
    return shares


def _ready_queues(turn: Turn, pulls: WaitingClaims) -> Iterator[str]:
    """Those with a due job that may start and that somebody waits for, the one whose turn it is first. Of thousands of
    queues only those are looked at that may be needed."""
    heads, seen = turn.state.lines.pulled, set[str]()
    for queue in heads.ready_queues(turn.now):
        if not pulls.any_for_all:
            break
        if pulls.waiting_for(plain(queue)):
            seen.add(queue)
            yield queue
    levels = (*LEVELS, 0)
    lines = (marked(name, level) for name in pulls.named for level in levels)
    named = [line for line in lines if line not in seen]
    yield from heads.ready_of(turn.now, named)


def any_to_give(turn: Turn, pulls: WaitingClaims) -> bool:
    return pulls.waiting and next(_ready_queues(turn, pulls), None) is not None


def _asks(turn: Turn, shares: dict[str, list[PullClaim]], in_order: bool) -> dict[Ask, list[PullClaim]]:
    lines = turn.state.lines
    callback_first: Others | None = partial(lines.callback_first, now=turn.now) if in_order else None
    of_pool: Counter[str] = Counter()
    asks: dict[Ask, list[PullClaim]] = {}
    for queue, claims in shares.items():
        streams = lines.pulled.pick(turn.now, queue, len(claims), of_pool, callback_first)
        if streams:
            asks[Ask(streams, len(claims), [(claim.worker, claim.lease_ms) for claim in claims])] = claims
    return asks


async def give_back(turn: Turn, tokens: Sequence[str]) -> Sequence[str]:
    """The worker went away before it had these jobs: back in line, uncharged. Those that are left for another turn."""
    held = [token for token in tokens if token in turn.state.leases]
    known = await turn.jobs(sorted({turn.state.leases[token][0] for token in held}))
    for n, token in enumerate(held):
        if turn.is_full:
            return held[n:]
        job_id, lease = turn.state.leases[token]
        job = known[job_id].job if job_id in known else None
        apply(turn, job, token, unsent(job, lease, turn.now))
    return ()
