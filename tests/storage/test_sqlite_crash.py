"""A process that commits is killed: what it acknowledged is there, and nothing half."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from tests.storage.committing import pair
from tocsin.errors import StoreLocked
from tocsin.storage.api import Batch
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).with_name("committing.py")
STEPS = 16
"""Before and after each statement of a transaction with puts, deletes, a wake time and a new actor."""


def committing(path: Path, *step: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(path), *step]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed(process: subprocess.Popen[str]) -> list[int]:
    """What the process acknowledged before it died by SIGKILL."""
    assert process.stdout is not None
    assert process.stderr is not None
    # Not communicate(): it passes by what an earlier readline() left in the buffer.
    with process:
        out, err = process.stdout.read(), process.stderr.read()
    assert (process.returncode, err) == (-signal.SIGKILL, "")
    return [int(line) for line in out.splitlines(keepends=True) if line.endswith("\n")]


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SQLiteProvider]:
    provider = SQLiteProvider(path)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


async def check_pairs(path: Path, acknowledged: list[int]) -> int:
    """Everything acknowledged is there, everything that is there is whole; the highest number."""
    async with opened(path) as provider:
        store = await provider.open("pairs")
        left, right, helpers = await store.scan_many(
            [(name, name + b"\xff", 10_000) for name in (b"left/", b"right/", b"help/")]
        )
        last = len(left)
        there = dict([*left, *right, *helpers])
        expected: dict[bytes, bytes] = {}
        for n in range(1, last + 1):
            batch = pair(n)
            expected.update(batch.puts)
            for key in batch.deletes:
                expected.pop(key, None)

        assert there == expected
        assert store.wake_at == (last or None)
        assert max(acknowledged, default=0) <= last
    return last


@pytest.mark.parametrize("seed", range(3))
async def test_killed_at_random_moments_it_keeps_what_it_acknowledged(seed: int, tmp_path: Path) -> None:
    path, random, acknowledged = tmp_path / "store.db", Random(seed), [0]
    for _ in range(3):  # on the same file: recovery on top of recovery
        process = committing(path)
        assert process.stdout is not None
        lines = [int(process.stdout.readline()) for _ in range(random.randrange(1, 120))]
        process.kill()
        acknowledged += lines + killed(process)

        last = await check_pairs(path, acknowledged)
        assert last >= acknowledged[-1]


async def test_killed_at_each_step_of_a_transaction_it_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    steps = {tmp_path / f"{step}.db": committing(tmp_path / f"{step}.db", str(step)) for step in range(STEPS)}
    kept = {}
    for path, process in steps.items():
        acknowledged = killed(process)
        assert acknowledged
        kept[path.stem] = await check_pairs(path, acknowledged) - acknowledged[-1]

    assert {kept[f"{step}"] for step in range(STEPS - 1)} == {0}, "not committed, and so not there"
    assert kept[f"{STEPS - 1}"] > 0, "killed behind COMMIT: there, though nobody heard of it"


async def test_a_second_process_hears_who_has_the_file_until_that_one_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    process = committing(path)
    assert process.stdout is not None
    first = int(process.stdout.readline())
    provider = SQLiteProvider(path)
    with pytest.raises(StoreLocked, match=f"process {process.pid}:") as caught:
        await provider.start()
    assert caught.value.details["pid"] == str(process.pid)
    process.kill()
    await check_pairs(path, [first, *killed(process)])


async def test_a_second_provider_of_the_same_process_is_locked_out_too(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
    async with opened(tmp_path / "store.db") as provider:
        for again in (provider, SQLiteProvider(tmp_path / "store.db"), SQLiteProvider(tmp_path / "link.db")):
            with pytest.raises(StoreLocked, match=f"process {os.getpid()}:"):
                await again.start()
        await (await provider.open("a")).commit(Batch(puts={b"k": b""}))
    async with opened(tmp_path / "link.db") as provider:
        assert await provider.exists("a")


async def test_a_program_that_forgets_to_stop_ends_all_the_same(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from tocsin.storage.sqlite.provider import SQLiteProvider\n"
        "provider = SQLiteProvider(sys.argv[1])\n"
        "asyncio.run(provider.start())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "store.db")]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
