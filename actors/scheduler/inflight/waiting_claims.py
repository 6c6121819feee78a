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
from tocsin.actors.scheduler.model.suspects import ALONE, marked
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.events import ClaimMore, GiveBack
from tocsin.errors import HostClosedError, NotFoundError

log = logging.getLogger("tocsin.scheduler")

A = TypeVar("A")
POKE_AGAIN_S: Final = 0.25


class Post(Protocol):
    """Sends an event to the scheduler, unless nobody has scheduled anything yet."""

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
        """How many more it may be given in the turn that looks."""
        self.place = 0
        """Who came first has the smaller one."""
        self.on_its_way = False
        """Jobs are leased to it, and what says so is not on disk yet; or they are being checked."""
        self.late = False
        """Its time was over meanwhile: if that comes to nothing, it waits no more."""

    def takes(self, queue: str) -> bool:
        return queue not in self.exclude if self.queues is None else queue in self.queues


Line = OrderedDict[PullClaim, None]
Given = Sequence[tuple[PullClaim, list[Claim]]]
"""Who gets what."""


class WaitingClaims:
    """The waiting claims of one scheduler on this host."""

    def __init__(
        self,
        instance: str,
        post: Post,
        start_soon: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        check: Check | None,
        clock: Clock,
    ) -> None:
        self.instance = instance
        self.stopping = False
        self.waiting = False
        """Whether any claim waits."""
        self._post, self._start_soon, self._check, self._clock = post, start_soon, check, clock
        self._of_queue: dict[str, Line] = {}
        self._of_all: dict[frozenset[str], Line] = {}  # by what they leave out
        self._places = count(1)
        self._on_their_way: set[PullClaim] = set()
        self._undelivered: set[str] = set()  # leases of jobs that no worker has yet
        self._poking = False
        self._held_since: float | None = None
        self._alone_since: float | None = None
        self._rests_until = 0.0
        self.kept_free: tuple[str, str] | None = None
        """Of which queue a job must run alone, and which worker is given nothing else until it can have it: those that
        are busy are never without a job by themselves."""

    # ---- For those who claim ---------------------------------------------------------------------

    def enter(self, claim: PullClaim) -> None:
        """Stand in line. HostClosedError while the host stops."""
        if self.stopping:
            raise HostClosedError("the host is stopping: claim from another one, or again when it is back")
        claim.place = next(self._places)
        self._stand(claim)

    def withdraw(self, claim: PullClaim) -> None:
        """Its call has failed: what it was given goes back."""
        self.leave(claim)
        if claim.answer.done() and not claim.answer.cancelled():
            self.give_back([job.token for job in claim.answer.result()])

    async def wait(self, claim: PullClaim, seconds: float) -> list[Claim]:
        """What it is given, or nothing after so long. Cancelled, it gives back what it was given."""
        try:
            await asyncio.wait([claim.answer], timeout=seconds)
            if not claim.answer.done() and not claim.on_its_way:
                self.leave(claim)
                return []
            claim.late = True
            return await asyncio.shield(claim.answer)
        except asyncio.CancelledError:
            self.withdraw(claim)
            raise

    def leave(self, claim: PullClaim) -> None:
        """It waits no more. What is on its way to it goes back."""
        for line in self._lines_of(claim):
            line.pop(claim, None)
        self._forget_empty(claim)
        if not claim.answer.done() and claim.on_its_way:
            claim.answer.cancel()

    # ---- For the scheduler's turns ---------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self._of_queue or self._of_all or self._on_their_way)

    def waiting_for(self, queue: str) -> int:
        """How many claims wait for jobs of this queue."""
        of_all = sum(len(line) for exclude, line in self._of_all.items() if queue not in exclude)
        return len(self._of_queue.get(queue, ())) + of_all

    @property
    def named(self) -> Sequence[str]:
        """The queues that claims wait for by name."""
        return list(self._of_queue)

    @property
    def any_for_all(self) -> bool:
        """Whether some wait for jobs of any queue, but for those they leave out."""
        return bool(self._of_all)

    def first(self, queue: str, fits: Callable[[PullClaim], bool]) -> PullClaim | None:
        """The first in line for this queue of those that fit."""
        found = (next((claim for claim in line if fits(claim)), None) for line in self._lines_for(queue))
        return min((claim for claim in found if claim is not None), key=lambda claim: claim.place, default=None)

    def keep_free(self, queue: str, busy: Callable[[PullClaim], int | None]) -> None:
        """The worker, of those that wait for this queue, that will be free first: it has the fewest jobs. `busy` says
        how many; None: it cannot be that one. A worker that is kept free already stays so while it waits."""
        if self.kept_free is not None or self.rests:
            return
        waiting = [(n, claim) for line in self._lines_for(queue) for claim in line if (n := busy(claim)) is not None]
        if waiting:
            self._held_since = self._clock.monotonic()
            self.kept_free = queue, min(waiting, key=lambda one: (one[0], one[1].place))[1].worker

    @property
    def rests(self) -> bool:
        """Others come first just now."""
        return self._clock.monotonic() < self._rests_until

    def note_alone(self, runs: bool) -> None:
        """Whether a job runs alone on some worker. When that has ended nobody is kept free for as long as it took, with
        the time before it: others have their turns."""
        now = self._clock.monotonic()
        if runs and self._alone_since is None:
            self._alone_since = now if self._held_since is None else self._held_since
        elif not runs and self._alone_since is not None:
            self._rests_until = now + (now - self._alone_since)
            self._alone_since = self._held_since = None

    def check_kept_free(self, is_ready: Callable[[str], bool]) -> None:
        """Nobody is kept free for a job that is gone, or a worker that asks no more."""
        if self.kept_free is not None:
            queue, worker = self.kept_free
            if not is_ready(marked(queue, ALONE)) or self.first(queue, lambda claim: claim.worker == worker) is None:
                self.kept_free = self._held_since = None

    def served(self, claim: PullClaim) -> None:
        """It gets something in this turn: it stands in no line meanwhile."""
        for line in self._lines_of(claim):
            line.pop(claim, None)
        self._forget_empty(claim)
        claim.on_its_way = True
        self._on_their_way.add(claim)

    def back(self, claims: Sequence[PullClaim]) -> None:
        """They got nothing after all, or what they got was lost: back to their places."""
        for claim in sorted(claims, key=lambda one: one.place, reverse=True):
            self._on_their_way.discard(claim)
            claim.on_its_way = False
            claim.wanted = claim.most
            if (claim.late or self.stopping) and not claim.answer.done():
                claim.answer.set_result([])
            elif not claim.answer.done():
                self._stand(claim, first=True)

    def sealed(self, given: Given) -> None:
        """They are leased to those claims, and no worker has them yet."""
        self._undelivered.update(job.token for _, jobs in given for job in jobs)

    def undelivered(self, token: str) -> bool:
        """Whether no worker can have lost this job: none has it."""
        return token in self._undelivered

    def lost(self, given: Given) -> None:
        """The turn or its batch failed: nothing was leased to them. Or it may not be theirs."""
        self._undelivered.difference_update(job.token for _, jobs in given for job in jobs)
        self.back([claim for claim, _ in given])
        self.poke()

    def deliver(self, given: Given, leased: float) -> None:
        """The leases, made at `leased`, are durable: the workers may have them."""
        if not given:
            return
        if self._check is None:
            for claim, jobs in given:
                self._answer(claim, jobs, jobs, leased)
        else:
            self._start_soon(self._deliver_checked(given, leased)).add_done_callback(partial(self._checks_ended, given))

    async def _deliver_checked(self, given: Given, leased: float) -> None:
        await asyncio.gather(*(self._checked(claim, jobs, leased) for claim, jobs in given))

    def _checks_ended(self, given: Given, task: asyncio.Task[None]) -> None:
        """A host that goes down without waiting leaves no claim without an answer."""
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
            self._on_their_way.discard(claim)
            claim.on_its_way = False
            if not claim.answer.done():
                claim.answer.set_result(allowed)
        if unwanted:
            self.give_back([job.token for job in allowed])

    def _is_over(self, claim: PullClaim, jobs: Sequence[Claim], leased: float) -> bool:
        """The store, or the app's rule, took longer than the lease; or the clock has jumped."""
        passed_ms = (self._clock.monotonic() - leased) * 1000
        now = self._clock.now_ms()
        return passed_ms >= claim.lease_ms or any(job.lease.until <= now for job in jobs)

    def give_back(self, tokens: Sequence[str]) -> None:
        """The worker went away before it had these jobs: back in line, uncharged, also if a lease ends before that is
        done."""
        if tokens:
            self._undelivered.update(tokens)
            self._post(GiveBack(tokens)).add_done_callback(partial(self._given_back, tokens))

    def _given_back(self, tokens: Sequence[str], done: asyncio.Future[Sequence[str]]) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or isinstance(error, (HostClosedError, NotFoundError)):
            self._undelivered.difference_update(tokens)
            log.warning("jobs of %s whose worker went away stay leased until their leases end", self.instance)
        elif error is None:
            self._undelivered.difference_update(tokens)
            self.give_back(done.result())  # what was too much for one turn
        else:
            asyncio.get_running_loop().call_later(POKE_AGAIN_S, self.give_back, tokens)

    # ---- Waking and stopping ---------------------------------------------------------------------

    def poke(self) -> None:
        """Let the scheduler look again."""
        if not self._poking and self.waiting and not self.stopping:
            self._poking = True
            self._post(ClaimMore()).add_done_callback(self._poked)

    def _poked(self, done: asyncio.Future[None]) -> None:
        self._poking = False
        error = None if done.cancelled() else done.exception()
        # Without an instance there is nothing to look at; its first job wakes who waits.
        if error is not None and not isinstance(error, (HostClosedError, NotFoundError)):
            asyncio.get_running_loop().call_later(POKE_AGAIN_S, self.poke)

    def stop(self) -> None:
        """Everybody who waits gets nothing; nobody waits from now on."""
        self.stopping = True
        lines = [*self._of_queue.values(), *self._of_all.values()]
        for claim in dict.fromkeys(claim for line in lines for claim in line):
            self.leave(claim)
            if not claim.answer.done():
                claim.answer.set_result([])

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
        lines = [line for exclude, line in self._of_all.items() if queue not in exclude]
        return [*lines, self._of_queue[queue]] if queue in self._of_queue else lines

    def _lines_of(self, claim: PullClaim) -> list[Line]:
        if claim.queues is None:
            return [self._of_all.setdefault(claim.exclude, OrderedDict())]
        return [self._of_queue.setdefault(queue, OrderedDict()) for queue in claim.queues]

    def _forget_empty(self, claim: PullClaim) -> None:
        if claim.queues is None:
            if not self._of_all.get(claim.exclude, True):
                del self._of_all[claim.exclude]
        else:
            for queue in claim.queues:
                if not self._of_queue.get(queue, True):
                    del self._of_queue[queue]
        self.waiting = bool(self._of_queue or self._of_all)
