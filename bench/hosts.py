"""Hosts that share a store, a process each, which do what they are told: `python -m bench.hosts STORE ORIGIN LOOP`.

A line of JSON on its input is a command, a line on its output the answer.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.loops import default_loop, loop_factory

ROOT = Path(__file__).parents[1]
SECRET = "whsec_" + "a2V5" * 8
QUIET_S = 60.0
MOST_LINE = 1 << 20


class Host:
    """One of these processes."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def ask(self, do: str, **given: Any) -> dict[str, Any]:
        """Have it do something; its answer. SystemExit if there is none."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **given}).encode() + b"\n")
        async with asyncio.timeout(QUIET_S):
            line = await self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a host ended when it was to {do}: see above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def hosts(store: str, origin: str, count: int, names: Sequence[str]) -> AsyncIterator[list[Host]]:
    """So many of them, each with its share of the schedulers with these names; killed at the end."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.hosts", store, origin, default_loop(),
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=MOST_LINE,
            )  # fmt: skip
            host = Host(process)
            stack.push_async_callback(host.end)
            found.append(host)
        await shares(found, names)
        yield found


async def shares(found: Sequence[Host], names: Sequence[str]) -> list[list[str]]:
    """The names that each has, once every name is somebody's and everybody has some."""
    until = time.monotonic() + QUIET_S
    while True:
        mine = [(await host.ask("mine", names=list(names)))["mine"] for host in found]
        if all(mine) and sum(map(len, mine)) == len(names):
            return mine
        if time.monotonic() > until:
            raise SystemExit(f"the hosts have {[*map(len, mine)]} of {len(names)} schedulers, for {QUIET_S:g} s")
        await asyncio.sleep(0.05)


# ---- What runs in one ----------------------------------------------------------------------------------


async def serve(store: str, origin: str) -> None:
    from tocsin import ActorHost

    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(MOST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    loop.add_signal_handler(signal.SIGTERM, lines.feed_eof)
    async with ActorHost.open(store, origin=origin, secrets=[SECRET]) as host:
        while line := await lines.readline():
            asked = json.loads(line)
            answer = await DOES[asked.pop("do")](host, **asked)
            print(json.dumps(answer), flush=True)


async def mine(host: Any, names: Sequence[str]) -> Mapping[str, Any]:
    from tocsin.actors.scheduler.model.names import actor_of

    locate = host.runtime.provider.locate
    return {"mine": [name for name in names if locate(str(actor_of(name))).here]}


async def submit(host: Any, names: Sequence[str], count: int, producers: int) -> Mapping[str, Any]:
    """Submit jobs one by one, from so many tasks at once, to these schedulers in turn."""
    from bench.setting import produced

    numbers = iter(range(count))

    async def one() -> None:
        await host.scheduler(names[next(numbers) % len(names)]).run_after("30d", "bench:far", {"text": "x" * 180})

    began = time.perf_counter()
    await produced(one, count, producers)
    return {"seconds": time.perf_counter() - began}


async def due(host: Any, names: Sequence[str], each: int, at: int, every_ms: int) -> Mapping[str, Any]:
    """Let every scheduler have so many jobs, the first due at an instant, the others one behind the other."""
    from bench.setting import preload
    from tocsin import Job

    for name in names:
        made = [
            Job(path="bench:due", args={"text": "x" * 180}, at=at + n * every_ms, options={"id": f"{name}-{n}"})
            for n in range(each)
        ]
        await preload(host.scheduler(name), made)
    return {}


DOES: Mapping[str, Callable[..., Awaitable[Mapping[str, Any]]]] = {"mine": mine, "submit": submit, "due": due}

if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(sys.argv[3])) as runner:
        runner.run(serve(*sys.argv[1:3]))
