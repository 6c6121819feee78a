"""Part of `python -m bench queues`: how soon a waiting worker begins, what waiting costs, a long queue beside them."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.pool import Figures, row
from bench.receiver import percentile
from bench.served import TOKEN, Served, resident_mb, served
from tocsin import ActorHost, Job, Scheduler, Worker
from tocsin.cli.connections import room_for

PATH = "bench:started"
NOTHING = "bench:nothing"
OTHERS = 9
PROBES = 60
BLOCKS = 6
SHORT = 3_000
GAP_S = 0.01
IDLE_S = 8.0


class Starts:
    """A handler that notes how long after its submit each job began."""

    def __init__(self) -> None:
        self.submitted: dict[int, float] = {}
        self.waits_ms: list[float] = []
        self.began = asyncio.Event()

    async def __call__(self, args: Any) -> None:
        self.waits_ms.append((time.perf_counter() - self.submitted[args]) * 1000)
        self.began.set()

    async def submit(self, jobs: Any, number: int, queue: str) -> None:
        self.began.clear()
        self.submitted[number] = time.perf_counter()
        await jobs.run_after(0, PATH, number, queue=queue)
        await self.began.wait()


def spread(waits_ms: list[float]) -> str:
    ordered = sorted(waits_ms)
    return f"p50 {percentile(ordered, 0.5):.2f} ms, p99 {percentile(ordered, 0.99):.2f} ms, most {ordered[-1]:.1f} ms"


async def waited_for(source: Any, jobs: Any, starts: Starts, count: int, what: str, figures: Figures) -> None:
    """One job after the other for a worker that waits; from before the submit to the handler's first line."""
    async with Worker(source, {PATH: starts}, "waited", concurrency=8):
        for number in range(count):
            await starts.submit(jobs, number, "waited")
            await asyncio.sleep(GAP_S)  # so that its settlement is no part of the next one's wait
    row(figures, f"{what}, p50", percentile(sorted(starts.waits_ms), 0.5), "ms", spread(starts.waits_ms))


# ---- Waiting -------------------------------------------------------------------------------------


async def idle(jobs: Scheduler, waiting: int, figures: Figures) -> None:
    """Claims in this process that wait for jobs that do not come."""
    before = resident_mb(os.getpid())
    claims = [asyncio.create_task(jobs.claim(f"idle{n % 100}", wait=300)) for n in range(waiting)]
    await asyncio.sleep(1.0)  # until the last of them stands in line
    memory = resident_mb(os.getpid())
    used = time.process_time()
    await asyncio.sleep(IDLE_S)
    share = (time.process_time() - used) / IDLE_S * 100
    more = (
        ""
        if before is None or memory is None
        else f"{memory - before:+.1f} MB, {(memory - before) * 1024 / waiting:.1f} KB each"
    )
    row(figures, f"CPU of {waiting:,} waiting claims, in process", share, "%", more)
    for claim in claims:
        claim.cancel()
    await asyncio.gather(*claims, return_exceptions=True)


async def idle_over_http(folder: Path, waiting: int, figures: Figures) -> None:
    """The same as long polls: a connection each, and the server's own CPU and memory."""
    waiting = min(waiting, connections_allowed())
    with served(folder) as server:
        before = server.memory_mb()
        polls = await asyncio.gather(*(_poll(server, n) for n in range(waiting)))
        await asyncio.sleep(1.5)
        memory, used = server.memory_mb(), server.cpu_s()
        if before is None or memory is None or used is None:
            print("what waiting costs a server is not measured: it needs /proc")
            return
        await asyncio.sleep(IDLE_S)
        after = server.cpu_s()
        assert after is not None
        more = f"{memory - before:+.1f} MB, {(memory - before) * 1024 / waiting:.1f} KB each with its connection"
        row(figures, f"CPU of {waiting:,} waiting claims, the server", (after - used) / IDLE_S * 100, "%", more)
        for answered, writer in polls:
            assert not answered.done(), "a claim was answered"
            answered.cancel()
            writer.close()


def connections_allowed() -> int:
    """At both ends: this process and the server may open as many files each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        soft = max(soft, 4_096 if hard == resource.RLIM_INFINITY else min(hard, 4_096))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return room_for(soft, 16) - 1


async def _poll(server: Served, number: int) -> tuple[asyncio.Task[bytes], asyncio.StreamWriter]:
    """A claim by hand: an HTTP client would share its connections."""
    at = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    body = json.dumps({"waitMs": 300_000, "worker": {"id": f"idle-{number}"}}).encode()
    head = (
        f"POST /queues/idle{number % 100}/claim HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {TOKEN}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return asyncio.create_task(reader.read(1)), writer


# ---- One long queue ------------------------------------------------------------------------------


async def beside_a_long_one(folder: Path, long: int, figures: Figures) -> None:
    """How soon jobs of nine queues begin while a tenth is empty, and while it holds many jobs.

    First nobody serves the tenth; then the nine's worker does too, so that it is never idle: a job of the nine then
    waits for a place, of which eight end all the time, and for its share of the CPU. In turn, a block each, so that
    what else the machine does meets all alike.
    """
    nine = [f"q{n}" for n in range(OTHERS)]
    empty, short, filled = (ActorHost.open(f"sqlite:///{folder}/{name}.db") for name in ("empty", "short", "long"))
    async with empty, short, filled:
        hosts = {"empty": empty, "short": short, "long": filled}
        jobs = {name: host.scheduler("bench") for name, host in hosts.items()}
        waits: dict[str, list[float]] = defaultdict(list)
        for _ in range(BLOCKS):
            await _fill(jobs["short"], SHORT - await _left(jobs["short"]))
            await _fill(jobs["long"], long - await _left(jobs["long"]))  # a slow machine works more of it off a probe
            for name in ("empty", "long"):
                waits[f"{name}, not served"] += await _starts(jobs[name], nine)
            for name, one in jobs.items():
                waits[name] += await _starts(one, "*")
    beside = f"nine queues beside {long:,} jobs"
    _compared(f"{beside} nobody serves, to none", waits["empty, not served"], waits["long, not served"], figures)
    _compared(f"{beside} run by the same worker, to none", waits["empty"], waits["long"], figures)
    _compared(f"{beside} run by the same worker, to {SHORT:,}", waits["short"], waits["long"], figures)


async def _fill(jobs: Scheduler, count: int) -> None:
    for start in range(0, count, 1000):
        some = [Job(path=NOTHING, after=0, options={"queue": "long"}) for _ in range(min(1000, count - start))]
        await jobs.submit_many(some)


async def _left(jobs: Scheduler) -> int:
    return sum(queue.waiting for queue in await jobs.queues() if queue.name == "long")


async def _starts(jobs: Scheduler, queues: str | list[str]) -> list[float]:
    """One job after the other, in turn for each of the nine."""
    starts = Starts()

    async def nothing(args: Any) -> None:
        pass

    async with Worker(jobs, {PATH: starts, NOTHING: nothing}, queues, concurrency=8):
        for number in range(PROBES):
            await starts.submit(jobs, number, f"q{number % OTHERS}")
            await asyncio.sleep(GAP_S)
    return starts.waits_ms


def _compared(what: str, alone: list[float], beside: list[float], figures: Figures) -> None:
    for share in (0.5, 0.99):
        before, after = percentile(sorted(alone), share), percentile(sorted(beside), share)
        row(figures, f"{what}: p{share * 100:g}", after / before, "times", f"{before:.2f} ms, then {after:.2f} ms")
