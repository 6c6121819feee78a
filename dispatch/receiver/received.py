"""The argument of a handler: the callback as it was received, verified and decoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tocsin.dispatch.job_options import HandlerOptions
from tocsin.errors import InvalidInputError

LEASE: Final = re.compile(r"(\d{1,30})\.(\d{1,30})\.[0-9A-Za-z]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """The key to settling an attempt: all that another process needs to complete it. Plain text, fit to be stored.

    Whoever has the lease may settle this attempt, so do not log it.
    """

    instance: str
    id: str
    lease: str = field(repr=False)
    webhook_id: str


@dataclass(frozen=True, slots=True)
class Parent:
    """The job that this one follows: what it came to (None if it did not say), or why it died.

    `dead` has `reason`, `parkedAt`, `attempts` and, if there are some, `message`, `status`, `code` and `response`, the
    beginning of the last answer. `group`: it is no job, but the group of this id, whose result tells how its members
    ended.
    """

    id: str
    result: Any
    dead: Mapping[str, Any] | None = None
    group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(HandlerOptions):
    """One callback. `scheduled_for` and `sent_ms` are ms since the epoch, by the scheduler's clock."""

    id: str
    webhook_id: str
    """`<id>:<incarnation>`: the same over all attempts, so write it with your own writes to have them once."""
    instance: str
    """The scheduler's name."""
    function_path: str | None
    workflow: str | None
    args: Any
    """As they were scheduled: tagged values are Python's types again."""
    attempt: int
    """Counts dispatches from 1; never repeats for a webhook_id."""
    lease: str = field(repr=False)
    scheduled_for: int
    """The original due instant, whatever retries did."""
    sent_ms: int
    """When this attempt was sent, floored to seconds."""
    timeout_s: float | None
    """How long the scheduler waits for this attempt's answer, up to a second more than it does since `sent_ms` is
    floored; None if it did not say. For a deadline of your own take `remaining_s()`."""
    schedule: Mapping[str, Any] | None = None
    """For an occurrence of a recurring job: name, slot, and more."""
    parent: Parent | None = None
    """The job before it in a chain, the one whose death it follows, or a group."""
    traceparent: str | None = None
    tracestate: str | None = None
    left_s: float | None = field(default=None, repr=False, compare=False)
    """How much of it was left on arrival."""
    arrived: float = field(repr=False, compare=False)
    monotonic: Callable[[], float] = field(repr=False, compare=False)

    @property
    def target(self) -> str:
        """Return the function path or the workflow's name."""
        return self.function_path if self.function_path is not None else self.workflow or ""

    @property
    def fence(self) -> tuple[int, int]:
        """Return a number that is higher for each later attempt: store it with your writes, and refuse lower ones.

        It is the epoch and sequence of the lease, so it orders all attempts of all jobs of one scheduler by when
        they were claimed, also over a store that was restored or made anew, if the scheduler's clock is right.
        Fences of two schedulers have no order.
        """
        return fence_of(self.lease)

    @property
    def leased(self) -> Leased:
        """Return what a `LeaseClient` needs, here or in another process."""
        return Leased(instance=self.instance, id=self.id, lease=self.lease, webhook_id=self.webhook_id)

    def remaining_s(self) -> float | None:
        """Return seconds until the scheduler stops waiting for the answer; negative after that; None if it did not say.

        It never ends after the instant of `tocsin-deadline`, by the clock here on arrival; from then on the
        monotonic clock counts. So a clock that is ahead of the scheduler's takes as much from the handler, and one
        that is behind gives as much, up to the second that timestamps leave out. If the clock says that the
        deadline was over on arrival, or that nothing was sent yet, it is passed over, and up to a second is lost.
        """
        return None if self.left_s is None else self.left_s - (self.monotonic() - self.arrived)


def fence_of(lease: str) -> tuple[int, int]:
    """Return epoch and sequence of a lease."""
    match = LEASE.fullmatch(lease)
    if match is None:
        raise InvalidInputError("lease must look like <epoch>.<seq>.<random> to have an order")
    return int(match[1]), int(match[2])
