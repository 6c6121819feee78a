"""Work that is pulled: claims that wait, what queues hold, what jobs came to; and the workers that pull."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from sys import modules
from typing import Any

import msgspec
from msgspec.structs import replace

from tocsin.actors.scheduler.client.instance import Instance, page_limit
from tocsin.actors.scheduler.inflight.result_waiters import NOBODY_WAITS
from tocsin.actors.scheduler.inflight.waiting_claims import PullClaim
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.instants_of_job import due_of
from tocsin.actors.scheduler.model.records import Outcome, Pending, Queue, WorkerPage
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.actors.scheduler.queries import queue_stats
from tocsin.actors.scheduler.queries import results as outcomes
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.events import ClaimMore, CountPaths
from tocsin.dispatch.job_options import shown_options
from tocsin.dispatch.pulled import EVERY_QUEUE, Claimed, Parent, Slot, WorkerInfo, WorkerSnapshot
from tocsin.dispatch.trace_context import Trace, child
from tocsin.dispatch.tracing import API
from tocsin.dispatch.words import word
from tocsin.errors import HostClosedError, InvalidInputError, NotFoundError, TocsinError

CLAIM_LEASE_MS = 60_000
CLAIM_WAIT_S = 20.0


class LocalQueues:
    """Serves workers of one scheduler. Nothing of who they are is stored."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def claim(
        self,
        queue: str | Sequence[str],
        *,
        max: int,
        lease_ms: int,
        wait_ms: int,
        worker: WorkerInfo | None,
        exclude: Sequence[str],
    ) -> list[Claimed]:
        """Lease up to `max` due jobs; wait for the first one for at most `wait_ms`, then the list is empty."""
        named, left_out = named_queues(queue, exclude)
        pull = PullClaim(
            named,
            frozenset(left_out),
            arguments.integer(max, "max", *arguments.CLAIM_MAX),
            arguments.integer(lease_ms, word("lease_ms"), *arguments.LEASE_MS),
            "" if worker is None else arguments.plain_name(worker.id, "worker.id"),
        )
        seconds = arguments.integer(wait_ms, word("wait_ms"), *arguments.CLAIM_WAIT_MS) / 1000
        here = self._instance
        pulls = here.service.inflight(here.name).waiting_claims
        pulls.enter(pull)
        try:
            await here.host.call(here.id, ClaimMore(), create=False)
        except NotFoundError:
            pass  # nobody has scheduled anything yet: the first job wakes who waits
        except (TocsinError, asyncio.CancelledError):
            pulls.withdraw(pull)
            raise
        claims = await pulls.wait(pull, seconds)
        return [self._claimed(one) if one.job.trace is None else self._traced(one, one.job.trace) for one in claims]

    async def give_back(self, leases: Sequence[tuple[str, str]]) -> None:
        """Requeue, uncharged, what did not reach its worker, which has hung up."""
        here = self._instance
        here.service.inflight(here.name).waiting_claims.give_back([lease for _, lease in leases])

    def _traced(self, claim: Claim, trace: Trace) -> Claimed:
        """Do the same for a job of a trace, which gets a span of this attempt."""
        claimed, here = self._claimed(claim), self._instance
        random, tracing = here.host.random, here.service.tracing
        sent = tracing.claimed(claimed, trace, random) if API in modules else child(trace, random)
        return replace(claimed, traceparent=sent[0], tracestate=sent[1] or None)

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
            instance_name=self._instance.name,
            function_path=job.function_path,
            workflow=job.workflow,
            expires_at=job.expires_at,
            schedule=None if slot is None else _slot(slot),
            parent=None if job.parent is None else _parent(job, job.parent, claim.parent_result),
            then=bool(job.then_size),
            **shown_options(job),
        )

    async def queues(self) -> Sequence[Queue]:
        """Return what each queue holds, and how many claims wait for it on this host."""
        here = self._instance
        pulls = here.service.inflight(here.name).waiting_claims
        return await queue_stats.counts(here.view(), here.now_ms(), pulls.waiting_for)

    async def pending(self, prefix: str) -> Pending:
        """Tell whether any live job's function path or workflow starts with `prefix`."""
        if not isinstance(prefix, str) or len(prefix) > arguments.MAX_TARGET:
            raise InvalidInputError(f"prefix must be a text of at most {arguments.MAX_TARGET} characters")
        arguments.whole_text(prefix, "prefix")
        here = self._instance
        if not await queue_stats.is_counted(here.view()):
            try:
                while await here.call(CountPaths(), create=False):
                    pass
            except NotFoundError:
                return Pending(False, 0)  # it was removed meanwhile
        return await queue_stats.pending(here.view(), prefix)

    async def outcome(self, id: str, wait_s: float | None) -> Outcome:
        """Return how a job ended, or how it stands after so long (None: wait until it has ended). HostClosedError where
        nobody may wait any more."""
        job_id, here = arguments.schedule_id(id), self._instance
        monotonic, waiters = here.host.clock.monotonic, here.service.inflight(here.name)  # held as long as this waits
        deadline = None if wait_s is None else monotonic() + wait_s
        while True:
            with waiters.result_waiters.watch(job_id) as ended:
                found = await outcomes.of(here.view(), job_id, here.now_ms())
                left = None if deadline is None else deadline - monotonic()
                if found.ended or (left is not None and left <= 0):
                    return found
                if waiters.result_waiters.stopping:
                    raise HostClosedError(NOBODY_WAITS)
                try:
                    async with asyncio.timeout(left):
                        await ended.come()
                except TimeoutError:
                    return await outcomes.of(here.view(), job_id, here.now_ms())

    # ---- Workers ---------------------------------------------------------------------------------

    async def announce(self, snapshot: WorkerSnapshot) -> None:
        """Note how a worker is, and that it was heard now. InvalidInputError names what cannot be so."""
        here = self._instance
        here.service.workers.note(here.name, snapshot)

    async def workers(self, *, cursor: str | None, limit: int) -> WorkerPage:
        """Return a page of the workers that this host has heard of within five minutes, by id."""
        after = "" if cursor is None else arguments.plain_name(cursor, "cursor")
        return self._instance.service.workers.page(self._instance.name, after, page_limit(limit))


def named_queues(queue: object, exclude: object) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the named queues (None: all of them) and those left out."""
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


def _parent(job: JobRow, parent: str, said: bytes) -> Parent:
    raw = arguments.raw(said) if said else msgspec.UNSET
    parent_is = "" if job.extras is None else job.extras.parent_is
    if parent_is == "dead":
        return Parent(id=parent, raw_dead=raw)
    return Parent(id=parent, raw_result=raw, group=parent_is == "group")
