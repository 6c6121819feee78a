"""One batch of an outbox on its way: submitted, and settled by what became of each of its rows."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from tocsin.actors.outbox.job_text import read
from tocsin.actors.outbox.table import BATCH_ROWS, Batch, OutboxRow, ParkedRow, Release, Table
from tocsin.actors.outbox.target import Answers, Refused, Target
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.scheduler.transitions.idempotency import KEPT_MS
from tocsin.dispatch.retry import Retry
from tocsin.errors import IdempotencyMismatchError, RequestError, TocsinError

log = logging.getLogger("tocsin.outbox")

CLOCKS_MS: Final = 3_600_000
"""How far the clocks of drains and schedulers may be apart."""
STALE_MS: Final = KEPT_MS - CLOCKS_MS
"""Of older batches each job is asked after: the answer they got may not be kept any more."""
FORGOTTEN_MS: Final = 7 * 86_400_000
"""Of still older ones a scheduler may have forgotten how their jobs ended."""
UNASKED_MS: Final = 30_000
"""How long a row waits that the scheduler cannot take now, through no fault of the row."""
OF_A_ROW: Final = (400, 413)
"""Statuses that a single job may have caused; other refusals concern the caller or the time."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 30_000


class Rests:
    """Instances that cannot be reached, and until when they are left alone; on a clock that never steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rests: dict[str, tuple[int, float]] = {}  # the pause in ms, and when it is over

    def begin(self, instance: str) -> int:
        """Return for how long the instance is not tried, ms: longer each time."""
        before, _ = self._rests.get(instance, (FIRST_PAUSE_MS // 2, 0.0))
        pause = min(2 * before, LONGEST_PAUSE_MS)
        self._rests[instance] = (pause, self._clock.monotonic() + pause / 1000)
        return pause

    def end(self, instance: str) -> bool:
        return self._rests.pop(instance, None) is not None

    def resting(self) -> list[str]:
        now = self._clock.monotonic()
        return [instance for instance, (_, until) in self._rests.items() if until > now]


class Bringing:
    """Submits batches; `rows` is how many of them the next one may have."""

    def __init__(
        self,
        table: Table,
        target_of: Callable[[str], Target],
        retry: Retry,
        tell_parked: Callable[[ParkedRow], Awaitable[None]],
        clock: Clock,
        random: Random,
    ) -> None:
        self._table, self._target_of, self._retry, self._tell_parked = table, target_of, retry, tell_parked
        self._clock, self._random = clock, random
        self.longest_wait_ms = 60_000 + int(max(retry.max_ms * (1 + retry.jitter), LONGEST_PAUSE_MS, UNASKED_MS))
        self.rests = Rests(clock)
        self.rows = BATCH_ROWS

    async def bring(self, batch: Batch) -> int:
        """Submit a batch; how many rows were accepted. Errors of the database are raised, after others it waits."""
        try:
            answers = await self._answers(batch)
        except Exception as error:  # whatever a target raises: the batch stays, and the same is asked again
            if not isinstance(error, RequestError) or error.status not in OF_A_ROW:
                await self._rest(batch, error)
                return 0
            answers = self._refused_whole(batch, error)
        else:
            self.rows = min(2 * self.rows, BATCH_ROWS)
        if self.rests.end(batch.instance):
            log.info("the scheduler of instance %r takes jobs again", batch.instance)
        return await self._settle(batch, answers)

    async def _answers(self, batch: Batch) -> Answers:
        target, age = self._target_of(batch.instance), self._clock.now_ms() - batch.at
        if -CLOCKS_MS <= age < STALE_MS:
            try:
                return await target.submit_batch([(row.id, row.job) for row in batch.rows], batch.id)
            except IdempotencyMismatchError:  # somebody has changed or removed rows of it since it was submitted
                log.warning("outbox batch %s is not what it was: each of its jobs is asked after", batch.id)
        if age >= FORGOTTEN_MS:
            log.warning(
                "outbox batch %s has waited for more than %d days since it may have been submitted: a job of it that "
                "ran before then, and left no trace, runs again", batch.id, FORGOTTEN_MS // 86_400_000,
            )  # fmt: skip
        # What left a trace was accepted; the rest is not answered, and goes into another batch.
        return {row.id: None for row in batch.rows if await self._known(target, row, batch.at)}

    async def _known(self, target: Target, row: OutboxRow, since: int) -> bool:
        try:
            job_id = read(row.job).id
        except TocsinError:
            return False  # then it was never accepted
        # An id that was chosen may have been another job's before.
        return isinstance(job_id, str) and await target.knows(job_id, None if job_id == row.id else since)

    def _refused_whole(self, batch: Batch, error: TocsinError) -> Answers:
        """Handle a call that was refused as a whole: smaller batches show which row is at fault."""
        self.rows = max(len(batch.rows) // 2, 1)
        return {batch.rows[0].id: Refused.by(error)} if len(batch.rows) == 1 else {}

    async def _rest(self, batch: Batch, error: Exception) -> None:
        pause = self.rests.begin(batch.instance)
        log.warning(
            "%d rows of the outbox wait: the scheduler of instance %r did not take them, tried again in %d s: %r",
            len(batch.rows), batch.instance, pause // 1000, error,
        )  # fmt: skip
        await self._table.hold(batch, self._clock.now_ms() + pause)

    # ---- What becomes of rows --------------------------------------------------------------------

    async def _settle(self, batch: Batch, answers: Answers) -> int:
        now = self._clock.now_ms()
        released = {
            row.id: self._released(row, answers, now)
            for row in batch.rows
            if row.id not in answers or answers[row.id] is not None
        }
        await self._table.settle(batch, released)
        for row in batch.rows:
            one = released.get(row.id)
            if one is not None and one.parked_at is not None:
                await self._tell_parked(
                    ParkedRow(row.id, row.instance, row.job, row.created_at, one.tries, one.error or "", one.parked_at)
                )
        return len(batch.rows) - len(released)

    def _released(self, row: OutboxRow, answers: Answers, now: int) -> Release:
        refused = answers.get(row.id)
        if refused is None:
            return Release(row.tries, now)
        error = f"{refused.code}: {refused.message}"
        if not refused.final:
            log.warning("outbox row %s waits: %s", row.id, error)
            return Release(row.tries, now + UNASKED_MS, error)
        tries = row.tries + 1
        if tries > self._retry.max_retries:
            return Release(tries, now, error, parked_at=now)
        return Release(tries, now + self._retry.delay_ms(tries, self._random), error)
