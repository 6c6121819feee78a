"""The budget of one turn for schedules, however many are due and however long their backlogs: a stop, and everybody
else, waits for the end of a turn, and its rows must fit one commit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from tocsin.actors.scheduler.state.turn import Turn

STEPS: Final = 400
"""Slots computed: some 15 ms, an expression that is hard to search less often."""
LEAST_STEPS: Final = 20
"""For each schedule, if many have a backlog."""
BUSY_MS: Final = 30
"""Of computing at a stretch."""
ROWS: Final = 2_000
"""Of 10,000 in a commit, in which the same turn also claims, settles and expires."""
BYTES: Final = 2 * 1024 * 1024
"""Of 8 MiB in a commit."""


class Allowance:
    """Counts down what is left for this turn. Something is always done before it is asked."""

    def __init__(self, turn: Turn, *, for_schedules: int = 1) -> None:
        self._each = max(STEPS // max(for_schedules, 1), LEAST_STEPS)
        self.steps, self.rows, self.size = STEPS, ROWS, BYTES
        self._turn = turn
        self._began = turn.ctx.now_ms()

    async def give_way(self) -> None:
        """Let others on the loop run: nobody else gets this turn, and what they compute is not counted."""
        if not self.in_time:
            await asyncio.sleep(0)
            self._began = self._turn.ctx.now_ms()

    def share(self, most: int) -> Share:
        """Give one of the schedules its part; it may decide so many slots."""
        return Share(self, self._each, most)

    @property
    def in_time(self) -> bool:
        # A step of the wall clock ends the stretch early, no more.
        return abs(self._turn.ctx.now_ms() - self._began) < BUSY_MS

    @property
    def spent(self) -> bool:
        return self.steps <= 0 or self.rows <= 0 or self.size <= 0 or self._turn.is_full or not self.in_time

    def take(self, rows: int, size: int = 0) -> None:
        self.rows -= rows
        self.size -= size


@dataclass(slots=True)
class Share:
    """The part of one schedule: a `Pace`."""

    allowance: Allowance
    steps: int
    most: int

    def step(self) -> bool:
        self.steps -= 1
        self.allowance.steps -= 1
        return self.steps > 0 and self.allowance.in_time
