"""`FakeScheduler`: a scheduler for unit tests that keeps everything in memory and runs nothing."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final, cast

from tocsin.actors.actor_host import ActorHost
from tocsin.actors.runtime.clock import SystemClock
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.client.schedules import Schedules
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.catalog_check import CatalogGiven
from tocsin.actors.scheduler.model.records import Record
from tocsin.actors.testing.lab import inventory
from tocsin.actors.testing.lab.reading import Reading
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.instants import instant_ms
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import NotFoundError
from tocsin.storage.memory import MemoryDisk, MemoryProvider

_noting: ContextVar[bool] = ContextVar("tocsin_fake_noting", default=False)
PARTS: Final = ("jobs", "changes", "reads", "queues", "schedules")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the handle, as it was made: `Call("run_after", ("5m", "a:b"), {"id": "x"})`."""

    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class FakeScheduler(Scheduler):
    """The handle of a scheduler, for code that is given one. Nothing runs, and nothing need be opened or closed.

    The real handle over a real scheduler in memory that dispatches nothing: the same checks and errors, ids that are
    taken, lists, cancels. `calls` has each call. Its time stands still at `now` (aware datetime or epoch ms; the
    present, if left out) but for `advance`, so "5m" is five minutes from there. `catalog` is as for `ActorHost.open`.
    """

    def __init__(
        self, name: str = "default", *, now: datetime | int | None = None, catalog: CatalogGiven | None = None
    ) -> None:
        self._present = FrozenClock(SystemClock().now_ms() if now is None else instant_ms(now, "now"))
        self.calls: list[Call] = []
        self._disk, self._catalog = MemoryDisk(), catalog
        self._failures: list[Exception] = []
        self._host, self._loop = self._new_host(), cast("asyncio.AbstractEventLoop | None", None)
        self._starting: asyncio.Lock | None = None
        super().__init__(cast(SchedulerPort, _LazyPort(self._host.ports(name), self._started)))

    @property
    def schedules(self) -> Schedules:
        """Return the recurring definitions; their calls are noted as `schedules.put` and so on."""
        return _FakeSchedules(self._port, self._note)

    # ---- For tests -------------------------------------------------------------------------------

    def advance(self, by: Duration) -> None:
        """Move the present. Nothing runs by it."""
        self._present.ms += duration_ms(by, "by")

    def fail(self, error: Exception, times: int = 1) -> None:
        """Have the next calls raise this, such as `OverloadedError("busy")`, and change nothing."""
        self._failures += [error] * times

    def scheduled(self, path: str | None = None, **named: Any) -> Reading[list[Record]]:
        """Read the live jobs by their next attempt: `await jobs.scheduled("invoices:remind")`; see `Lab.scheduled`."""
        what = self._wanted(path, named)
        return Reading("scheduled", lambda: self._chosen(what), [])

    def assert_scheduled(
        self, path: str | None = None, *, count: int | None = None, **named: Any
    ) -> Reading[list[Record]]:
        """Check that there is such a job, or `count` of them; return them. The AssertionError shows what there is."""
        what = self._wanted(path, named)
        return Reading("assert_scheduled", lambda: self._there(what, count), [])

    def refute_scheduled(self, path: str | None = None, **named: Any) -> Reading[None]:
        """Check that there is no such job. The AssertionError shows what there is."""
        what = self._wanted(path, named)
        return Reading("refute_scheduled", lambda: self._not_there(what), [])

    async def attempts_at(self, id: str) -> list[datetime]:
        """Return when a job would be attempted, if every attempt failed at once. NotFoundError if there is none."""
        job = await Scheduler.get(self, id)
        if job is None or job.next_attempt_at is None:
            raise NotFoundError(f"there is no job {id!r} that will be attempted")
        return attempts_at(job.retry, job.next_attempt_at, failures=job.attempts)

    def _wanted(self, path: str | None, named: dict[str, Any]) -> inventory.Wanted:
        return inventory.wanted({"path": path, **named}, self._present.ms)

    async def _chosen(self, what: inventory.Wanted) -> list[Record]:
        return (await self._everything()).chosen(what)

    async def _there(self, what: inventory.Wanted, count: int | None) -> list[Record]:
        return inventory.check_there(await self._everything(), what, count, self._present.ms)

    async def _not_there(self, what: inventory.Wanted) -> None:
        inventory.check_not_there(await self._everything(), what, self._present.ms)

    async def _everything(self) -> inventory.Everything:
        return await inventory.everything([Scheduler(self._port)])

    # ---- Inside ----------------------------------------------------------------------------------

    def _note(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a call, and raise what was said to be raised."""
        self.calls.append(Call(method, args, kwargs))
        if self._failures:
            raise self._failures.pop(0)

    def _new_host(self) -> ActorHost:
        return ActorHost.open(
            MemoryProvider(self._disk), origin="http://127.0.0.1", insecure=True, transport=_Nowhere(),
            clock=self._present, catalog=self._catalog, dispatch=False,
        )  # fmt: skip

    async def _started(self) -> SchedulerPort:
        """Return the port of a host that runs on this event loop; each test may have one of its own."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                self._host = self._new_host()
            self._loop, self._starting = loop, asyncio.Lock()
        assert self._starting is not None
        async with self._starting:
            port = self._host.ports(self.name)
            if not self._host.runtime.is_open:
                await self._host._start()
        return port


class _FakeSchedules(Schedules):
    def __init__(self, port: SchedulerPort, note: Callable[[str, tuple[Any, ...], dict[str, Any]], None]) -> None:
        super().__init__(port)
        self._note = lambda method, args, kwargs: note(f"schedules.{method}", args, kwargs)


def _noted(kind: type, name: str) -> Callable[..., Any]:
    """Return the method of that name, which notes its calls first."""
    method = getattr(kind, name)

    @functools.wraps(method)
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _noting.get():  # one method of the handle may call another
            return await method(self, *args, **kwargs)
        self._note(name, args, kwargs)
        token = _noting.set(True)
        try:
            return await method(self, *args, **kwargs)
        finally:
            _noting.reset(token)

    return call


for _fake, _real in ((FakeScheduler, Scheduler), (_FakeSchedules, Schedules)):
    for _name, _ in inspect.getmembers(_real, inspect.iscoroutinefunction):
        if not _name.startswith("_"):
            setattr(_fake, _name, _noted(_real, _name))


class FrozenClock:
    """A `Clock` that stands still."""

    look_again_s = 10_000_000.0

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        """Return wall time, ms since the epoch."""
        return self.ms

    def monotonic(self) -> float:
        """Return the same in seconds."""
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        """Wait in real time: nothing that a test sees depends on it."""
        await asyncio.sleep(seconds)


class _LazyPort:
    """Stands for a port whose host starts with the first call."""

    def __init__(self, port: SchedulerPort, started: Callable[[], Any]) -> None:
        self.name, self.checks = port.name, port.checks
        for part in PARTS:
            setattr(self, part, _LazyPart(part, started))

    def asked_by(self, who: AskedBy) -> SchedulerPort:
        return cast(SchedulerPort, self)  # who asks is not looked at in unit tests


class _LazyPart:
    def __init__(self, part: str, started: Callable[[], Any]) -> None:
        self._part, self._started = part, started

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await getattr(getattr(await self._started(), self._part), method)(*args, **kwargs)

        return call


class _Nowhere:
    """A transport of a host that sends nothing."""

    async def post(self, *args: Any, **kwargs: Any) -> Answer:
        raise AssertionError("a scheduler that does not dispatch sends nothing")

    async def aclose(self) -> None:
        """Close nothing."""


class _Least(Random):
    """Draws no jitter."""

    def random(self) -> float:
        return 0.0


def attempts_at(retry: Retry | None, first: datetime | int, *, failures: int = 0) -> list[datetime]:
    """Return when a job with this `retry` (None: the default) would be attempted, if every attempt failed at once.

    `first` is the next attempt, after `failures` that were charged already. After the last one the job is dead. With
    `jitter` these are the earliest instants.
    """
    retry, at = retry or Retry(), instant_ms(first, "first")
    instants = [at]
    for failed in range(failures + 1, retry.max_retries + 1):
        instants.append(at := at + retry.delay_ms(failed, _Least()))
    return [inventory.moment(each) for each in instants]
