"""Store files with a job of every kind, edits of their rows, and a host that delivers the jobs afterwards."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from tests.in_process_transport import InProcessTransport
from tocsin import ActorHost, Retry
from tocsin.actors.runtime.clock import SystemClock
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.dispatch.testing import Delivery, FakeReceiver
from tocsin.dispatch.transport import Answer

SECRET: Final = "whsec_" + "dGhlIHNlY3JldCBvZiBhIGJyb2tlbiBzdG9yZSA7LSk="
WAITING: Final = ("plain", "pooled", "urgent", "expiring", "big", "retried")
HOUR_MS: Final = 3_600_000
BIG: Final = {"text": "x" * 200_000}


class Later(SystemClock):
    """The system's clock, so many milliseconds ahead."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


class RecordingTransport(InProcessTransport):
    """A transport into a receiver that keeps each delivery with its args."""

    def __init__(self, clock: SystemClock, statuses: Mapping[str, Answer]) -> None:
        self.receiver = FakeReceiver([SECRET], now_ms=clock.now_ms, answer=self._answer)
        super().__init__(self.receiver)
        self._statuses = statuses

    def _answer(self, one: Delivery) -> Answer:
        return self._statuses.get(one.id, Answer(200, {}, b"ok"))


def open_host(path: Path, transport: RecordingTransport, clock: SystemClock) -> ActorHost:
    return ActorHost.open(
        f"sqlite:///{path}", origin="https://app.example", secrets=[SECRET], transport=transport, clock=clock
    )


async def fill(path: Path) -> None:
    """Jobs that wait in lines of every kind, one that was tried, one dead, one whose receiver works on."""
    clock = Later()
    answers = {
        "retried": Answer(500, {}, b"not yet"),
        "dead": Answer(410, {}, b"gone"),
        "held": Answer(202, {"tocsin-accepted": "1"}, b""),
    }
    transport = RecordingTransport(clock, answers)
    async with open_host(path, transport, clock) as host:
        jobs = host.scheduler()
        await jobs.run_after("1h", "work:run", id="plain")
        await jobs.run_after("1h", "work:run", id="pooled", pool="p", max_concurrency=2)
        await jobs.run_after("61m", "work:run", id="urgent", pool="p", priority=5)
        await jobs.run_after("1h", "work:run", id="expiring", labels=["eu"], expires_at=clock.now_ms() + 30 * HOUR_MS)
        await jobs.run_after("1h", "work:run", BIG, id="big")
        await jobs.run_after(0, "work:run", id="retried", retry=Retry(base_ms=HOUR_MS))
        await jobs.run_after(0, "work:run", id="dead")
        await jobs.run_after(0, "work:run", id="held", retry=Retry(base_ms=0))
        await jobs.schedules.put("rare", "work:run", every="100d")
        await jobs.schedules.trigger("rare", "by hand")
        await _until(jobs, {"retried": "pending", "dead": "dead", "held": "running"})

        async def accepted() -> bool:
            record = await jobs.get("held")
            return record is not None and record.lease is not None and record.lease.kind == "accepted"

        await until(accepted)


async def _until(jobs: Scheduler, states: Mapping[str, str]) -> None:
    """Until these jobs were tried and stand so."""

    async def so() -> bool:
        records = [await jobs.get(job_id) for job_id in states]
        return all(
            record is not None and record.attempt and record.state == state
            for record, state in zip(records, states.values(), strict=True)
        )

    await until(so)


async def until(met: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(1_000):
        if await met():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within ten seconds")


async def deliver(path: Path, expected: set[str]) -> list[Delivery]:
    """Two hours later a host is opened on it: what arrives until everything expected has."""
    clock = Later(2 * HOUR_MS)
    transport = RecordingTransport(clock, {})
    async with open_host(path, transport, clock) as host:

        async def arrived() -> bool:
            missing = expected - {one.id for one in transport.receiver.deliveries}
            return not missing and not (await host.scheduler().status()).in_flight

        await until(arrived)
    return transport.receiver.deliveries


class Rows:
    """The rows of one scheduler, edited behind everybody's back."""

    def __init__(self, db: sqlite3.Connection, name: str = "scheduler/default") -> None:
        self._db = db
        (self._actor,) = db.execute("SELECT id FROM actor WHERE name = ?", (name,)).fetchone()

    def keys(self, prefix: bytes) -> list[bytes]:
        sql = "SELECT key FROM kv WHERE actor = ? AND key >= ? AND key < ? ORDER BY key"
        return [key for (key,) in self._db.execute(sql, (self._actor, prefix, prefix + b"\xff"))]

    def one(self, prefix: bytes, holding: bytes = b"") -> bytes:
        (key,) = [key for key in self.keys(prefix) if holding in key]
        return key

    def get(self, key: bytes) -> bytes:
        (value,) = self._db.execute("SELECT value FROM kv WHERE actor = ? AND key = ?", (self._actor, key)).fetchone()
        assert isinstance(value, bytes)
        return value

    def put(self, key: bytes, value: bytes = b"") -> None:
        self._db.execute("INSERT OR REPLACE INTO kv (actor, key, value) VALUES (?, ?, ?)", (self._actor, key, value))

    def delete(self, key: bytes) -> None:
        assert self._db.execute("DELETE FROM kv WHERE actor = ? AND key = ?", (self._actor, key)).rowcount == 1

    def wake(self, ms: int | None) -> None:
        self._db.execute("UPDATE actor SET wake_at = ? WHERE id = ?", (ms, self._actor))


@contextmanager
def edited(path: Path) -> Iterator[Rows]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield Rows(db)
