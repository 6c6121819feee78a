"""Records of what `run_due` did, and of what it left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.actors.scheduler.model.records import Value

TIME_OVER: Final = "TIME_OVER"
JUST_DUE: Final = "JUST_DUE"
FOR_WORKERS: Final = "FOR_WORKERS"
NO_TROUBLE: Final = frozenset({
    "INSTANCE_PAUSED", "REMOVING", "POOL_PAUSED", "POOL_FULL", "POOL_RATE", "POOL_COOLING", FOR_WORKERS, JUST_DUE,
})  # fmt: skip
"""Reasons that somebody wanted, or that pass by the work of others."""


class LeftBehind(Value, frozen=True, rename="camel", omit_defaults=True):
    """Why due jobs were left: `code` for programs, `message` for people, and how many `jobs` of which instance. No
    instance: it holds for the whole host. `jobs` stops counting at 10,000."""

    code: str
    message: str
    jobs: int
    instance: str | None = None


class DueRun(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome of `run_due`. It counts attempts, but `dead`, `left` and `running` count jobs.

    `left` counts the due jobs that were not begun; `because` says why, and `trouble` whether a reason is among them
    that nobody wanted (the origin cannot be reached, the store is full, the time was over). Of more than 1,000
    instances the first are looked at for that (`more_instances`).
    """

    fired: int
    """Callbacks that were sent, or could not be sent because the origin was not reached."""
    succeeded: int
    accepted: int
    """Callbacks whose receivers work on, and complete the jobs later."""
    failed: int
    """Callbacks that ended otherwise: most of these jobs are tried again later."""
    dead: int
    """Jobs that died meanwhile, whatever the reason."""
    left: int
    running: int
    """Jobs that a receiver, a worker or another attempt still has."""
    trouble: bool
    next_due: int | None = None
    """When something is to be done next (a job, a slot, the end of a lease, upkeep), epoch ms."""
    because: Sequence[LeftBehind] = ()
    more_instances: bool = False
