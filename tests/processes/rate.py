"""A pool of 10 a second with bursts of 5, for a minute in which its host is killed three times: `python -m
tests.processes.rate`. The receiver is a real one.

What arrived is held against the promise: never more than 10 + 5 in any second, 600 in the minute within 2 %, nobody
starved, and no more writes of the rate's row than starts. Another process stands by, as one of several web workers
does, so that the store has a host again within moments.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from bisect import bisect_left
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from time import monotonic

import click

from tests.processes.server_process import ROOT, SECRET
from tocsin import ActorHost, Job, Rate, SQLiteProvider
from tocsin.actors.scheduler.model.rows import HistRow, decode

LIMIT, BURST = 10, 5
SECONDS = 60
LEASE_S = 17
"""Of an attempt whose host was killed: it comes again only then."""


JITTER_S = 0.1
"""So much longer than others one call may take from its lease to the receiver."""


def most_in(times: list[float], window_s: float) -> int:
    """Return the most of these sorted instants in any window that is so long."""
    return max(bisect_left(times, at + window_s) - n for n, at in enumerate(times))


@dataclass
class Rated:
    """`count` jobs, all due at once."""

    folder: Path
    kills: int
    seed: int
    arrivals: list[tuple[float, str]] = field(default_factory=list)
    down: list[float] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)
    all_came: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.count = LIMIT * (SECONDS + 2) + BURST
        self.store, self.log = self.folder / "rate.db", self.folder / "commits.log"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer each callback with 204, and note when it came."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                came = monotonic()
                headers = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:] if ": " in line)
                await reader.readexactly(int(headers["content-length"]))
                self.arrivals.append((came, headers["webhook-id"]))
                self.jobs.add(headers["webhook-id"])
                if len(self.jobs) == self.count:
                    self.all_came.set()
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()

    async def standby(self, stack: AsyncExitStack, origin: str) -> Process:
        """Start a host that waits until it is told to open the store."""
        words = ["-m", "tests.processes.rate_host", str(self.store), str(self.log), origin]
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=PIPE, stdout=PIPE, cwd=ROOT)
        stack.push_async_callback(self.end, process)
        await self.says(process, b"ready")
        return process

    async def end(self, host: Process) -> None:
        if host.returncode is None:
            host.kill()
        await host.wait()

    async def take_over(self, host: Process) -> None:
        assert host.stdin is not None
        host.stdin.write(b"go\n")
        await host.stdin.drain()
        await self.says(host, b"open")

    async def says(self, host: Process, word: bytes) -> None:
        assert host.stdout is not None
        async with asyncio.timeout(60):
            assert await host.stdout.readline() == word + b"\n"

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(await asyncio.start_server(self.serve, "127.0.0.1", 0))
            origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with ActorHost.open(SQLiteProvider(self.store), origin=origin, secrets=[SECRET]) as host:
                jobs = host.scheduler("t")
                await jobs.pause()
                await jobs.set_pool("mails", rate=Rate(LIMIT, "1s", BURST))
                due = [Job("mail:send", after=0, options={"pool": "mails", "timeout_ms": 1_000})] * self.count
                for first in range(0, self.count, 500):
                    await jobs.submit_many(due[first : first + 500])
            hosts = [await self.standby(stack, origin) for _ in range(self.kills + 1)]
            began = monotonic()
            await self.take_over(hosts[0])
            for n in range(self.kills):
                at = SECONDS * (n + self.random.uniform(0.3, 0.7)) / self.kills
                await asyncio.sleep(began + at - monotonic())
                killed = monotonic()
                hosts[n].kill()
                await hosts[n].wait()
                await self.take_over(hosts[n + 1])
                self.down.append(monotonic() - killed)
            with suppress(TimeoutError):  # what has not come by then is told by `check`
                async with asyncio.timeout(began + SECONDS + 10 + LEASE_S + self.kills - monotonic()):
                    await self.all_came.wait()

    def started(self) -> list[float]:
        """Return when each attempt got its lease, in seconds, from the history."""
        with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True) as connection:
            rows = connection.execute("SELECT key, value FROM kv WHERE key >= ? AND key < ?", (b"hist/", b"hist0"))
            return sorted(decode(HistRow, key, value).started / 1000 for key, value in rows)

    def check(self) -> str:
        times = sorted(at for at, _ in self.arrivals)
        came = most_in(times, 1)
        started = most_in(self.started(), 1)
        minute = bisect_left(times, times[0] + SECONDS)
        gap = max(after - before for before, after in pairwise(times[:minute]))
        lines = [tuple(map(int, line.split())) for line in self.log.read_text().splitlines()]
        rates, starts = sum(one for one, _ in lines), sum(one for _, one in lines)
        jobs = len(self.jobs)
        said = (
            f"{jobs} jobs, {minute} in the first minute, at most {started} started and {came} came in any "
            f"second, the longest gap {gap:.2f} s, "
            f"{self.kills} kills ({', '.join(f'{one:.2f} s' for one in self.down)} without a host), "
            f"{rates} writes of the rate for {starts} starts"
        )
        assert started <= LIMIT + BURST, f"{said}: more in a second than the rate lets start"
        assert most_in(times, 1 - JITTER_S) <= LIMIT + BURST, f"{said}: more came in a second than the rate lets start"
        assert abs(minute - LIMIT * SECONDS) <= 0.02 * LIMIT * SECONDS, f"{said}: not 600 within 2 %"
        assert jobs == self.count, f"{said}: {self.count - jobs} never came"
        assert gap <= max(self.down, default=0) + 1, f"{said}: somebody starved"
        assert rates <= starts, f"{said}: more writes than starts"
        return said


@click.command()
@click.option("--kills", default=3, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(kills: int, seed: int) -> None:
    """Run a minute; exit 1 if the promise is broken."""
    with tempfile.TemporaryDirectory() as folder:
        rated = Rated(Path(folder), kills, seed)
        asyncio.run(rated.run())
        click.echo(rated.check())


if __name__ == "__main__":
    main()
