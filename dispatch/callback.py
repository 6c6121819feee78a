"""The two values that the scheduler and `dispatch` exchange: what to send, and how that ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec

from tocsin.dispatch.job_options import HandlerMembers


@dataclass(frozen=True, slots=True)
class Occurrence:
    """For an occurrence of a schedule: whose, and which slot (epoch ms). `first_slot` and `coalesced` if it stands for
    earlier slots too: the first of them, and how many there are (None: not counted)."""

    name: str
    slot: int
    first_slot: int | None = None
    coalesced: int | None = None


class Callback(HandlerMembers, frozen=True):
    """One attempt of one job, ready to be signed and sent. `args` is JSON text, sent byte for byte."""

    id: str
    incarnation: str
    """Together `<id>:<incarnation>` is the `webhook-id`: stable over attempts, new when an id is used again."""
    args: bytes
    scheduled_for: int
    attempt: int
    lease: str
    instance: str
    function_path: str | None = None
    workflow: str | None = None
    schedule: Occurrence | None = None
    parent: tuple[str, bytes] | None = None
    """The job that this one follows, and the JSON that it came to (b"": nothing)."""
    parent_is: str = ""
    """"": it succeeded. `dead`: the JSON tells of its death. `group`: it is a group."""
    timeout_ms: int = 60_000
    url: str | None = None
    """The place that the job named, if it is none of the host's origins."""
    trace: tuple[str, str] | None = None
    """The trace in which the job was scheduled: `traceparent` and `tracestate`."""


class Verdict(Enum):
    """The meaning of an attempt's end for its job (contract, section 3)."""

    DONE = "done"
    """Any 2xx."""
    ACCEPTED = "accepted"
    """2xx with `tocsin-accepted: 1`: work continues there, settled later by `/complete`."""
    FAILED = "failed"
    """Retried after a backoff; charged."""
    DECLINED = "declined"
    """An earlier attempt still runs there; not charged, at least 30 s later."""
    BUSY = "busy"
    """429 or 503 with Retry-After; not charged, at least `retry_after_ms` later."""
    DEAD = "dead"
    """`tocsin-retry: never` or 410: no further attempt."""
    UNKNOWN = "unknown"
    """The deadline passed after sending: it may still run there; charged, held until the lease ends."""
    BLOCKED = "blocked"
    """`authorize_fire` said no, or the catalog: never sent, not charged, dead."""
    UNREACHABLE = "unreachable"
    """Never connected, or nowhere to connect to, or `authorize_fire` could not say: no job's fault, not charged."""
    STOPPED = "stopped"
    """This host stopped before the answer came; not charged, held until the lease ends."""


class AttemptOutcome(msgspec.Struct, frozen=True):
    """How one attempt ended. `message` is for people and never holds a secret."""

    verdict: Verdict
    message: str | None = None
    """Why: `HTTP 500`, `connection refused`, ... For DONE only where a result was not kept."""
    status: int | None = None
    """The HTTP status, if there was an answer."""
    retry_after_ms: int | None = None
    """For BUSY: how long the receiver asks to be left alone, capped at one hour."""
    response: bytes | None = None
    """The first 2 KiB of the answer's body."""
    result: bytes | None = None
    """For DONE: the body, if it is whole and its type says that it is JSON."""
    error_code: str | None = None
    """For FAILED and DEAD: the code that the receiver named, for programs; and ..."""
    error_data: bytes | None = None
    """... the data that came with it, as JSON text."""
    code: str | None = None
    """For UNREACHABLE: why nothing was sent, if not because the origin could not be reached."""
    lease_ms: int | None = None
    """For ACCEPTED: how long the receiver asks to hold the lease, if it says."""
