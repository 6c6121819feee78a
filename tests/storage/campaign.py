"""What is too long for the suite: `python -m tests.storage.campaign full|host|wal|lag`, each with numbers.

`full` and `host` need root, for a small disk.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from tests.storage import filling
from tests.storage.disks import small_disk
from tocsin.storage.api import Batch
from tocsin.storage.sqlite import provider as sqlite_provider
from tocsin.storage.sqlite.provider import SQLiteProvider

MIB = 1024 * 1024
READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM kv").fetchone()
print("reading", flush=True)
sys.stdin.readline()
"""


@click.group()
def campaign() -> None:
    """Storage under stress."""
    logging.disable()  # what is said of a full disk is said thousands of times


@campaign.command()
@click.option("--step", default=1, help="Pages between two runs.")
def full(step: int) -> None:
    """A disk with so many pages left, for every number of them, with the reserve and without."""
    filling.hasten(setattr)
    for reserve in (True, False):
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder) / "small", 32) as disk:
            refused = Counter(
                asyncio.run(filling.run_with(disk, pages * filling.PAGE, reserve=reserve))
                for pages in range(0, filling.PAGES, step)
            )
        words = "with the reserve" if reserve else "without it"
        click.echo(
            f"{refused.total()} runs {words}: commits refused in a run, and how often: {dict(sorted(refused.items()))}"
        )


@campaign.command()
@click.option("--rounds", default=3, help="How often each transaction has its turn.")
def host(rounds: int) -> None:
    """A host whose disk is full before its n-th transaction, for every n."""
    filling.hasten(setattr)
    came = 0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder) / "small", 32) as disk:
            transaction = 0
            while asyncio.run(filling.host_with(disk, transaction)):
                transaction += 1
            came += transaction
    click.echo(f"full at each of {came} transactions in {rounds} rounds: nothing accepted lost, all delivered")


@campaign.command()
@click.option("--seconds", default=30.0, help="How long another process reads in one transaction.")
@click.option("--rate", default=200, help="Transactions per second.")
@click.option("--kib", default=64, help="Size of each.")
def wal(seconds: float, rate: int, kib: int) -> None:
    """The WAL behind a stuck reader of another process, and after it."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_behind_a_reader(Path(folder) / "store.db", seconds, rate, kib * 1024))


async def _behind_a_reader(path: Path, seconds: float, rate: int, size: int) -> None:
    provider = SQLiteProvider(path)
    await provider.start()
    store = await provider.open("a")
    await store.commit(Batch(puts={b"k": b""}))
    command = [sys.executable, "-c", READER, str(path)]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert reader.stdout is not None and reader.stdin is not None
    reader.stdout.readline()
    late = await _write_for(provider, seconds, rate, size)
    behind = provider.stats().wal_bytes
    reader.stdin.write("\n")
    reader.stdin.close()
    reader.wait()
    ended = time.monotonic()
    while provider.stats().wal_bytes > 64 * MIB:
        await asyncio.sleep(0.05)
        assert time.monotonic() - ended < 60, "not cut within 60 s"
    click.echo(
        f"{seconds:g} s behind a reader: {behind / MIB:.0f} MiB, slowest commit {late * 1000:.0f} ms; "
        f"{provider.stats().wal_bytes / MIB:.0f} MiB {time.monotonic() - ended:.1f} s after it ended"
    )
    await provider.stop()


async def _write_for(provider: SQLiteProvider, seconds: float, rate: int, size: int) -> float:
    """The slowest commit, in seconds."""
    store = await provider.open("a")
    slowest, begun = 0.0, time.monotonic()
    for n in range(int(seconds * rate)):
        began = time.monotonic()
        await store.commit(Batch(puts={b"%d/%d" % (n % 500, m): bytes(8_000) for m in range(size // 8_000)}))
        slowest = max(slowest, time.monotonic() - began)
        await asyncio.sleep(max(begun + (n + 1) / rate - time.monotonic(), 0))
    return slowest


@campaign.command()
@click.option("--mib", default=128, help="How much WAL.")
def lag(mib: int) -> None:
    """How long the event loop stands still while a large WAL is moved into the file and cut."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = asyncio.run(loop_lag(Path(folder) / "store.db", mib * MIB))
    click.echo("WAL of {:.0f} MiB: moved in {:.2f} s; loop late by p99 {:.1f} ms, at most {:.1f} ms".format(*numbers))


async def loop_lag(path: Path, size: int) -> tuple[float, float, float, float]:
    """MiB of WAL, seconds it took to move and cut it, and by how many ms the loop was late meanwhile: p99 and most."""
    provider = SQLiteProvider(path)
    await provider.start()
    await provider._writer.run(provider._file._db.execute, "PRAGMA wal_autocheckpoint = 0")
    store = await provider.open("a")
    every, sqlite_provider.LOOK_EVERY = sqlite_provider.LOOK_EVERY, 1_000_000_000
    n = 0
    while provider.stats().wal_bytes < size:
        await store.commit(Batch(puts={b"%08d" % (n + m): bytes(60_000) for m in range(50)}))
        n += 50
    sqlite_provider.LOOK_EVERY = every
    mib = provider.stats().wal_bytes / MIB
    late: list[float] = []
    began = time.monotonic()
    provider._upkeep.look()
    while provider._upkeep.busy:
        tick = time.monotonic()
        await asyncio.sleep(0.001)
        late.append((time.monotonic() - tick - 0.001) * 1000)
    took = time.monotonic() - began
    assert provider.stats().wal_bytes < 64 * MIB
    await provider.stop()
    late.sort()
    return mib, took, late[int(len(late) * 0.99)], late[-1]


if __name__ == "__main__":
    campaign()
