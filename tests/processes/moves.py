"""Imports and moves that are killed, again and again, and gone on with: `python -m tests.processes.moves --rounds 20`.

Each round makes a store with some thousand jobs. An import is killed at a random instant, then a move is, until one
comes to its end. At no time may both places run the instance, nothing may be lost, and both stores must be sound.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.cli.processes import COMMAND, environment, tocsin
from tocsin import ActorHost, Job

JOBS: Final = 5_000
LONGEST_S: Final = 2.5


def of(n: int) -> dict[str, Any]:
    return {"id": f"j{n}", "queue": "q", "labels": ["x"]}


async def fill(url: str) -> None:
    async with ActorHost.open(url, dispatch=False, share=False) as host:
        jobs = host.scheduler("t")
        for first in range(0, JOBS, 1_000):
            await jobs.submit_many([Job(path="work", after=3_600, options=of(n)) for n in range(first, first + 1_000)])
        await jobs.schedules.put("daily", cron="@daily", path="tick", queue="q")


async def state(url: str, name: str = "t") -> Any:
    async with ActorHost.open(url, dispatch=False, share=False) as host:
        return await host.transfer_state(name)


async def ids(url: str) -> set[str]:
    async with ActorHost.open(url, dispatch=False, share=False) as host:
        return {one.id async for one in host.scheduler("t").list_all()}


def killed(folder: Path, seconds: float, *words: str) -> bool:
    """Run a command, and kill it after so long. Whether it was still running then."""
    process = subprocess.Popen([*COMMAND, *words], cwd=folder, env=environment(), stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


def runs(found: Any) -> bool:
    """Whether the instance would run in a server that opens this store."""
    return bool(found.exists and not found.importing and not found.sealed)


def play(seed: int) -> tuple[int, int]:
    """One round; how often an import and a move were killed."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        old, copy, new = (f"sqlite:///{folder / name}.db" for name in ("old", "copy", "new"))
        asyncio.run(fill(old))
        assert tocsin("export", "t.jsonl", "--store", old, "--instance", "t", cwd=folder).returncode == 0
        imports = moves = 0
        while killed(folder, chance.uniform(0.3, LONGEST_S), "import", "t.jsonl", "--store", copy, "--instance", "t"):
            imports += 1
            if (folder / "copy.db").exists() and asyncio.run(state(copy)).importing:
                assert not runs(asyncio.run(state(copy)))
                asyncio.run(cleared(copy))
        if not runs(asyncio.run(state(copy))):  # the last one ended because what was left of the one before stood there
            asyncio.run(cleared(copy))
            assert tocsin("import", "t.jsonl", "--store", copy, "--instance", "t", cwd=folder).returncode == 0
        while killed(folder, chance.uniform(0.3, LONGEST_S), "move", old, new, "--instance", "t"):
            moves += 1
            left = asyncio.run(state(old))
            came = asyncio.run(state(new)) if (folder / "new.db").exists() else None
            assert not (runs(left) and came is not None and runs(came)), (seed, left, came)
        assert asyncio.run(state(old)).sealed
        wanted = {f"j{n}" for n in range(JOBS)}
        for store in (new, copy):
            found = asyncio.run(ids(store))
            assert found == wanted, (seed, store, len(found), sorted(wanted - found)[:5], sorted(found - wanted)[:5])
        for store in (old, new, copy):
            done = tocsin("check", "--store", store, cwd=folder)
            assert done.returncode == 0, (seed, store, done.stdout)
    return imports, moves


async def cleared(url: str) -> None:
    async with ActorHost.open(url, dispatch=False, share=False) as host:
        await host.scheduler("t").remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began, imports, moves = time.monotonic(), 0, 0
    for seed in range(given.seed, given.seed + given.rounds):
        found = play(seed)
        imports, moves = imports + found[0], moves + found[1]
        print(f"round {seed}: {found[0]} imports and {found[1]} moves killed", file=sys.stderr)
    killed_ones = f"{imports} imports and {moves} moves killed"
    print(f"{given.rounds} rounds in {time.monotonic() - began:.0f} s: {killed_ones}; all sound")


if __name__ == "__main__":
    main()
