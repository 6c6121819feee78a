"""The claims of workers that wait for a job. They belong to the host and outlive any activation of their scheduler.

Waiting costs a future and nothing else: the turn that makes a job ready, or that frees a slot, hands it over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, Final, Protocol, TypeVar

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.inflight.activity import WORKER, Activities, Attempts
from tocsin.actors.scheduler.model.line_names import marked
from tocsin.actors.scheduler.model.suspects import ALONE
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.events import ClaimMore, GiveBack
from tocsin.errors import HostClosedError, NotFoundError, StoreLocked, TocsinError

log = logging.getLogger("tocsin.scheduler")

A = TypeVar("A")
K = TypeVar("K")
RETRY_S: Final = 0.25


class Call(Protocol):
    """Sends an event to the scheduler; NotFoundError if nobody has scheduled anything yet."""

    def __call__(self, event: Event[A]) -> asyncio.Future[A]: ...


Check = Callable[[Claim], Awaitable[bool]]
"""Asked of each job before a worker gets it; what it refuses, it settles."""


class PullClaim:
    """One claim: from which queues (None: all but `exclude`), how many jobs, for how long, for which worker."""

    def __init__(
        self, queues: Sequence[str] | None, exclude: frozenset[str], most: int, lease_ms: int, worker: str
    ) -> None:
        self.queues = None if queues is None else tuple(dict.fromkeys(queues))
        self.exclude = exclude
        self.most = most
        self.lease_ms = lease_ms
        self.worker = worker
        self.answer: asyncio.Future[list[Claim]] = asyncio.get_running_loop().create_future()
        self.wanted = most
        """How many more jobs it may be given in the current turn."""
        self.place = 0
        """Earlier claims have smaller ones."""
        self.reserved = False
        """True if it is to get jobs whose leases are not on disk yet, or that are being checked."""
        self.leased = 0.0
        """When the jobs of its answer were leased to it, monotonic."""
        self.late = False
        """Its time ended while it was reserved: if those jobs are lost it gets none, and is not requeued."""

    def takes(self, queue: str) -> bool:
        """Return whether it waits for jobs of this queue."""
        return queue not in self.exclude if self.queues is None else queue in self.queues


Line = OrderedDict[PullClaim, None]
Given = Sequence[tuple[PullClaim, list[Claim]]]
"""Which claim gets which jobs."""


class WaitingClaims:
    """The waiting claims of one scheduler on this host."""

    def __init__(
        self,
        instance: str,
        call: Call,
        start_soon: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        check: Check | None,
        clock: Clock,
        activities: Activities,
        give_back_there: Callable[[Sequence[str]], Coroutine[Any, Any, None]],
    ) -> None:
        """`give_back_there` requeues jobs at the host that has the scheduler by now."""
        self.instance = instance
        self._give_back_there = give_back_there
        self.stopping = False
        self.waiting = False
        """True if any claim stands in line."""
        self.of_queue: dict[str, Line] = {}
        """Claims for queues that they name."""
        self.of_all: dict[frozenset[str], Line] = {}
        """Claims for all queues but those that the key names."""
        self.kept_free: tuple[str, str] | None = None
        """A queue with a job that must run alone, and the worker that is given nothing else until it has that job:
        a busy worker is never without a job by itself."""
        self.alone_since: float | None = None
        """Since when a job has run alone on some worker."""
        self._call, self._start_soon, self._check, self._clock = call, start_soon, check, clock
        self._activities = activities
        self._places = count(1)
        self._reserved: set[PullClaim] = set()
        self._undelivered: set[str] = set()  # leases of jobs that no worker has yet
        self._turn_requested = False
        self._kept_since: float | None = None
        self._rests_until = 0.0

    # ---- For those who claim ---------------------------------------------------------------------

    def enter(self, claim: PullClaim) -> None:
        """Put a new claim in line. HostClosedError while the host stops."""
        if self.stopping:
            raise HostClosedError("the host is stopping: claim from another one, or again when it is back")
        claim.place = next(self._places)
        self._stand(claim)

    def withdraw(self, claim: PullClaim) -> None:
        """Remove a claim whose caller has gone; jobs that it was given are requeued."""
        self.leave(claim)
        if claim.answer.done() and not claim.answer.cancelled() and claim.answer.exception() is None:
            self.give_back([job.token for job in claim.answer.result()])

    async def wait(self, claim: PullClaim, seconds: float) -> list[Claim]:
        """Wait for the jobs that the claim is given, at most so long: then there are none. A caller that is cancelled
        gives back what it was given."""
        try:
            await asyncio.wait([claim.answer], timeout=seconds)
            if not claim.answer.done() and not claim.reserved:
                self.leave(claim)
                return []
            claim.late = True
            given = await asyncio.shield(claim.answer)
        except asyncio.CancelledError:
            self.withdraw(claim)
            raise
        if given and self._is_over(claim, given, claim.leased):
            # Its caller was told late: the process stood still, or the store was slow. Others may have the jobs by now.
            self.give_back([job.token for job in given])
            return []
        return given

    def leave(self, claim: PullClaim) -> None:
        """Remove the claim from every line; jobs already assigned to it are requeued."""
        self._take_out(claim)
        if not claim.answer.done() and claim.reserved:
            claim.answer.cancel()

    # ---- For the scheduler's turns ---------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Return whether this scheduler is needed for a claim."""
        return self.waiting or bool(self._reserved)

    @property
    def count(self) -> int:
        """Count the claims that stand in line."""
        lines = [*self.of_queue.values(), *self.of_all.values()]
        return len({claim for line in lines for claim in line})

    def waiting_for(self, queue: str) -> int:
        """Count the claims that wait for jobs of this queue."""
        return sum(len(line) for line in self._lines_for(queue))

    def select(self, queue: str, fits: Callable[[PullClaim], bool] | None) -> PullClaim | None:
        """Return the first claim in line for this queue that fits; None as `fits`: any does."""
        first: PullClaim | None = None
        for line in self._lines_for(queue):
            for one in line:
                if fits is None or fits(one):
                    first = one if first is None or one.place < first.place else first
                    break
        return first

    def keep_free(self, queue: str, busy: Callable[[PullClaim], int | None]) -> None:
        """Give nothing more to the worker, of those that wait for this queue, that will be free first: it has the
        fewest jobs. `busy` returns how many, or None for a worker that cannot be chosen. A worker that is kept free
        already stays so while it waits."""
        if self.kept_free is not None or self.rests:
            return
        waiting = [(n, claim) for line in self._lines_for(queue) for claim in line if (n := busy(claim)) is not None]
        if waiting:
            self._kept_since = self._clock.monotonic()
            self.kept_free = queue, min(waiting, key=lambda one: (one[0], one[1].place))[1].worker

    @property
    def rests(self) -> bool:
        """Return whether other jobs come first, since one has just run alone."""
        return self._clock.monotonic() < self._rests_until

    def note_alone(self, runs: bool) -> None:
        """Note whether a job runs alone on some worker. After it has ended nobody is kept free for as long as it took,
        with the time before it: others have their turns."""
        now = self._clock.monotonic()
        if runs and self.alone_since is None:
            self.alone_since = now if self._kept_since is None else self._kept_since
        elif not runs and self.alone_since is not None:
            self._rests_until = now + (now - self.alone_since)
            self.alone_since = self._kept_since = None

    def check_kept_free(self, is_ready: Callable[[str], bool]) -> None:
        """Keep nobody free for a job that is gone, or a worker that no longer waits."""
        if self.kept_free is not None:
            queue, worker = self.kept_free
            if not is_ready(marked(queue, ALONE)) or self.select(queue, lambda claim: claim.worker == worker) is None:
                self.kept_free = self._kept_since = None

    def reserve(self, claim: PullClaim) -> None:
        """Take a claim that gets jobs in this turn out of its lines until it has them."""
        self._take_out(claim)
        claim.reserved = True
        self._reserved.add(claim)

    def requeue(self, claims: Sequence[PullClaim]) -> None:
        """Put claims that got nothing after all, or lost what they got, back in their places in line."""
        for claim in sorted(claims, key=lambda one: one.place, reverse=True):
            self._reserved.discard(claim)
            claim.reserved = False
            claim.wanted = claim.most
            if (claim.late or self.stopping) and not claim.answer.done():
                claim.answer.set_result([])
            elif not claim.answer.done():
                self._stand(claim, first=True)

    def mark_claimed(self, given: Given) -> None:
        """Note that these jobs are leased to their claims, and that no worker has them yet."""
        self._undelivered.update(job.token for _, jobs in given for job in jobs)

    def undelivered(self, token: str) -> bool:
        """Return whether no worker can have lost this job, because none has it."""
        return token in self._undelivered

    def lost(self, given: Given) -> None:
        """Requeue the claims of a turn that failed, or whose batch did: nothing was leased to them."""
        self._undelivered.difference_update(job.token for _, jobs in given for job in jobs)
        self.requeue([claim for claim, _ in given])
        self.request_turn()

    def deliver(self, given: Given, leased: float) -> None:
        """Hand jobs to their claims: the leases, made at `leased`, are durable."""
        if self._check is None:
            for claim, jobs in given:
                self._answer(claim, jobs, jobs, leased)
        elif given:
            self._start_soon(self._deliver_checked(given, leased)).add_done_callback(partial(self._checks_ended, given))

    async def _deliver_checked(self, given: Given, leased: float) -> None:
        await asyncio.gather(*(self._checked(claim, jobs, leased) for claim, jobs in given))

    def _checks_ended(self, given: Given, task: asyncio.Task[None]) -> None:
        """Answer claims also when the host goes down without waiting for their checks."""
        if task.cancelled():
            self.lost(given)

    async def _checked(self, claim: PullClaim, jobs: list[Claim], leased: float) -> None:
        assert self._check is not None
        passed = await asyncio.gather(*(self._check(job) for job in jobs))
        self._answer(claim, jobs, [job for job, may in zip(jobs, passed, strict=True) if may], leased)

    def _answer(self, claim: PullClaim, jobs: list[Claim], allowed: list[Claim], leased: float) -> None:
        late = self._is_over(claim, jobs, leased)
        unwanted = late or claim.answer.done()
        if late or not allowed:
            self.lost([(claim, jobs)])
        else:
            self._undelivered.difference_update(job.token for job in jobs)
            self._reserved.discard(claim)
            claim.reserved = False
            claim.leased = leased
            if not claim.answer.done():
                claim.answer.set_result(allowed)
                waited = [job.lease.started - job.lease.at.next_at for job in allowed]
                self._activities.note((self.instance, self._clock.monotonic(), Attempts(WORKER, waited, leased)))
        if unwanted:
            self.give_back([job.token for job in allowed])

    def _is_over(self, claim: PullClaim, jobs: Sequence[Claim], leased: float) -> bool:
        """Return whether the leases have ended: the store, or the app's rule, took too long; or the clock has
        jumped."""
        passed_ms = (self._clock.monotonic() - leased) * 1000
        now = self._clock.now_ms()
        return passed_ms >= claim.lease_ms or any(job.lease.until <= now for job in jobs)

    def give_back(self, tokens: Sequence[str]) -> None:
        """Requeue jobs whose worker went away before it had them; uncharged, also if a lease ends before it is done."""
        if tokens:
            self._undelivered.update(tokens)
            self._call(GiveBack(tokens)).add_done_callback(partial(self._given_back, tokens))

    def _given_back(self, tokens: Sequence[str], done: asyncio.Future[Sequence[str]]) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or isinstance(error, (HostClosedError, NotFoundError)):
            self._undelivered.difference_update(tokens)
            log.warning(
                "jobs of %s whose worker went away stay leased until their leases end", self.instance,
                extra={"instance": self.instance},
            )  # fmt: skip
        elif isinstance(error, StoreLocked):
            self._undelivered.difference_update(tokens)
            self._start_soon(self._give_back_there(tokens))
        elif error is None:
            self._undelivered.difference_update(tokens)
            self.give_back(done.result())  # those that were too many for one turn
        else:
            asyncio.get_running_loop().call_later(RETRY_S, self.give_back, tokens)

    # ---- Waking and stopping ---------------------------------------------------------------------

    def request_turn(self) -> None:
        """Send the scheduler an event, at whose end it serves the claims that wait."""
        if not self._turn_requested and self.waiting and not self.stopping:
            self._turn_requested = True
            self._call(ClaimMore()).add_done_callback(self._turn_ended)

    def _turn_ended(self, done: asyncio.Future[None]) -> None:
        self._turn_requested = False
        error = None if done.cancelled() else done.exception()
        if isinstance(error, StoreLocked):
            self.refuse(error)  # another host has the scheduler: who waits asks there
        # Without an instance there are no jobs; the first one wakes the claims that wait.
        elif error is not None and not isinstance(error, (HostClosedError, NotFoundError)):
            asyncio.get_running_loop().call_later(RETRY_S, self.request_turn)

    def stop(self) -> None:
        """Answer all claims that wait with no jobs, and take no new ones."""
        self.stopping = True
        for claim in self._take_all():
            claim.answer.set_result([])

    def refuse(self, error: TocsinError) -> None:
        """Answer all claims that wait with this error: no job will ever come."""
        for claim in self._take_all():
            claim.answer.set_exception(error)
            claim.answer.exception()  # whoever claimed may have gone

    def _take_all(self) -> list[PullClaim]:
        """Take every claim out of line, and return those that nobody has answered."""
        lines = [*self.of_queue.values(), *self.of_all.values()]
        found = list(dict.fromkeys(claim for line in lines for claim in line))
        for claim in found:
            self.leave(claim)
        return [claim for claim in found if not claim.answer.done()]

    # ---- Places ----------------------------------------------------------------------------------

    def _stand(self, claim: PullClaim, *, first: bool = False) -> None:
        self.waiting = True
        for line in self._lines_of(claim):
            line[claim] = None
            if first:
                line.move_to_end(claim, last=False)
                if claim.place > min(one.place for one in islice(line, 2)):  # some were passed over meanwhile
                    for one in sorted(line, key=lambda each: each.place):
                        line.move_to_end(one)

    def _lines_for(self, queue: str) -> list[Line]:
        """List the lines from which this queue is served."""
        lines = [line for exclude, line in self.of_all.items() if queue not in exclude]
        return [*lines, self.of_queue[queue]] if queue in self.of_queue else lines

    def _lines_of(self, claim: PullClaim) -> list[Line]:
        """List the lines in which this claim stands."""
        if claim.queues is None:
            return [self.of_all.setdefault(claim.exclude, OrderedDict())]
        return [self.of_queue.setdefault(queue, OrderedDict()) for queue in claim.queues]

    def _take_out(self, claim: PullClaim) -> None:
        """Take the claim out of every line, and forget lines that are empty then."""
        if claim.queues is None:
            _take_from(self.of_all, claim.exclude, claim)
        else:
            for queue in claim.queues:
                _take_from(self.of_queue, queue, claim)
        self.waiting = bool(self.of_queue or self.of_all)


def _take_from(lines: dict[K, Line], name: K, claim: PullClaim) -> None:
    if (line := lines.get(name)) is not None:
        line.pop(claim, None)
        if not line:
            del lines[name]
