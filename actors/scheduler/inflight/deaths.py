"""Report jobs whose death is on disk: a line in the log, and the app's own hook. No turn waits for it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.scheduler.model.health import DEAD_GROWING, HOOK_FAILING, JOBS_DYING, Cause
from tocsin.actors.scheduler.model.recent import Recent
from tocsin.actors.scheduler.model.rows import DeadRow, JobRow
from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.scheduler")


class DeadJob(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A job that has just died, as `on_dead` is told of it: why (`reason`), after how many dispatches (`attempt`) and
    charged failures (`attempts`), and the last HTTP `status` and error. `get(id)` has the rest, args included."""

    instance: str
    id: str
    incarnation: str
    function_path: str | None = None
    workflow: str | None = None
    pool: str | None = None
    queue: str | None = None
    labels: Sequence[str] = ()
    schedule: str | None = None
    """The name of the schedule it is an occurrence of."""
    reason: str
    parked_at: int
    attempt: int
    attempts: int
    losses: int = 0
    status: int | None = None
    error: str | None = None
    code: str | None = None
    """The name of the last error for programs, if its handler or receiver gave one."""

    @property
    def target(self) -> str:
        """The function path or workflow of the job."""
        return self.function_path or self.workflow or ""


OnDead = Callable[[DeadJob], Awaitable[None] | None]
"""`on_dead(job)`, sync or async: called once for each job that this host makes dead, after that is on disk."""
PATIENCE_S: Final = 30.0
"""How long an async hook may take for one job; then it is cancelled, and counts as failed."""
LOGGED: Final = 10
WINDOW_S: Final = 10.0
"""How many deaths of one instance are logged singly in one window; the others are counted."""
LATELY_S: Final = 600.0
"""For how long a death counts in health."""
DYING: Final = 10
"""Health is red if this many jobs died lately by callbacks, while nearly all of these fail."""
OF_FAILURES: Final = ("exhausted", "lost")
"""Why jobs die of failing callbacks. A receiver that refuses a job for good works."""


@dataclass(slots=True)
class _Lately:
    """The latest deaths of one instance."""

    deaths: Recent
    by_callbacks: Recent
    last: DeadJob


class Deaths:
    """The deaths that one host logs and tells the hook of."""

    def __init__(
        self,
        hook: OnDead | None,
        clock: Clock,
        start_soon: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        if hook is not None and not callable(hook):
            raise SettingsError(f"on_dead must be a function, not {type(hook).__name__}")
        self._hook, self._clock, self._start_soon = hook, clock, start_soon
        self._waiting: deque[DeadJob] = deque()
        self._task: asyncio.Task[None] | None = None
        self._logged: Counter[str] = Counter()
        self._unlogged: dict[str, Counter[str]] = {}
        self.windows: set[asyncio.Task[None]] = set()
        """Tasks that only wait for the end of a window."""
        self.noted = 0
        """How many deaths were told of in this process."""
        self.failures = 0
        """How many calls of the hook have failed in this process."""
        self.broken: Cause | None = None
        """Set while the last call of the hook failed."""
        self._lately: dict[str, _Lately] = {}

    def note(self, dead: Sequence[DeadJob]) -> None:
        """Log these deaths, which are on disk, and let the hook be told. Returns at once."""
        self.noted += len(dead)
        for one in dead:
            self._log(one)
            self._count(one)
        if self._hook is not None:
            self._waiting.extend(dead)
            if self._task is None or self._task.done():
                self._task = self._start_soon(self._call_hook(self._hook))

    # ---- Health ----------------------------------------------------------------------------------

    def _count(self, one: DeadJob) -> None:
        if (lately := self._lately.get(one.instance)) is None:
            for name in [name for name, each in self._lately.items() if not each.deaths.total]:
                del self._lately[name]
            deaths, by_callbacks = (Recent(self._clock.monotonic, LATELY_S) for _ in range(2))
            lately = self._lately[one.instance] = _Lately(deaths, by_callbacks, one)
        lately.deaths.note()
        lately.last = one
        if one.queue is None and one.reason in OF_FAILURES:
            lately.by_callbacks.note()

    def dying(self, failing: Cause | None, instance: str | None = None) -> Cause | None:
        """Say that jobs die while callbacks fail, which `failing` says: of this instance, or of all and of how many."""
        if failing is None:
            return None
        names = list(self._lately) if instance is None else [instance]
        counts = [count for name in names if (count := self._died_of_callbacks(name))]
        if sum(counts) < DYING:
            return None
        whose = f" of {len(counts):,} instances" if len(counts) > 1 else ""
        said = f"{sum(counts):,} jobs{whose} died of failing callbacks within 10 minutes"
        return Cause(JOBS_DYING, f"{said}: repair the receiver, then retry them")

    def _died_of_callbacks(self, instance: str) -> int:
        return 0 if (lately := self._lately.get(instance)) is None else lately.by_callbacks.total

    def growing(self, instance: str, kept: int, limit: int) -> Cause | None:
        """Say that many jobs of this instance died lately and are still kept: `kept` is how many dead ones it has."""
        lately = self._lately.get(instance)
        count = 0 if lately is None else lately.deaths.total
        if lately is None or min(count, kept) < limit:
            return None
        last = lately.last
        error = "" if last.error is None else f": {last.error}"
        said = f"{count:,} jobs died within 10 minutes, the last one {last.id} ({last.target}, {last.reason}{error})"
        return Cause(DEAD_GROWING, f"{said}; see `tocsin dead ls`, and retry them when the cause is gone")

    async def drain(self, seconds: float) -> None:
        """Wait until the hook was told of all, for at most so long; log how many are left."""
        try:
            async with asyncio.timeout(seconds):
                while self._task is not None and not self._task.done():
                    await asyncio.wait([self._task])
        except TimeoutError:
            assert self._task is not None
            self._task.cancel()
            log.warning("on_dead was not called for %d dead jobs: they are among the dead letters", len(self._waiting))
        for window in self.windows:
            window.cancel()
        for instance in list(self._unlogged):
            self._log_rest(instance)

    # ---- The hook --------------------------------------------------------------------------------

    async def _call_hook(self, hook: OnDead) -> None:
        while self._waiting:
            one = self._waiting[0]
            try:
                waiting = hook(one)
                if inspect.isawaitable(waiting):
                    async with asyncio.timeout(PATIENCE_S):
                        await waiting
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                # The app's own code: whatever it raises is reported, and the hook is told of the others.
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                self._failed(one, error)
            else:
                self.broken = None
            self._waiting.popleft()

    def _failed(self, one: DeadJob, error: BaseException) -> None:
        self.failures += 1
        why = f"took longer than {PATIENCE_S:.0f} s" if isinstance(error, TimeoutError) else type(error).__name__
        since = self._clock.now_ms() if self.broken is None else self.broken.since
        self.broken = Cause(HOOK_FAILING, f"on_dead failed for {one.instance}/{one.id}: {why}", since)
        log.error(
            "on_dead failed for %s/%s (%d failures so far)", one.instance, one.id, self.failures, exc_info=error,
            extra={"instance": one.instance, "id": one.id},
        )  # fmt: skip

    # ---- The log ---------------------------------------------------------------------------------

    def _log(self, one: DeadJob) -> None:
        if self._logged[one.instance] >= LOGGED:
            self._unlogged.setdefault(one.instance, Counter())[one.reason] += 1
            return
        if not self._logged[one.instance]:
            window = self._start_soon(self._window(one.instance))
            self.windows.add(window)
            window.add_done_callback(self.windows.discard)
        self._logged[one.instance] += 1
        status = "no status" if one.status is None else f"last status {one.status}"
        attempts = "1 attempt" if one.attempt == 1 else f"{one.attempt} attempts"
        error = "" if one.error is None else f": {one.error}"
        log.warning(
            "job %s/%s (%s) is dead: %s after %s, %s%s",
            one.instance, one.id, one.target, one.reason, attempts, status, error,
            extra={
                "instance": one.instance, "id": one.id, "path": one.target, "attempt": one.attempt,
                "reason": one.reason, "status": one.status,
            },
        )  # fmt: skip

    async def _window(self, instance: str) -> None:
        await self._clock.sleep(WINDOW_S)
        del self._logged[instance]
        self._log_rest(instance)

    def _log_rest(self, instance: str) -> None:
        more = self._unlogged.pop(instance, None)
        if more:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in more.most_common())
            jobs = "1 more job" if more.total() == 1 else f"{more.total():,} more jobs"
            log.warning(
                "%s of %s died within %.0f s: %s", jobs, instance, WINDOW_S, reasons,
                extra={"instance": instance, "count": more.total(), "reasons": dict(more)},
            )  # fmt: skip


def dead_jobs(instance: str, parked: Sequence[tuple[JobRow, DeadRow]]) -> Sequence[DeadJob]:
    """Make what the log and the hook are told of jobs that died."""
    return [_dead_job(instance, job, dead) for job, dead in parked]


def _dead_job(instance: str, job: JobRow, dead: DeadRow) -> DeadJob:
    at = dead.at
    return DeadJob(
        instance=instance,
        id=job.id,
        incarnation=job.incarnation,
        function_path=job.function_path,
        workflow=job.workflow,
        pool=job.pool or None,
        queue=job.queue or None,
        labels=job.labels,
        schedule=None if job.schedule is None else job.schedule.name,
        reason=dead.reason,
        parked_at=dead.parked_at,
        attempt=at.attempt,
        attempts=at.attempts,
        losses=at.losses,
        status=dead.status,
        error=None if at.last_error is None else at.last_error.message,
        code=None if at.last_error is None else at.last_error.code,
    )
