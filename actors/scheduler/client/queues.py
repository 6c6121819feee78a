"""Pulling work: claims that wait, what queues hold, whether anything still pends, and what a job came to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tocsin.actors.scheduler.client.handle import Handle
from tocsin.actors.scheduler.inflight.waiting_claims import PullClaim
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.instants_of_job import due_of
from tocsin.actors.scheduler.model.records import Outcome, Pending, Queue
from tocsin.actors.scheduler.queries import queue_stats as queues
from tocsin.actors.scheduler.queries import results as outcomes
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.events import ClaimMore, CountPaths
from tocsin.dispatch.job_options import shown_options
from tocsin.dispatch.pulled import EVERY_QUEUE, Claimed, Parent, Slot, WorkerInfo
from tocsin.dispatch.words import word
from tocsin.errors import InvalidInputError, JobFailedError, NotFoundError, NotYetError, TocsinError

CLAIM_LEASE_MS = 60_000
CLAIM_WAIT_S = 20.0


class Queues(Handle):
    """The part of a handle for work that is pulled."""

    async def claim(
        self,
        queue: str | Sequence[str] = EVERY_QUEUE,
        *,
        max: int = 1,
        lease_ms: int = CLAIM_LEASE_MS,
        wait: timedelta | float | str = CLAIM_WAIT_S,
        worker: WorkerInfo | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Claimed]:
        """Up to `max` (1 to 100) due jobs of a queue, of several, or of all (`*`) but `exclude`, each leased for
        `lease_ms` (1 s to 1 h).

        Waits until there is one, at most `wait` (0 to 5 min): then the list is empty. Queues have turns; in each, jobs
        come by (due - priority * 30 s, id). Settle each (`complete`), or `extend` its lease, before that ends: then
        the job goes to another worker. Cancelled, the call gives back what it was about to get.
        """
        named, left_out = _queues(queue, exclude)
        pull = PullClaim(
            named,
            frozenset(left_out),
            arguments.integer(max, "max", *arguments.CLAIM_MAX),
            arguments.integer(lease_ms, word("lease_ms"), *arguments.LEASE_MS),
            "" if worker is None else arguments.plain_name(worker.id, "worker.id"),
        )
        wait_ms = arguments.duration_ms(wait, "wait")
        seconds = arguments.integer(wait_ms, word("wait_ms"), *arguments.CLAIM_WAIT_MS) / 1000
        pulls = self._service.inflight(self.name).waiting_claims
        pulls.enter(pull)
        try:
            await self._call(ClaimMore(), create=False)
        except NotFoundError:
            pass  # nobody has scheduled anything yet: the first job wakes who waits
        except (TocsinError, asyncio.CancelledError):
            pulls.withdraw(pull)
            raise
        return [self._claimed(claim) for claim in await pulls.wait(pull, seconds)]

    def unsent(self, claimed: Sequence[Claimed]) -> None:
        """They did not reach their worker, which has hung up: back in line, uncharged. For the HTTP face."""
        self._service.inflight(self.name).waiting_claims.give_back([one.lease for one in claimed])

    def _claimed(self, claim: Claim) -> Claimed:
        job, lease = claim.job, claim.lease
        slot = job.schedule
        return Claimed(
            id=job.id,
            incarnation=job.incarnation,
            raw_args=arguments.raw(claim.args),
            scheduled_for=due_of(job, lease.at),
            attempt=lease.at.attempt,
            attempts=lease.at.attempts,
            lease=claim.token,
            lease_until=lease.until,
            lease_ms=lease.length_ms,
            queue=job.queue,
            instance_name=self.name,
            function_path=job.function_path,
            workflow=job.workflow,
            expires_at=job.expires_at,
            schedule=None if slot is None else _slot(slot),
            parent=None if job.parent is None else _parent(job.parent, claim.parent_result),
            then=bool(job.then_size),
            **shown_options(job),
        )

    async def queues(self) -> Sequence[Queue]:
        """The queues that hold jobs, waiting or leased, by name; and how many claims wait for each on this host."""
        pulls = self._service.inflight(self.name).waiting_claims
        return await queues.counts(self._view(), self._now(), pulls.waiting_for)

    async def pending(self, prefix: str = "") -> Pending:
        """Whether any live job's function path or workflow starts with `prefix`: pending, waiting, running, or to
        follow one of those. Dead ones do not count. An empty prefix asks for any job at all."""
        if not isinstance(prefix, str) or len(prefix) > arguments.MAX_TARGET:
            raise InvalidInputError(f"prefix must be a text of at most {arguments.MAX_TARGET} characters")
        arguments.whole_text(prefix, "prefix")
        if not await queues.is_counted(self._view()):
            try:
                while await self._call(CountPaths(), create=False):
                    pass
            except NotFoundError:
                return Pending(False, 0)  # it was removed meanwhile
        return await queues.pending(self._view(), prefix)

    # ---- Results ---------------------------------------------------------------------------------

    async def result(self, id: str, timeout: timedelta | float | str | None = None) -> Any:
        """What a job that asked for it (`keep_result`) came to; waits until it has ended, without polling.

        JobFailedError if it is dead, was cancelled or expired (`state` says which); NotYetError if it has not ended
        within `timeout` (None: as long as it takes); NotFoundError if nothing is known of it: its result was not asked
        for, or is not kept any more.
        """
        seconds = None if timeout is None else arguments.duration_ms(timeout, "timeout") / 1000
        outcome = await self.outcome(id, seconds)
        if outcome.state == "done":
            return outcome.result
        if outcome.state in ("dead", "cancelled", "expired"):
            said = f": {outcome.error}" if outcome.error else ""
            raise JobFailedError(f"job {id!r} is {outcome.state}{said}", id=id, state=outcome.state)
        raise NotYetError(f"job {id!r} is {outcome.state}: it has not ended in time", id=id, state=outcome.state)

    async def outcome(self, id: str, wait_s: float | None) -> Outcome:
        """How it ended, or how it stands after so long. For the HTTP face."""
        job_id = arguments.schedule_id(id)
        here = self._service.inflight(self.name)  # held as long as this waits
        deadline = None if wait_s is None else self._service.clock.monotonic() + wait_s
        while True:
            with here.result_waiters.watch(job_id) as ended:
                found = await outcomes.of(self._view(), job_id, self._now())
                left = None if deadline is None else deadline - self._service.clock.monotonic()
                if found.ended or (left is not None and left <= 0):
                    return found
                if here.result_waiters.stopping:
                    return found
                try:
                    async with asyncio.timeout(left):
                        await ended.wait()
                except TimeoutError:
                    return await outcomes.of(self._view(), job_id, self._now())


def _queues(queue: object, exclude: object) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The named queues (None: all of them) and those left out."""
    left_out = arguments.queues_of(exclude, "exclude")
    if queue == EVERY_QUEUE:
        return None, left_out
    if left_out:
        raise InvalidInputError('exclude goes with queue "*": it names what is left out of all')
    named = arguments.queues_of(queue, "queue")
    if not named:
        raise InvalidInputError('queue: name one, or give "*" for all')
    return named, ()


def _slot(one: Any) -> Slot:
    coalesced = one.coalesced if one.first_slot is not None else None
    return Slot(name=one.name, slot=one.slot, first_slot=one.first_slot, coalesced=coalesced)


def _parent(parent: str, result: bytes) -> Parent:
    return Parent(id=parent, raw_result=arguments.raw(result) if result else None)
