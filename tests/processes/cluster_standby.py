"""The primary is lost under load, and a standby takes its place: `python -m tests.processes.cluster_standby`.

A synchronous standby has all that was accepted. An asynchronous one lags: what was accepted in that time may be lost,
and nothing else; the hosts notice it and say so, and go on from what is stored.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import click

from tests.postgres import KINDS, Postgres, postgres_server
from tests.postgres_standby import promote, standby_of, wait_for_it
from tests.processes.cluster_ledger import LEASE_MARGIN_S, Verdict
from tests.processes.cluster_running import SETTLE_S, TIMEOUT_MS, Running, running
from tests.processes.cutting_proxy import cutting_proxy

TTL_S: Final = 5.0
LAG_S: Final = 1.5
DETECTED_S: Final = 0.5
"""Whatever promotes the standby needs so long to see that the primary is gone."""
BACK_S: Final = 8.0
FORGOTTEN_S: Final = 10.0
"""What has not come so long after the end of the load was lost with the primary."""
ON_ITS_WAY_S: Final = 1.0
BEFORE_S: Final = 6.0
AFTER_S: Final = 10.0
KIND: Final = "primary lost"
NOTICED: Final = "older than"
"""Words of the log of a host that finds a store older than its memory."""


@dataclass
class Lost:
    """A run, and when the standby stopped to follow."""

    verdict: Verdict
    said: str
    lag: tuple[float, float]
    forgotten: int = 0
    """Accepted jobs that are in neither the store nor the receiver's log, all of the time of the lag."""


async def lose_primary(
    folder: Path, primary: Postgres, *, synchronous: bool, rate: float = 40, settle_s: float = SETTLE_S
) -> Lost:
    """Crash the primary under load and promote its standby; returns what became of it."""
    async with AsyncExitStack() as stack:
        assert primary.port
        wire = await stack.enter_async_context(cutting_proxy(("127.0.0.1", primary.port), Random(1)))
        standing = standby_of(primary, wire.port)
        standby = await asyncio.to_thread(standing.__enter__)
        stack.callback(standing.__exit__, None, None, None)
        if synchronous:
            await asyncio.to_thread(wait_for_it, primary)
        database = await asyncio.to_thread(primary.database, "tocsin")
        store = f"postgresql://tocsin@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{database}?ttl={TTL_S:g}"
        run = await stack.enter_async_context(running(folder, store, actors=60))
        loading = asyncio.create_task(run.load.steadily(rate, BEFORE_S + LAG_S + BACK_S + AFTER_S))
        await asyncio.sleep(BEFORE_S)
        behind = time.time()
        if not synchronous:
            wire.passes.clear()  # the standby hears nothing more, and nobody is told
            await asyncio.sleep(LAG_S)
        run.disrupted(KIND)
        await asyncio.to_thread(primary.crash)
        lag = behind, time.time()
        await asyncio.sleep(DETECTED_S)
        await asyncio.to_thread(promote, standby)
        await loading
        lost = await _end(run, settle_s, None if synchronous else lag)
        return Lost(lost[0], "".join(host.said() for host in run.hosts), lag, lost[1])


async def _end(run: Running, settle_s: float, lag: tuple[float, float] | None) -> tuple[Verdict, int]:
    """Judge. What was asked for or done during the lag is in doubt: it may be lost with the primary, or done again."""
    forgotten = 0
    if lag is not None:
        await asyncio.sleep(FORGOTTEN_S)
        deliveries = run.verdict({}).deliveries
        came = {one.n for one in deliveries}
        doubted = {one.n for one in deliveries if lag[0] - ON_ITS_WAY_S <= one.at <= lag[1]}
        doubted |= {
            request.n
            for request in run.load.requests
            if any(lag[0] - ON_ITS_WAY_S <= at <= lag[1] for at, _ in request.tries)
        }
        forgotten = sum(1 for request in run.load.requests if request.status and request.n in doubted - came)
        run.load.requests[:] = [request for request in run.load.requests if request.n not in doubted]
        run.doubted = frozenset(doubted)
    await run.end(settle_s)
    bound = DETECTED_S + BACK_S
    if lag is not None:
        bound += LEASE_MARGIN_S + TIMEOUT_MS / 1000  # the copy has leases of attempts whose ends it lacks
    return run.verdict({KIND: bound}).judge(), forgotten


@click.command()
@click.option("--postgres", "kinds", multiple=True, type=click.Choice(KINDS), default=KINDS)
@click.option("--keep", type=click.Path(path_type=Path), help="Copy the logs of hosts and receiver here.")
def main(kinds: tuple[str, ...], keep: Path | None) -> None:
    """Lose the primary of each PostgreSQL; exit 1 if a promise is broken."""
    broken = []
    for kind in kinds:
        for synchronous in (True, False):
            with tempfile.TemporaryDirectory() as name, postgres_server(kind, durable=True, port=0) as server:
                lost = asyncio.run(lose_primary(Path(name), server, synchronous=synchronous))
                if keep is not None:
                    shutil.copytree(name, keep / f"{kind}-{synchronous}", dirs_exist_ok=True)
                how = "synchronous" if synchronous else f"asynchronous, {LAG_S:g} s behind"
                noticed = lost.said.count(NOTICED)
                click.echo(f"PostgreSQL {server.version}, {how}\n{lost.verdict.table()}")
                click.echo(f"lost with the primary: {lost.forgotten}; hosts said so {noticed} times\n")
            broken += lost.verdict.broken
            if not synchronous and not (lost.forgotten and noticed):
                broken.append("nothing was lost, or nobody noticed")
    if broken:
        raise SystemExit("\n".join(broken))


if __name__ == "__main__":
    main()
