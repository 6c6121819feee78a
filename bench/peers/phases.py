"""What each peer does, and says: submit N jobs that do nothing, one call each; then work all of them off.

A peer is a module with `measure(jobs, workers, folder, service)`; it runs as `python -m bench.peers.NAME` in whatever
environment has it, so nothing here or there needs more than the standard library and the peer. What counts is until the
last handler has run, for all alike: some have settled it then, some settle later, some never do.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.loops import default_loop, loop_factory

PRODUCERS = 32
LIMIT_S = 120.0


class Countdown:
    """Of handlers that still have to run; `now` is when the last one did."""

    def __init__(self, jobs: int) -> None:
        self._left = jobs
        self.now = 0.0
        self.done = asyncio.Event()

    def one(self) -> None:
        """In the event loop."""
        self._left -= 1
        if not self._left:
            self.now = time.perf_counter()
            self.done.set()


async def submitted(jobs: int, submit: Callable[[int], Awaitable[Any]]) -> float:
    """Seconds for all, from as many producers as an app might have."""
    numbers = iter(range(jobs))

    async def produce() -> None:
        for number in numbers:
            await submit(number)

    began = time.perf_counter()
    await asyncio.gather(*(produce() for _ in range(PRODUCERS)))
    return time.perf_counter() - began


def needed(module: str) -> Any:
    """A part of the peer; says so and ends if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        sys.exit(0)


def main(measure: Callable[[int, int, Path, str], Awaitable[tuple[float, float]]]) -> None:
    """`python -m bench.peers.NAME jobs workers folder service`."""
    jobs, workers, folder, service = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]

    async def limited() -> tuple[float, float]:
        async with asyncio.timeout(LIMIT_S):
            return await measure(jobs, workers, folder, service)

    with asyncio.Runner(loop_factory=loop_factory(default_loop())) as runner:
        submit_s, work_s = runner.run(limited())
    print(json.dumps({"submit_s": submit_s, "work_s": work_s}))
