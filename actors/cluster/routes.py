"""The place where each operation is done, and how it gets there: at its actor's owner, from the store, or by mail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.actor.clock_names import ID as CLOCK_NAMES
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.sharing.operations import OPERATIONS, Operation
from tocsin.errors import StoreError, StoreLocked

PASSES: Final = "pass"
"""Passes of WebSockets are in the memory of the host that owns the slot of their digest."""
_OF_HOST: Final = frozenset({"host.instances", "host.run_due", "host.accepted"})

FROM_STORE: Final = frozenset({
    "reads.get", "reads.list", "reads.dead", "reads.history", "reads.pool", "reads.redrive", "reads.dead_groups",
    "reads.group", "reads.groups", "reads.members",
    "reads.audit", "queues.pending", "schedules.get", "schedules.list", "schedules.occurrences", "schedules.preview",
    "schedules.backfills",
    "jobs.first_answer", "transfer.state",
})  # fmt: skip
"""Reads of committed state, which any host answers from the store."""

RATHER_FROM_STORE: Final = frozenset({"reads.status", "reads.why", "reads.clock", "queues.queues", "queues.outcome"})
"""Reads to which the owner adds something from its memory. Where it is not reached, the store answers."""

BY_MAIL: Final = frozenset({
    "jobs.submit", "jobs.submit_many", "jobs.submit_once",
    "changes.cancel", "changes.cancel_all", "changes.reschedule", "changes.complete", "changes.extend",
    "changes.dead_retry", "changes.dead_cancel", "changes.dead_retry_all", "changes.dead_cancel_all", "changes.undo",
    "changes.redrive_stop", "changes.set_pool", "changes.set_queue", "changes.delete_pool", "changes.free_slot",
    "changes.open_group", "changes.seal_group", "changes.cancel_group", "changes.set_instance",
    "changes.remove",
    "changes.set_clock", "changes.advance_clock", "changes.freeze_clock", "queues.give_back",
    "schedules.put", "schedules.register", "schedules.pause", "schedules.resume", "schedules.delete",
    "schedules.trigger", "schedules.backfill", "schedules.backfill_stop", "host.settle", "host.call", "host.note_clock",
})  # fmt: skip
"""Changes, which the owner does whenever there is one."""
assert not (FROM_STORE | RATHER_FROM_STORE | BY_MAIL) - OPERATIONS.keys()


def subject(operation: Operation, instance: str, values: Sequence[Any]) -> str | None:
    """Return the actor whose owner does this; None if any host does."""
    name = operation.name
    if operation.part != "host":
        return str(actor_of(instance))
    if name in _OF_HOST:
        return None
    if name == "host.call":
        return str(ActorId(values[0], values[1]))
    if name == "host.settle":
        return str(actor_of(values[0]))
    if name == "host.note_clock":
        return str(CLOCK_NAMES)
    return f"{PASSES}/{values[0]}"


def is_elsewhere(error: BaseException) -> bool:
    """Return whether an error says that nothing was done, because the actor is not this host's (any more)."""
    return isinstance(error, StoreError) and (isinstance(error, StoreLocked) or error.owner_lost)
