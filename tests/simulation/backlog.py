"""How long the end of a run waits for what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

LOOK_S = 100
ROUNDS = 20
"""That often it looks at least; most runs have ended much earlier."""
JOB_S = 12
"""No callback takes one lane longer in good weather: 3 s each way, 5 s of work, and two commits."""


async def until_worked_off(left: Callable[[], Collection[int]]) -> None:
    """Wait until nothing is left, at most as long as one lane may need for it. A clock that was ahead may have left
    hundreds of occurrences, and the host may have a single lane."""
    rounds = ROUNDS + len(left()) * JOB_S // LOOK_S
    for _ in range(rounds):
        await asyncio.sleep(LOOK_S)
        if not left():
            break
