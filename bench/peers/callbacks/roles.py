"""What a peer is asked to do, each in a process of its own: submit for a rate, load jobs, or work until it is killed.

`python -m bench.peers.callbacks.NAME submit SERVICE FOLDER RECEIVER ONE MANY BULK` prints rates as JSON; `load … JOBS
DUE_MS GAP_MS FAR` leaves that many jobs, the n-th due n gaps after the first, behind FAR jobs of another day; `work …`
prints when it has imported all it needs, and runs what is due, 64 at once.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from bench.loops import default_loop, loop_factory

PRODUCERS, LANES = 32, 64
FAR_MS = 86_400_000
BULK = 1_000
Jobs = Sequence[tuple[str, int]]
"""Ids and due instants."""


class Peer(Protocol):
    """One scheduler or queue. `one` may block: then its producers are threads."""

    async def install(self) -> None:
        """Make its tables, if it has any: the store is new."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def one(self, job: str, due_ms: int) -> Awaitable[object] | object:
        """Submit a job; it is durable when this returns, or was awaited."""
        ...

    async def work(self) -> None:
        """Run what is due until the process ends."""
        ...


class Bulk(Protocol):
    """A peer that takes many jobs in one call."""

    async def many(self, jobs: Jobs) -> object: ...


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def submitted(peer: Peer, jobs: Jobs, producers: int) -> float:
    """Jobs a second."""
    waiting = iter(jobs)
    began = time.perf_counter()
    if inspect.iscoroutinefunction(peer.one):

        async def produce() -> None:
            for job, due in waiting:
                await peer.one(job, due)  # type: ignore[misc]

        await asyncio.gather(*(produce() for _ in range(producers)))
    elif producers == 1:
        for job, due in waiting:
            peer.one(job, due)
    else:
        with ThreadPoolExecutor(producers) as threads:
            list(threads.map(lambda one: peer.one(*one), jobs))
    return len(jobs) / (time.perf_counter() - began)


async def rates(peer: Peer, one: int, many: int, bulk: int) -> dict[str, float]:
    due = now_ms() + FAR_MS
    found = {
        "one": await submitted(peer, [(f"one{n}", due + n) for n in range(one)], 1),
        "many": await submitted(peer, [(f"many{n}", due + n) for n in range(many)], PRODUCERS),
    }
    if hasattr(peer, "many"):
        began = time.perf_counter()
        await load(peer, [(f"bulk{n}", due + n) for n in range(bulk)])
        found["bulk"] = bulk / (time.perf_counter() - began)
    return found


async def load(peer: Peer, jobs: Jobs) -> None:
    if not hasattr(peer, "many"):
        await submitted(peer, jobs, PRODUCERS)
        return
    in_bulk: Callable[[Jobs], Awaitable[object]] = peer.many
    for start in range(0, len(jobs), BULK):
        await in_bulk(jobs[start : start + BULK])


async def act(peer: Peer, role: str, numbers: Sequence[int]) -> None:
    if role == "work":
        print(json.dumps({"began": time.time()}), flush=True)
        await peer.work()
        return
    await peer.install()
    await peer.open()
    if role == "submit":
        print(json.dumps(await rates(peer, *numbers)), flush=True)
    else:
        count, due, gap, far = numbers
        await load(peer, [(f"far{n}", due + FAR_MS + n) for n in range(far)])
        await load(peer, [(f"job{n}", due + n * gap) for n in range(count)])
    await peer.close()


def main(make: Callable[[str, Path, str], Peer]) -> None:
    """Run the role that the command line names; the peer is made from its service, its folder and the receiver."""
    role, service, folder, receiver = sys.argv[1:5]
    peer = make(service, Path(folder), receiver)
    with asyncio.Runner(loop_factory=loop_factory(default_loop())) as runner:
        runner.run(act(peer, role, [int(word) for word in sys.argv[5:]]))
