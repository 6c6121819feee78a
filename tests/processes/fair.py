"""A hundred thousand jobs of one shard key, and then ten of another: `python -m tests.processes.fair`.

A real file, and a receiver in this process. The pool runs four at once; the ten must be among the first forty that
start once they are there. Then the same with as many keys as jobs: what they take in memory, how long a start takes,
and how long the activation after a restart.
"""

from __future__ import annotations

import asyncio
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from tocsin import ActorHost
from tocsin.actors.scheduler.client.scheduler import Job, Scheduler
from tocsin.dispatch.asgi_transport import AsgiTransport, Message

SECRET = "whsec_" + "a2V5" * 8
SLOTS = 4
AMONG = 40
FEW = 10


class Noting:
    """An ASGI app that notes which keys come, in order, and answers after a moment."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.came = asyncio.Event()

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        message = await receive()
        self.keys.append(json.loads(message["body"])["shardKey"])
        self.came.set()
        await asyncio.sleep(0.005)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def until(self, count: int) -> None:
        while len(self.keys) < count:
            self.came.clear()
            await self.came.wait()


def open_host(file: Path, app: Noting) -> ActorHost:
    return ActorHost.open(
        f"sqlite:///{file}", origin="http://127.0.0.1:9", secrets=[SECRET], transport=AsgiTransport(app), drain_s=1
    )


async def submit(jobs: Scheduler, keys: list[str]) -> None:
    for start in range(0, len(keys), 1_000):
        some = keys[start : start + 1_000]
        options = [{"pool": "mail", "shard_key": key} for key in some]
        await jobs.submit_many([Job(path="mail:send", after=0, options=one) for one in options])


async def one_large_key(file: Path, count: int) -> None:
    app = Noting()
    async with open_host(file, app) as host:
        jobs = host.scheduler("s")
        await jobs.set_pool("mail", max_concurrency=SLOTS, fair=True, paused=True)
        began = time.perf_counter()
        await submit(jobs, ["many"] * count)
        click.echo(f"{count:,} jobs of one key accepted in {time.perf_counter() - began:.1f} s")
        await jobs.set_pool("mail", paused=False)
        await app.until(200)
        await submit(jobs, ["few"] * FEW)
        there = len(app.keys)
        await app.until(there + 400)
        after = app.keys[there:]
        last = max(n for n, key in enumerate(after) if key == "few") + 1
        click.echo(f"ten of another key: the last of them started as number {last} of those that started then")
        assert after.count("few") == FEW and last <= AMONG, after[:60]


async def many_keys(file: Path, count: int) -> None:
    app, before = Noting(), _memory()
    async with open_host(file, app) as host:
        jobs = host.scheduler("s")
        await jobs.set_pool("mail", max_concurrency=SLOTS, fair=True, paused=True)
        began = time.perf_counter()
        await submit(jobs, [f"customer-{n}" for n in range(count)])
        click.echo(f"{count:,} jobs of as many keys accepted in {time.perf_counter() - began:.1f} s")
        click.echo(f"memory: {(_memory() - before) / count:,.0f} bytes more for each")
    async with open_host(file, app) as host:
        jobs = host.scheduler("s")
        began = time.perf_counter()
        await jobs.set_pool("mail", paused=False)
        await app.until(1)
        click.echo(f"first start after a restart: {time.perf_counter() - began:.2f} s")
        began = time.perf_counter()
        await app.until(1_001)
        click.echo(f"starts a second: {1_000 / (time.perf_counter() - began):,.0f}")
        began = time.perf_counter()
        page = await jobs.list(pool="mail", order="due", limit=100)
        click.echo(
            f"a page of the pool by due instant: {len(page.records)} jobs in {time.perf_counter() - began:.2f} s"
        )
        assert len(set(app.keys[:1_000])) == min(1_000, count), "no key had two turns"


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@click.command()
@click.option("--jobs", default=100_000, show_default=True)
def main(jobs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(one_large_key(Path(folder) / "one.db", jobs))
        asyncio.run(many_keys(Path(folder) / "many.db", jobs))


if __name__ == "__main__":
    main()
