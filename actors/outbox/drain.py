"""`Drain`: brings what was committed to an outbox table to its scheduler, each row once, whatever crashes.

Three steps, each durable before the next: rows are put into a batch; the batch is submitted, with its id as the key
under which a scheduler does things once; its rows are deleted. Whoever finds a batch that is not held any more does the
last two steps again.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from random import Random, SystemRandom
from typing import Final, Self

from tocsin.actors.outbox import statements
from tocsin.actors.outbox.databases import PROBE_S, Database
from tocsin.actors.outbox.patience import Patient
from tocsin.actors.outbox.statements import Which
from tocsin.actors.outbox.submit_batch import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, Bringing
from tocsin.actors.outbox.table import ParkedRow, Table
from tocsin.actors.outbox.target import SchedulerTarget, Target, Targets, target_of
from tocsin.actors.runtime.clock import Clock, SystemClock
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.retry import Retry
from tocsin.errors import HostClosedError, SettingsError

log = logging.getLogger("tocsin.outbox")

TRIES: Final = Retry(max_retries=7, base_ms=5_000, max_ms=300_000)
"""Eight tries of a row that is refused, in about ten minutes."""
LEAST_POLL_MS, LEAST_HOLD_MS, LEAST_TIMEOUT_MS = 10, 100, 100
MOST_RESTING: Final = 50
"""With so many instances out of reach it is not theirs, but the host's trouble."""
STOP_S: Final = 5.0

OnParked = Callable[[ParkedRow], Awaitable[None] | None]


class Drain:
    """Use it with `async with`, inside the host's; several at once, in as many processes, share the work.

    `database` is where the table is, `jobs` where its jobs go: a `Scheduler` (rows of its instance only), an
    `ActorHost` or `OutboxClient` (rows of any), or a `Target` of your own. It looks every `poll`, and at once after
    `notify()`. A database that gives no answer within `timeout` counts as one that cannot be reached. What a drain that
    died had at hand is taken up by another after `hold`; two may well submit the same. A row that was refused
    `retry.max_retries + 1` times is parked: logged, told to `on_parked` (sync or async), and shown by `parked()`.
    SettingsError, InvalidInputError for what could never work.
    """

    def __init__(
        self,
        database: Database,
        jobs: Scheduler | Targets | Target,
        *,
        table: str = statements.TABLE,
        poll: Duration = 1.0,
        hold: Duration = 5.0,
        timeout: Duration = 10.0,
        retry: Retry = TRIES,
        on_parked: OnParked | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._poll_s = _at_least(LEAST_POLL_MS, poll, "poll") / 1000
        self._hold_ms = _at_least(LEAST_HOLD_MS, hold, "hold")
        jobs = target_of(jobs)
        if not isinstance(retry, Retry):
            raise SettingsError(f"retry must be a Retry, not {type(retry).__name__}")
        if on_parked is not None and not callable(on_parked):
            raise SettingsError(f"on_parked must be a function, not {type(on_parked).__name__}")
        self._clock, self._random = clock or SystemClock(), random or SystemRandom()
        timeout_s = _at_least(LEAST_TIMEOUT_MS, timeout, "timeout") / 1000
        self._database = Patient(database, self._clock, timeout_s)
        self._table = Table(self._database, statements.table_name(table))
        self._jobs, self._on_parked = jobs, on_parked
        self._only = None if isinstance(jobs, Targets) else jobs.name
        self._bringing = Bringing(self._table, self._target, retry, self._tell_parked, self._clock, self._random)
        self._busy, self._news, self._end = asyncio.Lock(), asyncio.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    # ---- Life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise HostClosedError("this drain has run, or is running: make another one")
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="tocsin outbox")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End after the batch at hand, or after some seconds. What is left waits in the table."""
        self._end.set()
        self._news.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait([task], timeout=STOP_S)
            task.cancel()  # no step is unsafe to be the last one
            await asyncio.wait([task])
        try:
            await self._database.aclose()
        except TimeoutError as error:  # it is of no use to who closes: what is not given back is dropped
            log.warning("the outbox is closed without a word to its database: %s", error)

    def notify(self) -> None:
        """Look at the table soon: call it after a commit, from any thread. Without it rows wait for the next look."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the drain with it
                self._loop.call_soon_threadsafe(self._news.set)

    # ---- For people ------------------------------------------------------------------------------

    async def create_table(self, *, announce: bool = False) -> None:
        """Make the table, unless it is there; in production rather by `Outbox.schema` in your migrations."""
        await self._table.create(announce=announce)

    async def parked(self, limit: int = 100) -> list[ParkedRow]:
        """List rows that were given up, the oldest first."""
        return await self._table.parked(arguments.integer(limit, "limit", *arguments.PAGE_LIMIT))

    async def retry(self, row_id: str) -> bool:
        """Try a parked row again, with a fresh budget; False if there is none of that id."""
        there = await self._table.unpark(row_id)
        self.notify()
        return there

    async def discard(self, row_id: str) -> bool:
        """Remove a parked row for good; False if there is none of that id."""
        return await self._table.discard(row_id)

    async def run_once(self) -> int:
        """Bring all that waits now; how many rows were accepted. For scripts and tests.

        Raises what the database's driver raises. A scheduler that takes nothing now is logged, and its rows stay.
        HostClosedError after `aclose`.
        """
        if self._end.is_set():
            raise HostClosedError("this drain is closed: make another one")
        return await self._bring_all()

    # ---- Inside ----------------------------------------------------------------------------------

    async def _bring_all(self) -> int:
        accepted = 0
        async with self._busy:
            while not self._end.is_set():
                resting = self._bringing.rests.resting()
                if self._only in resting or len(resting) >= MOST_RESTING:
                    break
                now = self._clock.now_ms()
                new = arguments.mint_id(now, self._random.getrandbits(80))
                which = Which(now, now + max(self._bringing.longest_wait_ms, 2 * self._hold_ms), self._only, resting)
                batch = await self._table.claim(which, now + self._hold_ms, new, self._bringing.rows)
                if batch is None:
                    break
                accepted += await self._bringing.bring(batch)
        return accepted

    async def _run(self) -> None:
        pause_s = 0.0
        while not self._end.is_set():
            self._news.clear()
            began = self._clock.monotonic()
            try:
                await self._listen()
                await self._bring_all()
                pause_s = 0.0
            except Exception as error:  # whatever the driver of a user's database raises: it may pass
                pause_s = min(max(2 * pause_s, FIRST_PAUSE_MS / 1000), LONGEST_PAUSE_MS / 1000)
                # From look to look: one that waited for an answer has taken its time already.
                rest_s = max(pause_s - (self._clock.monotonic() - began), FIRST_PAUSE_MS / 1000)
                log.warning("the outbox cannot be used, next look in %.0f s: %r", rest_s, error)
                await self._first_of(self._end, rest_s)
            else:
                await self._until_next_look()

    async def _listen(self) -> None:
        await self._database.listen(statements.channel(self._table.name), self.notify)

    async def _until_next_look(self) -> None:
        """Wait for `poll`, or until there is news; meanwhile the listener is asked whether it still listens."""
        until = self._clock.monotonic() + self._poll_s
        while (left := until - self._clock.monotonic()) > 0 and not self._news.is_set():
            await self._first_of(self._news, min(left, PROBE_S))
            if left > PROBE_S and not self._news.is_set():
                try:
                    await self._listen()
                except Exception as error:  # as above; the next look has the pause
                    log.warning("the outbox is looked at again: %r", error)
                    return

    async def _first_of(self, event: asyncio.Event, seconds: float) -> None:
        """Wait until it is set, or for so many seconds."""
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _target(self, instance: str) -> Target:
        jobs = self._jobs.scheduler(instance) if isinstance(self._jobs, Targets) else self._jobs
        return SchedulerTarget(jobs) if isinstance(jobs, Scheduler) else jobs

    async def _tell_parked(self, row: ParkedRow) -> None:
        log.warning("outbox row %s was parked after %d tries: %s", row.id, row.tries, row.error)
        if self._on_parked is None:
            return
        try:
            answer = self._on_parked(row)
            if inspect.isawaitable(answer):
                await answer
        except Exception:  # the app's own; the row is parked all the same
            log.exception("on_parked failed for outbox row %s", row.id)


def _at_least(least_ms: int, value: Duration, name: str) -> int:
    ms = duration_ms(value, name)
    if ms < least_ms:
        raise SettingsError(f"{name} must be at least {least_ms} ms, not {value!r}")
    return ms
