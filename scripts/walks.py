"""Trace five walks of one job through the code and print how far each goes: `.venv/bin/python scripts/walks.py`.

A walk costs its reader what is counted here: the functions entered, the modules they stand in, and the moves, which are
calls into another module than the call before. Each walk is run on a warm host, once to warm up and once to count.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import httpx

import tocsin
from tocsin import (
    ActorHost,
    Client,
    Context,
    Handlers,
    Received,
    Receiver,
    Retry,
    Scheduler,
    TerminalError,
    Worker,
)
from tocsin.dispatch.asgi_transport import AsgiTransport

SECRET = "whsec_" + "dGhlIHNlY3JldCBvZiB0aGUgd2Fsa3MgOi0pCg=="
SETTLES_S = 0.3
"""An answer is booked long before that, and an idle host calls nothing."""
ROOT = Path(tocsin.__file__).resolve().parents[2]
ROOMS = tuple(str(ROOT / room) + "/" for room in ("actors", "dispatch", "storage", "src/tocsin"))


@dataclass(slots=True)
class Trace:
    """Calls of this project's functions, in order, over all threads."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    on: bool = False

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """See one call; to be given to `sys.setprofile`."""
        code = frame.f_code
        if self.on and event == "call" and code.co_filename.startswith(ROOMS) and not code.co_name.startswith("<"):
            self.calls.append((code.co_filename, code.co_qualname))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Forget what was seen before, and see what is called in this block."""
        self.calls.clear()
        self.on = True
        try:
            yield
        finally:
            self.on = False

    def row(self, name: str) -> str:
        """Return the counts of the last recording, as a line of the table."""
        modules = [module for module, _ in self.calls]
        moves = sum(before != after for before, after in itertools.pairwise(modules))
        return f"{name:<58}{len(set(modules)):>8}{len(set(self.calls)):>11}{moves:>7}"


class Walks:
    """One host, a receiver in its process, and what each walk does with them."""

    def __init__(self, trace: Trace, host: ActorHost, jobs: Scheduler, ran: asyncio.Event) -> None:
        self._trace, self._host, self._jobs, self._ran = trace, host, jobs, ran

    async def _settled(self) -> None:
        """Wait until the next job has run, and for what its host does with the answer."""
        self._ran.clear()
        await self._ran.wait()
        await asyncio.sleep(SETTLES_S)

    async def submit(self) -> None:
        """Walk `run_after` until it answers, when the job is on disk."""
        with self._trace.recording():
            await self._jobs.run_after("1h", "walks:run", {"n": 1})

    async def callback(self) -> None:
        """Walk a job from its due instant until it is removed."""
        await self._jobs.run_after(0.2, "walks:run", {"n": 1}, id="called")
        with self._trace.recording():
            await self._settled()

    async def slot(self) -> None:
        """Walk a slot of a schedule from its instant until its occurrence is removed."""
        await self._jobs.schedules.put("walk", "walks:run", every="1s")
        with self._trace.recording():
            await self._settled()
        await self._jobs.schedules.delete("walk", cancel_pending=True)

    async def dead(self) -> None:
        """Walk a job that dies at its first answer, and is retried to its end."""
        await self._jobs.run_after(0.2, "walks:dies", {"n": 1}, id="dies", retry=Retry(max_retries=0))
        with self._trace.recording():
            await self._settled()
            await self._jobs.dead_retry("dies")
            await self._settled()

    async def pulled(self) -> None:
        """Walk a job that a worker claims over HTTP, runs and settles, from its submission until it is removed."""
        handlers, ran = Handlers(), asyncio.Event()

        @handlers.handler("walks:pulled")
        async def run(args: Any, context: Context) -> None:
            ran.set()

        transport = httpx.ASGITransport(self._host.asgi(insecure=True))
        async with (
            Client("http://127.0.0.1", transport=transport) as client,
            Worker(client.scheduler("walks"), handlers, queues="q", concurrency=1),
        ):
            await asyncio.sleep(0.2)  # its first claim waits
            with self._trace.recording():
                await self._jobs.run_after(0, "walks:pulled", id="pulled", queue="q")
                await ran.wait()
                await asyncio.sleep(SETTLES_S)


async def main() -> None:
    trace, ran, died = Trace(), asyncio.Event(), set[str]()
    receiver = Receiver([SECRET])

    @receiver.handler("walks:run")
    async def run(args: Any, job: Received) -> None:
        ran.set()

    @receiver.handler("walks:dies")
    async def dies(args: Any, job: Received) -> None:
        ran.set()
        if job.webhook_id not in died:
            died.add(job.webhook_id)
            raise TerminalError("not yet")

    threading.setprofile(trace.profile)
    sys.setprofile(trace.profile)
    with TemporaryDirectory() as folder:
        async with ActorHost.open(
            f"sqlite:///{folder}/walks.db",
            origin="http://127.0.0.1:1",
            secrets=[SECRET],
            transport=AsgiTransport(receiver),
        ) as host:
            walks = Walks(trace, host, host.scheduler("walks"), ran)
            print(f"{'walk':<58}{'modules':>8}{'functions':>11}{'moves':>7}")
            for name, walk in (
                ("run_after, until it is on disk", walks.submit),
                ("a due job, until it is removed", walks.callback),
                ("a slot of a schedule, until its occurrence is removed", walks.slot),
                ("a job that dies, is retried and ends", walks.dead),
                ("a job pulled by a remote worker, until it is removed", walks.pulled),
            ):
                await walk()
                await walk()
                print(trace.row(name))


if __name__ == "__main__":
    asyncio.run(main())
