"""What each part of the benchmark is given: a folder, a receiver, its size, and the book that it notes figures in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count as counting
from pathlib import Path
from random import Random
from typing import Any

from bench.cpu import Spent, spent
from bench.figures import Book, Row
from bench.lease import FAR_MS, PAYLOAD, QUIET_S, now_ms
from bench.wire import asked
from tocsin import ActorHost, Job, Scheduler

SECRET = "whsec_" + "a2V5" * 8
BULK = 1_000
ASK_EVERY_S = 0.02
LEAD_MS = 400
SUBMITS_PER_MS = 8
"""How many jobs are submitted in bulk in a millisecond on a slow machine."""


@dataclass
class Setting:
    """One run on this machine."""

    folder: Path
    receiver: str
    book: Book
    scale: float = 1.0
    """The share of the usual counts of jobs."""
    most_pending: int = 1_000_000
    repeats: int = 3
    """Of what a part repeats by itself, because it needs a large store."""
    random: Random = field(default_factory=lambda: Random(20261130))
    _numbers: Iterator[int] = field(default_factory=counting)
    _held: int = 0
    """Pending jobs of the large store."""

    @property
    def _large(self) -> Path:
        return self.folder / "large.db"

    def count(self, usual: int, least: int = 40) -> int:
        return max(int(usual * self.scale), least)

    def store(self) -> Path:
        """A file that is not there yet."""
        return self.folder / f"store{next(self._numbers)}.db"

    def open(self, store: Path | None = None, **options: Any) -> ActorHost:
        """A host that calls the receiver back, signed."""
        given = {"origin": self.receiver, "secrets": [SECRET], **options}
        return ActorHost.open(f"sqlite:///{store or self.store()}", **given)

    def own_id(self) -> str:
        """An id as callers make them: in no order."""
        return f"order-{self.random.getrandbits(64):016x}"

    async def large_store(self, pending: int) -> Path:
        """The one large store of a run: made once, whatever parts use it; it grows as far as is asked for."""
        missing = pending - self._held
        if missing > 0:
            print(f"  putting {missing:,} jobs into the large store", flush=True)
            async with self.open(self._large) as host:
                jobs = host.scheduler("bench")
                with spent() as cost:
                    for start in range(0, missing, 20 * BULK):
                        await preload(jobs, far(min(20 * BULK, missing - start)))
            self._held = pending
            self.book.note("grow/made", missing / cost.seconds, cost.per(missing))
        return self._large

    # ---- The receiver ----------------------------------------------------------------------------

    async def forget(self) -> None:
        await asked(self.receiver, "/reset")

    async def arrived(self, count: int) -> dict[str, float]:
        """Wait until so many requests came, however long that takes; the stats. SystemExit after two quiet minutes."""
        seen, since = 0, time.monotonic()
        while True:
            found = (await asked(self.receiver, "/count"))["count"]
            if found >= count:
                stats: dict[str, float] = await asked(self.receiver, "/stats")
                if stats["unique"] >= count:
                    return stats
            if found > seen:
                seen, since = found, time.monotonic()
            elif time.monotonic() - since > QUIET_S:
                raise SystemExit(f"{found} of {count} jobs arrived, and none in the last {QUIET_S:g} s")
            await asyncio.sleep(ASK_EVERY_S)


@dataclass(frozen=True)
class Part:
    """A module's measurements, run as often as there are rounds, in turn with the others; or once, if it is long."""

    name: str
    title: str
    rows: tuple[Row, ...]
    measure: Callable[[Setting], Coroutine[Any, Any, None]]
    once: bool = False


# ---- What parts have in common -------------------------------------------------------------------


def far(count: int) -> list[Job]:
    """Jobs that are not due for a month."""
    at = now_ms() + FAR_MS
    return [Job(path="bench:far", args=PAYLOAD, at=at + n) for n in range(count)]


async def preload(jobs: Scheduler, made: Sequence[Job]) -> None:
    """Submit in bulk, and see that each was accepted."""
    for start in range(0, len(made), BULK):
        for one in await jobs.submit_many(made[start : start + BULK]):
            if isinstance(one, Exception):
                raise one


async def produced(submit: Callable[[], Awaitable[object]], count: int, producers: int) -> None:
    """Call `submit` so often, from so many tasks at once."""
    numbers = iter(range(count))

    async def produce() -> None:
        for _ in numbers:
            await submit()

    await asyncio.gather(*(produce() for _ in range(producers)))


async def due_at_once(
    bench: Setting, jobs: Scheduler, count: int, options: dict[str, Any] | None = None
) -> tuple[dict[str, float], Spent]:
    """Let so many jobs be due at one instant, all of them on disk by then. The receiver's stats, and what it cost.

    The cost is from just before that instant until the last one is settled. Where the machine was too slow to submit
    them in time they run off, and it is tried again with a longer lead.
    """
    lead = LEAD_MS + count // SUBMITS_PER_MS
    while True:
        await bench.forget()
        due = now_ms() + lead
        await preload(jobs, [Job(path="bench:due", args=PAYLOAD, at=due, options=options or {}) for _ in range(count)])
        in_time = now_ms() < due - 50
        await asyncio.sleep(max(due - 20 - now_ms(), 0) / 1000)
        with spent() as cost:
            stats = await bench.arrived(count)
            await settled(jobs)
        if in_time:
            return stats, cost
        lead *= 3


async def settled(jobs: Scheduler) -> None:
    """Wait until nothing is in flight. Its callbacks have arrived."""

    async def all_are() -> bool:
        return not (await jobs.status()).in_flight

    await until(all_are, "callbacks have arrived and are not settled", every_s=0.005)


async def until(holds: Callable[[], Awaitable[bool]], otherwise: str, *, every_s: float = ASK_EVERY_S) -> None:
    """Ask until it holds: what is waited for happens in another process, or has no event. SystemExit after minutes."""
    end = time.monotonic() + QUIET_S
    while not await holds():
        if time.monotonic() > end:
            raise SystemExit(f"{otherwise}, for {QUIET_S:g} s")
        await asyncio.sleep(every_s)
