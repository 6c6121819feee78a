"""Records of the hosts of a shared store, for callers."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.model.outcomes import Value


class StoreHost(Value, frozen=True, rename="camel"):
    """One host of a shared store: its id, the computer and process that it is, `up` or `draining`, how many slots of
    the store it owns, and how long its lease still lasts (below 0: it is over)."""

    host: str
    name: str
    state: str
    slots: int
    lease_left_ms: int


class ClusterStatus(Value, frozen=True, rename="camel", omit_defaults=True):
    """The hosts of a shared store, as the host `answered_by` sees them. `owner`: the host that has this instance, which
    is in slot `slot` of the store; None while it goes from one to another. `unowned`: slots without a living owner."""

    answered_by: str
    owner: str | None
    slot: int
    hosts: Sequence[StoreHost]
    unowned: int = 0
    mail: int = 0
    """Calls that wait in the store for the owner of their scheduler."""
    oldest_mail_ms: int = 0
    beat_ms: int = 0
    """The time since the store took the last sign of life of the host that answered."""
    clock_ahead_ms: int = 0
    """By how much that host's computer's clock is ahead of the store's, by which jobs are due."""
