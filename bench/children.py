"""Processes of their own: a host that fires until it is killed, an interpreter that only imports, idle instances.

`python -m bench.children fire STORE ORIGIN LOOP` and `python -m bench.children idle STORE COUNT SUBMITS LOOP`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.loops import default_loop, loop_factory

ROOT = Path(__file__).parents[1]
SECRET = "whsec_" + "a2V5" * 8
ROUNDS = 5


@contextmanager
def firing(store: Path, origin: str) -> Iterator[subprocess.Popen[bytes]]:
    """A host on this store that calls back until the block ends."""
    process = subprocess.Popen([sys.executable, "-m", "bench.children", "fire", str(store), origin], cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def bare_start() -> float:
    """Seconds from the start of an interpreter until it has imported tocsin and ended."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "from tocsin import ActorHost"], cwd=ROOT, check=True)
    return time.perf_counter() - began


async def idle_instances(store: Path, count: int, submits: int) -> dict[str, float]:
    """What many instances that wait for their jobs cost: memory, and CPU of a submit as a ratio to few."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.children", "idle", str(store), str(count), str(submits),
        cwd=ROOT, stdout=subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    if process.returncode:
        raise SystemExit("the process with idle instances failed: see above")
    found: dict[str, float] = json.loads(said)
    return found


# ---- What runs in them ---------------------------------------------------------------------------


async def fire(store: str, origin: str) -> None:
    from tocsin import ActorHost

    async with ActorHost.open(f"sqlite:///{store}", origin=origin, secrets=[SECRET]):
        await asyncio.Event().wait()


async def idle(store: str, count: int, submits: int) -> dict[str, float]:
    """The submits before and after are in turn of one instance, the idle ones of 10,000 others."""
    from bench.served import resident_mb
    from bench.setting import produced
    from tocsin import ActorHost

    origin = "http://127.0.0.1:9"  # nothing is due
    async with ActorHost.open(f"sqlite:///{store}", origin=origin, secrets=[SECRET], idle_after_s=3_600) as host:

        async def cost() -> float:
            jobs, used = host.scheduler("bench"), time.process_time()
            await produced(lambda: jobs.run_after("30d", "bench:far"), submits, 32)
            return time.process_time() - used

        await cost()
        few = sorted([await cost() for _ in range(ROUNDS)])[ROUNDS // 2]
        before, numbers = resident_mb(os.getpid()), iter(range(count))

        async def touch() -> None:
            await host.scheduler(f"idle-{next(numbers)}").run_after("30d", "bench:far")

        await produced(touch, count, 32)
        after = resident_mb(os.getpid())
        many = sorted([await cost() for _ in range(ROUNDS)])[ROUNDS // 2]
    memory = {} if before is None or after is None else {"memory_mb": after - before}
    return {"ratio": many / few, **memory}


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory(default_loop())) as runner:
        if sys.argv[1] == "fire":
            runner.run(fire(*sys.argv[2:4]))
        else:
            print(json.dumps(runner.run(idle(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
