"""The live feed of a real server: `python -m tests.processes.feed converge` and `… cost`.

`converge`: thousands of changes while watchers stall, come back and lag, and the server is killed once; afterwards each
knows what the lists say. `cost`: what a hundred watchers take of the server's CPU time and memory.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

import click
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.actors.scheduler.mirror import truth
from tests.cli.processes import Server
from tests.processes.feed_watchers import BEARER, OnClient, OnEvents, OnSocket, OnSyncClient, Watcher, settled
from tests.processes.server_process import TOKEN, free_port, server_process
from tocsin import Client, Job, Scheduler, TocsinError

ORIGIN: Final = "http://127.0.0.1:9"
TICK: Final = os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def watching(watchers: list[Watcher]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one.run()) for one in watchers]
    try:
        yield
        for task in tasks:
            assert not task.done(), task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def change(jobs: Scheduler, random: Random, known: list[str]) -> None:
    """Change one job."""
    match random.randrange(10):
        case 0 | 1 | 2 | 3:
            known.append(await jobs.run_after(f"{random.randrange(1, 9)}h", "a:b", {"n": len(known)}))
        case 4 | 5 if known:
            await jobs.reschedule(random.choice(known), after=f"{random.randrange(1, 9)}h")
        case 6 | 7 if len(known) > 200:
            await jobs.cancel(known.pop(random.randrange(len(known))))
        case _:
            await jobs.run_after(0, "a:b", queue="q")
            for one in await jobs.claim("q", wait=0, max=3):
                await jobs.complete(one.id, one.lease, ok=random.random() < 0.8, retryable=False)


async def churn(jobs: Scheduler, changes: int, random: Random, hands: int = 6) -> None:
    """Make so many changes, a few at a time. One that the server did not answer is made up for by another."""
    known: list[str] = []
    left = changes

    async def hand() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            with suppress(TocsinError):
                await change(jobs, random, known)

    await asyncio.gather(*(hand() for _ in range(hands)))


async def converge(folder: Path, changes: int, seconds: float = 150.0, stall_s: float = 14.0) -> str:
    """Return what was seen; AssertionError if a watcher does not end with what the lists say."""
    port, random = free_port(), Random(7)
    url = f"http://127.0.0.1:{port}"
    of = (url, "t", random)
    watchers: list[Watcher] = [
        OnSocket(*of), OnSocket(*of, slow_s=0.12), OnSocket(*of, stalls_s=stall_s), OnSocket(*of, leaves_s=1.0),
        OnSocket(*of, leaves_s=0.3), OnEvents(*of), OnEvents(*of), OnClient(*of), OnSyncClient(*of),
    ]  # fmt: skip
    with ExitStack() as stack:
        life = stack.enter_context(ExitStack())
        server = life.enter_context(server_process(folder, port, "jobs.db", ORIGIN))
        async with Client(url, token=TOKEN, patience_s=60) as client, watching(watchers):
            jobs = client.scheduler("t")
            began = time.monotonic()
            await churn(jobs, changes // 2, random)
            server.process.kill()
            life.close()
            life = stack.enter_context(ExitStack())
            life.enter_context(server_process(folder, port, "jobs.db", ORIGIN))
            await churn(jobs, changes - changes // 2, random)
            took = time.monotonic() - began
            wrong = await settled(watchers, lambda: truth(jobs), seconds)
            lines = [str(one) for one in watchers]
            assert not wrong, "\n".join([*lines, f"these do not know what the lists say: {wrong}"])
            count = len(await truth(jobs))
    return "\n".join([*lines, f"{changes} changes in {took:.1f} s; all know the {count} jobs that there are"])


# ---- What it costs ---------------------------------------------------------------------------------------------------


def cpu_s(server: Server) -> float:
    """CPU time of the server, user and system."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rss_mib(server: Server) -> float:
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


async def steadily(jobs: Scheduler, per_second: int, seconds: float) -> None:
    """Move a job so often a second, and so long."""
    loop = asyncio.get_running_loop()
    began, n = loop.time(), 0
    while loop.time() - began < seconds:
        n += 1
        await jobs.reschedule(f"moved-{n % 50}", after=f"{2 + n % 7}h")
        await asyncio.sleep(max(began + n / per_second - loop.time(), 0))


async def cost(folder: Path, clients: int, backlog: int, per_second: int, seconds: float) -> tuple[str, float, float]:
    """Return what was seen, the share of a core that watching took in all, and how many MiB of memory more."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    frames = 0

    async def listen() -> None:
        nonlocal frames
        address = f"{url.replace('http', 'ws', 1)}/i/t/ws"
        with suppress(ConnectionClosed):
            async with connect(address, additional_headers=BEARER, compression=None, open_timeout=60) as ws:
                while True:
                    await ws.recv(decode=False)
                    frames += 1

    with server_process(folder, port, "jobs.db", ORIGIN) as server:
        async with Client(url, token=TOKEN) as client:
            jobs = client.scheduler("t")
            for start in range(0, backlog, 1000):
                await jobs.submit_many([Job("a:b", {"n": start}, after="1d")] * min(1000, backlog - start))
            await jobs.submit_many([Job("a:b", after="1h", options={"id": f"moved-{n}"}) for n in range(50)])
            await steadily(jobs, per_second, min(seconds / 3, 3))
            alone = cpu_s(server), time.monotonic()
            await steadily(jobs, per_second, seconds / 3)
            alone_share = (cpu_s(server) - alone[0]) / (time.monotonic() - alone[1])
            watchers = [asyncio.create_task(listen()) for _ in range(clients)]
            await steadily(jobs, per_second, min(seconds / 3, 5))
            before, began, seen, held = cpu_s(server), time.monotonic(), frames, rss_mib(server)
            await steadily(jobs, per_second, seconds)
            took = time.monotonic() - began
            share, grown = (cpu_s(server) - before) / took, rss_mib(server) - held
            seen = frames - seen
            for one in watchers:
                one.cancel()
            await asyncio.wait(watchers)
    said = (
        f"{clients} watchers, {per_second} changes/s on {backlog} jobs, {took:.0f} s: {share:.1%} of a core, of which"
        f" {alone_share:.1%} without watchers; {seen / took / max(clients, 1):.1f} frames/s each;"
        f" {held:.0f} MiB at the start, {grown:+.1f} MiB at the end"
    )
    return said, share, grown


@click.group()
def main() -> None:
    """Watch a real server."""


@main.command("converge")
@click.option("--changes", default=10_000, show_default=True)
def converge_command(changes: int) -> None:
    """Let watchers stall, come back and lag; then compare them with the lists."""
    with tempfile.TemporaryDirectory() as folder:
        click.echo(asyncio.run(converge(Path(folder), changes)))


@main.command("cost")
@click.option("--clients", default=100, show_default=True)
@click.option("--backlog", default=100_000, show_default=True)
@click.option("--per-second", default=50, show_default=True)
@click.option("--seconds", default=30.0, show_default=True)
def cost_command(clients: int, backlog: int, per_second: int, seconds: float) -> None:
    """Measure the server; fail above a third of a core, or if its memory grows by more than 5 MiB."""
    with tempfile.TemporaryDirectory() as folder:
        said, share, grown = asyncio.run(cost(Path(folder), clients, backlog, per_second, seconds))
    click.echo(said)
    if share > 1 / 3 or grown > 5:
        raise click.ClickException("that is too much")


if __name__ == "__main__":
    main()
