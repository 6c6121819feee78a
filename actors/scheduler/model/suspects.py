"""Suspects: jobs that ran when hosts or workers were lost. The more losses a job has, the fewer jobs run beside it.

A loss is counted against every attempt that was under way, so most suspects are innocent. One that is not must end
dead without harming others: beside others a job becomes a suspect at most, and only an attempt that had its host (or
worker) for itself can be a job's last (decision 28).
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.actors.scheduler.model.rows import AtRow, LastError

SOME: Final = 1
"""The level of jobs with two losses: they share a part of the host, or of a worker, and others run beside them."""
FEW: Final = 2
"""The level of three losses: fewer suspects run together, so that a bad job is soon among few."""
ALONE: Final = 3
"""The level of four losses: nothing runs beside them."""
LOSSES_TOGETHER: Final = 2
"""This many losses make a job a suspect."""
LOSSES_MAX: Final = 5
"""This many losses make it dead."""
LEVELS: Final = (ALONE, FEW, SOME)
WORKER_SHARE: Final = 4
"""How many suspects of the first level a worker may have at once; one of the second counts as that many."""


def level_of(at: AtRow) -> int:
    """Return how far from others a job is kept, 0: not at all. Jobs that were lost twice before there were levels are
    of the first one."""
    return max(at.apart, SOME if at.losses >= LOSSES_TOGETHER else 0)


def lost(at: AtRow, error: LastError) -> AtRow:
    """Count one more loss. It is never the last one of a job that ran beside others."""
    level = level_of(at)
    losses = at.losses + 1 if level == ALONE else min(at.losses + 1, LOSSES_MAX - 1)
    apart = max(level, losses - LOSSES_TOGETHER + SOME if losses >= LOSSES_TOGETHER else 0)
    return msgspec.structs.replace(at, losses=losses, apart=min(apart, ALONE), last_error=error)


def share_of_worker(at: AtRow) -> int:
    """Return how much of a worker's share of suspects such a job takes."""
    return share_of_level(level_of(at))


def share_of_level(level: int) -> int:
    return (0, 1, WORKER_SHARE, WORKER_SHARE)[level]
