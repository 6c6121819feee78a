"""A queue in memory with leases, as a host keeps them, that can be cut off; and workers on it in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from tocsin.actors.runtime.clock import Clock, SystemClock
from tocsin.actors.testing import VirtualClock, simulate
from tocsin.dispatch import values
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.pulled import Claimed, Settlement, WorkerInfo, WorkerSnapshot
from tocsin.dispatch.receiver.outcomes import HandlerError
from tocsin.dispatch.worker.worker import Worker
from tocsin.errors import PayloadTooLargeError, StaleLeaseError, TocsinError, UnreachableError


@dataclass
class Settled:
    """One settlement as the queue was told of it."""

    id: str
    at: float
    said: dict[str, Any]


@dataclass
class FakeQueue:
    """A `Source`. `down` is raised by every call; a job that failed or was lost waits again at once."""

    clock: Clock
    down: TocsinError | None = None
    waiting: list[Claimed] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    snapshots: list[WorkerSnapshot] = field(default_factory=list)
    extended: list[tuple[str, float, int]] = field(default_factory=list)
    leased: list[Claimed] = field(default_factory=list)
    cancelled: set[str] = field(default_factory=set)
    leases: dict[str, tuple[Claimed, float]] = field(default_factory=dict)
    answer: Callable[[dict[str, Any]], Settlement] | None = None
    redelivers: bool = False
    slow_s: float = 0.0
    """How long an answer to a settlement takes."""

    def __post_init__(self) -> None:
        self.woken = asyncio.Event()
        self.count = 0

    def put(self, path: str | None = "work", args: Any = None, **more: Any) -> str:
        self.count += 1
        id = more.pop("id", f"job-{self.count}")
        if path is not None:
            more["function_path"] = path
        job = Claimed(
            id=id, incarnation="1-1", raw_args=msgspec.Raw(values.encode(args)), scheduled_for=self.clock.now_ms(),
            attempt=0, attempts=more.pop("attempts", 0), lease="", lease_until=0, lease_ms=0, queue="mail",
            instance_name="t", **more,
        )  # fmt: skip
        self._wait(job)
        return str(id)

    def _wait(self, job: Claimed) -> None:
        self.waiting.append(job)
        self.woken.set()

    async def claim(
        self,
        queue: str | Sequence[str] = "*",
        *,
        max: int = 1,
        lease_ms: int = 60_000,
        wait: Duration = 20,
        worker: WorkerInfo | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Claimed]:
        self.claims.append({"queue": queue, "max": max, "exclude": exclude, "worker": worker})
        self._check()
        try:
            async with asyncio.timeout(duration_ms(wait, "wait") / 1000):
                while not self.waiting:
                    self.woken.clear()
                    await self.woken.wait()
        except TimeoutError:
            return []
        taken, self.waiting = self.waiting[:max], self.waiting[max:]
        return [self._leased(job, lease_ms) for job in taken]

    def _leased(self, job: Claimed, lease_ms: int) -> Claimed:
        token = f"1.{len(self.leases) + 1}.{job.id.replace('-', '')}"
        until = self.clock.monotonic() + lease_ms / 1000
        job = msgspec.structs.replace(
            job, attempt=job.attempt + 1, lease=token, lease_ms=lease_ms, lease_until=self.clock.now_ms() + lease_ms
        )
        self.leased.append(job)
        self.leases[token] = (job, until)
        if self.redelivers:
            asyncio.get_running_loop().call_at(until, self._lapse, token)
        return job

    def _lapse(self, token: str) -> None:
        job, until = self.leases.get(token, (None, 0.0))
        if job is None:
            return
        if until > self.clock.monotonic():
            asyncio.get_running_loop().call_at(until, self._lapse, token)
            return
        del self.leases[token]
        self._wait(job)

    async def settle(
        self,
        id: str,
        lease: str,
        *,
        ok: bool = True,
        error: str | HandlerError | None = None,
        retryable: bool = True,
        delay: Duration | None = None,
        charge: bool = True,
        result: Any = None,
    ) -> Settlement:
        self._check()
        if result is not None and len(values.encode(result, "result")) > 64 * 1024:
            raise PayloadTooLargeError("result: more than 65536 bytes of JSON")
        await asyncio.sleep(self.slow_s)
        self._check()
        if lease not in self.leases:
            self.refused.append(id)
            raise StaleLeaseError(f"no lease of {id} is alive", id=id)
        job, _ = self.leases.pop(lease)
        said: dict[str, Any] = {"ok": ok, "result": result} if ok else {"ok": ok, "error": error}
        if not ok:
            said |= {"retryable": retryable, "delay": delay, "charge": charge}
        self.settled.append(Settled(id, self.clock.monotonic(), said))
        if id in self.cancelled:
            return Settlement(settled=True, state="cancelled")
        if self.answer is not None:
            return self.answer(said)
        if ok:
            return Settlement(settled=True, state="done")
        if not retryable or (charge and job.attempts >= 5):
            return Settlement(settled=True, state="dead", reason="refused" if not retryable else "exhausted")
        return Settlement(settled=True, state="retrying", next_attempt_at=self.clock.now_ms() + 30_000)

    async def extend(self, id: str, lease: str, lease_ms: int) -> int:
        self._check()
        if id in self.cancelled:
            raise StaleLeaseError(f"job {id!r} was cancelled: stop working on it", id=id, cancelled=True)
        if lease not in self.leases or self.leases[lease][1] <= self.clock.monotonic():
            raise StaleLeaseError(f"no lease of {id} is alive", id=id)
        self.extended.append((id, self.clock.monotonic(), lease_ms))
        self.leases[lease] = (self.leases[lease][0], self.clock.monotonic() + lease_ms / 1000)
        return self.clock.now_ms() + lease_ms

    async def announce(self, snapshot: WorkerSnapshot) -> None:
        self._check()
        self.snapshots.append(snapshot)

    def _check(self) -> None:
        if self.down is not None:
            raise self.down

    def cut(self) -> None:
        self.down = UnreachableError("nobody answers")

    async def all_settled(self, count: int = 1) -> list[Settled]:
        """When so many attempts are."""
        for _ in range(100_000):
            if len(self.settled) >= count:
                return self.settled
            await asyncio.sleep(0.01)
        raise AssertionError(f"only {self.settled} were settled")


@dataclass
class WorkerFixture:
    """A queue, and workers with its clock."""

    queue: FakeQueue
    random: Random

    @property
    def now(self) -> float:
        return self.queue.clock.monotonic()

    def worker(self, handlers: Any, **options: Any) -> Worker:
        return Worker(self.queue, handlers, clock=self.queue.clock, random=self.random, **options)

    async def until(self, is_so: Callable[[], Any]) -> None:
        """Virtual time: `Stuck`, or the end of its day, if it never is."""
        for _ in range(100_000):
            if is_so():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never was so")


def on_fake_queue(test: Callable[[WorkerFixture], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time on an empty queue."""

    def run() -> None:
        async def main(random: Random) -> None:
            await test(WorkerFixture(FakeQueue(VirtualClock()), random))

        simulate(7, main)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def on_fake_queue_with_threads(test: Callable[[WorkerFixture], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The same in real time: a simulation has no threads."""

    def run() -> None:
        async def main() -> None:
            async with asyncio.timeout(20):
                await test(WorkerFixture(FakeQueue(SystemClock()), Random(7)))

        asyncio.run(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def sleeps(args: Any) -> None:
    await asyncio.sleep(args)
