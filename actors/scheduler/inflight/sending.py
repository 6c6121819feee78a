"""An attempt on its way: the catalog and the app's rule are asked, then its callback is made and given to dispatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tocsin.actors.scheduler.inflight.authorize import Guard
from tocsin.actors.scheduler.inflight.callback_failures import CallbackFailures
from tocsin.actors.scheduler.inflight.origins import Gate
from tocsin.actors.scheduler.model.catalog_check import CatalogCheck
from tocsin.actors.scheduler.model.instants_of_job import due_of
from tocsin.actors.scheduler.state.turn import LEASE_MARGIN_MS
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.dispatch.callback import AttemptOutcome, Callback, Occurrence, Verdict
from tocsin.dispatch.dispatcher import ORIGIN_NOT_CONFIGURED
from tocsin.dispatch.job_options import handler_options
from tocsin.dispatch.origin import URL, lacking

PULL_RULE_MS: Final = 10_000
"""So long the app's rule may take before a worker gets a job."""


class Sender:
    """Sends the attempts of all schedulers of a host."""

    def __init__(
        self,
        gates: Mapping[str, Gate],
        catalog: CatalogCheck,
        guard: Guard | None,
        failures: CallbackFailures,
        now_ms: Callable[[], int],
    ) -> None:
        self._gates, self._guard, self._failures, self._now_ms = gates, guard, failures, now_ms
        self._catalog = catalog if catalog.given else None
        self.asks_first = self._catalog is not None or guard is not None
        """True if an attempt may be refused before it is sent, or before a worker gets its job."""

    async def send(self, claim: Claim, instance: str) -> AttemptOutcome:
        """Send one attempt of a job of the named instance, and return how it ended.

        What the rule takes is taken from the callback's deadline: the lease covers both.
        """
        if self._catalog is not None and (blocked := self._catalog.before_attempt(claim.job, claim.args)) is not None:
            return blocked
        callback = callback_of(claim, instance)
        if self._guard is not None:
            answer = await self._guard.ask(claim, instance, self._now_ms(), callback.timeout_ms)
            if isinstance(answer, AttemptOutcome):
                return answer
            callback = msgspec.structs.replace(callback, timeout_ms=callback.timeout_ms - answer)
        gate = self._gates.get(claim.lease.origin)
        if gate is None:
            return AttemptOutcome(Verdict.UNREACHABLE, lacking(claim.lease.origin), code=ORIGIN_NOT_CONFIGURED)
        outcome = await gate.dispatcher.attempt(callback, now_ms=self._now_ms())
        if self._failures.watching or outcome.verdict is not Verdict.DONE:
            job = claim.job
            self._failures.note(f"{instance}/{job.id}", job.target, outcome, counts=gate.name != URL)
        return outcome

    async def refusal(self, claim: Claim, instance: str) -> AttemptOutcome | None:
        """Ask whether a worker may get this job; if not, return how its attempt ends, as for callbacks."""
        answer: AttemptOutcome | int | None = None
        if self._catalog is not None:
            answer = self._catalog.before_attempt(claim.job, claim.args)
        if answer is None and self._guard is not None:
            answer = await self._guard.ask(claim, instance, self._now_ms(), PULL_RULE_MS)
        return answer if isinstance(answer, AttemptOutcome) else None


def callback_of(claim: Claim, instance: str) -> Callback:
    """Make the callback of an attempt."""
    job, slot = claim.job, claim.job.schedule
    return Callback(
        id=job.id,
        incarnation=job.incarnation,
        args=claim.args,
        scheduled_for=due_of(job, claim.lease.at),
        attempt=claim.lease.at.attempt,
        lease=claim.token,
        instance=instance,
        function_path=job.function_path,
        workflow=job.workflow,
        schedule=None
        if slot is None
        else Occurrence(slot.name, slot.slot, slot.first_slot, None if slot.first_slot is None else slot.coalesced),
        parent=None if job.parent is None else (job.parent, claim.parent_result),
        parent_is="" if job.extras is None else job.extras.parent_is,
        timeout_ms=claim.lease.length_ms - LEASE_MARGIN_MS,
        url=None if job.extras is None else job.extras.url,
        trace=job.trace,
        **handler_options(job),
    )
