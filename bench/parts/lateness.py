"""How late callbacks arrive at 100 a second: on an empty store, on one with a million jobs, and without any store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Book, Row
from bench.lease import PAYLOAD, now_ms
from bench.receiver import percentile
from bench.setting import Part, Setting, preload
from bench.wire import Wires, asked, ok, post
from tocsin import Job

GAP_MS = 10
LEAD_MS = 700
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
BARE = "bare asyncio client and timers"
ROWS = (
    Row("late/p50", "lateness at 100 jobs/s, p50", "ms", most=2.5, limits=("late/bare/p50",)),
    Row("late/p99", "lateness at 100 jobs/s, p99", "ms", most=8.0, limits=("late/bare/p99",)),
    Row("late/bare/p50", "lateness of bare timers and a bare client, p50", "ms"),
    Row("late/bare/p99", "lateness of bare timers and a bare client, p99", "ms"),
)


async def measure(bench: Setting) -> None:
    await _bare(bench)
    await beside(bench, None, "late", "empty")


async def beside(bench: Setting, store: Path | None, name: str, line: str) -> None:
    """The lateness of jobs in this store."""
    count = bench.count(400)
    async with bench.open(store) as host:
        await bench.forget()
        start = now_ms() + LEAD_MS
        await preload(
            host.scheduler("bench"),
            [Job(path="bench:due", args=PAYLOAD, at=start + n * GAP_MS) for n in range(count)],
        )
        await bench.arrived(count)
        _note(bench.book, name, line, await asked(bench.receiver, "/late"))


async def _bare(bench: Setting) -> None:
    """A timer and a post for each: the loop, the loopback and the receiver, and nothing else."""
    count = bench.count(400)
    await bench.forget()
    wires, loop = Wires(bench.receiver), asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    start = now_ms() + LEAD_MS
    base = loop.time() + LEAD_MS / 1000

    async def one(number: int) -> None:
        body = b'{"id":"timer%d","scheduledFor":%d,"args":"%b"}' % (number, start + number * GAP_MS, b"x" * 140)
        ok(await wires.ask(post("/", body)))

    def begin(number: int) -> None:
        tasks.append(loop.create_task(one(number)))

    for number in range(count):
        loop.call_at(base + number * GAP_MS / 1000, begin, number)
    await bench.arrived(count)
    await asyncio.gather(*tasks)
    wires.close()
    _note(bench.book, "late/bare", BARE, await asked(bench.receiver, "/late"))


def _note(book: Book, name: str, line: str, late: Sequence[float]) -> None:
    ordered = sorted(late)
    book.note(f"{name}/p50", percentile(ordered, 0.5))
    book.note(f"{name}/p99", percentile(ordered, 0.99))
    everyone = sorted([*book.late[line], *late])
    book.late[line] = everyone
    book.curves["lateness"][line] = [(share * 100, percentile(everyone, share)) for share in SHARES]


PART = Part("lateness", "Lateness", ROWS, measure)
