"""Hosts whose clocks are wrong, each in its own way, on one PostgreSQL: `python -m tests.processes.cluster_clocks`.

Jobs come when they are due by the clock of the store: not before, and not later than usual; also where another host,
whose clock says otherwise, takes over from one that is killed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from tests.postgres import Postgres, postgres_server
from tests.processes.cluster_hosts import Place
from tests.processes.cluster_ledger import Verdict
from tests.processes.cluster_running import SETTLE_S, running, store_of
from tests.processes.server_process import ROOT

AHEAD_S: Final = (40, 0, -40)
TTL_S: Final = 5.0
ORDINARY_S: Final = 3.0
"""Nothing comes later than that while all hosts live."""
BEFORE_S: Final = 6.0
AFTER_S: Final = 12.0


async def skewed(
    folder: Path, server: Postgres, ahead_s: Sequence[int] = AHEAD_S, settle_s: float = SETTLE_S
) -> Verdict:
    """Load hosts whose clocks are ahead by so much each, and kill the first one."""
    places = [_place(seconds) for seconds in ahead_s]
    async with running(folder, store_of(server, TTL_S), actors=30, places=places) as run:
        run.disrupted("wrong clocks")
        loading = asyncio.create_task(run.load.steadily(20, BEFORE_S + AFTER_S))
        await asyncio.sleep(BEFORE_S)
        run.disrupted("kill", 0)
        run.hosts[0].kill()
        await loading
        run.hosts[0].start()
        await run.end(settle_s)
    return run.verdict({"wrong clocks": ORDINARY_S, "kill": TTL_S + 2}).judge()


def _place(ahead_s: int) -> Place:
    words = ("env", f"TEST_CLOCK_AHEAD_MS={ahead_s * 1000}", f"PYTHONPATH={ROOT}", sys.executable, "-m")
    return Place(command=(*words, "tests.processes.cluster_skewed_host"))


@click.command()
def main() -> None:
    """Hosts with wrong clocks; exit 1 if a promise is broken."""
    with tempfile.TemporaryDirectory() as folder, postgres_server(port=0) as server:
        verdict = asyncio.run(skewed(Path(folder), server))
    click.echo(f"clocks ahead by {', '.join(f'{one} s' for one in AHEAD_S)}\n{verdict.table()}")
    if verdict.broken:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
