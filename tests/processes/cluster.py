"""Three hosts on one PostgreSQL behind a dumb balancer, of which one is killed, stopped or drained every few seconds:
`python -m tests.processes.cluster --seconds 180`.

Every accepted request and every delivery is in a ledger. It prints a table, and exits with 1 if a promise was broken.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import click
import uvloop

from tests.postgres import KINDS, Postgres, postgres_server
from tests.processes.cluster_hosts import HostProcess
from tests.processes.cluster_ledger import Verdict
from tests.processes.cluster_running import SETTLE_S, Running, running, store_of

KINDS_OF_DISRUPTION: Final = ("kill", "stop", "drain")
DOWN_S: Final = 2.0
"""A host that was killed is started again after so long."""
STOPPED: Final = (0.3, 0.85)
"""A host is stopped for such a part of the time between two disruptions."""


@dataclass
class Disrupting:
    """One host after the other, at random."""

    running: Running
    random: Random
    every_s: float
    kinds: Sequence[str] = KINDS_OF_DISRUPTION
    statuses: list[int] = field(default_factory=list)
    """The exit statuses of those that were drained."""

    async def run(self) -> None:
        """Go on until this is cancelled; whoever was stopped then goes on, and whoever was away is started."""
        loop = asyncio.get_running_loop()
        began, turn = loop.time(), 0
        kinds: list[str] = []
        while True:
            turn += 1
            await asyncio.sleep(began + turn * self.every_s - loop.time())
            kinds = kinds or self.random.sample(list(self.kinds), len(self.kinds))  # each as often as the others
            up = [one for one in self.running.hosts if await loop.run_in_executor(None, one.ready)]
            if up:  # a host that is just starting would be killed by any signal
                await self.disrupt(kinds.pop(), self.random.choice(up))

    async def disrupt(self, kind: str, host: HostProcess) -> None:
        self.running.disrupted(kind, host.number)
        try:
            match kind:
                case "kill":
                    host.kill()
                    await asyncio.sleep(DOWN_S)
                case "stop":
                    host.signal(signal.SIGSTOP)
                    await asyncio.sleep(self.random.uniform(*STOPPED) * self.every_s)
                case "drain":
                    self.statuses.append(await asyncio.get_running_loop().run_in_executor(None, host.drain))
        finally:
            if host.runs:
                host.signal(signal.SIGCONT)
            else:
                host.start()


@dataclass
class Campaign:
    """What is run, on which server."""

    folder: Path
    server: Postgres
    actors: int = 300
    rate: float = 200.0
    seconds: float = 180.0
    every_s: float = 10.0
    ttl_s: float = 10.0
    seed: int = 1
    kinds: Sequence[str] = KINDS_OF_DISRUPTION
    settle_s: float = SETTLE_S

    async def run(self) -> Verdict:
        """Load the cluster while hosts go; then wait until all is done, and judge."""
        store = store_of(self.server, self.ttl_s)
        async with running(self.folder, store, actors=self.actors, seed=self.seed) as run:
            disrupting = Disrupting(run, Random(self.seed), self.every_s, self.kinds)
            loading = asyncio.create_task(run.load.steadily(self.rate, self.seconds))
            with suppress(TimeoutError):
                async with asyncio.timeout(self.seconds):
                    await disrupting.run()
            await loading
            await run.end(self.settle_s)
        away = self.ttl_s + 2
        verdict = run.verdict({"kill": away, "stop": away, "drain": 1.0})
        if bad := [status for status in disrupting.statuses if status]:
            verdict.broken.append(f"hosts that were told to stop ended with {bad}")
        return verdict.judge()


@click.command()
@click.option("--seconds", default=180.0, show_default=True)
@click.option("--actors", default=300, show_default=True)
@click.option("--rate", default=200.0, show_default=True, help="Jobs per second.")
@click.option("--every", default=10.0, show_default=True, help="Seconds between two disruptions.")
@click.option("--ttl", default=10.0, show_default=True, help="Seconds that a host's lease lasts.")
@click.option("--seed", default=1, show_default=True)
@click.option("--postgres", type=click.Choice(KINDS), default="wheel", show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS_OF_DISRUPTION), default=KINDS_OF_DISRUPTION)
@click.option("--keep", type=click.Path(path_type=Path), help="Copy the logs of hosts and receiver here.")
def main(
    seconds: float, actors: int, rate: float, every: float, ttl: float, seed: int, postgres: str,
    kinds: tuple[str, ...], keep: Path | None,
) -> None:  # fmt: skip
    """Hosts that go, under load; exit 1 if a promise is broken."""
    with tempfile.TemporaryDirectory() as name, postgres_server(postgres, durable=True, port=0) as server:
        folder = Path(name)
        try:
            campaign = Campaign(folder, server, actors, rate, seconds, every, ttl, seed, kinds)
            verdict = uvloop.run(campaign.run())  # its users and its balancer share two cores with the hosts
        finally:
            if keep is not None:
                shutil.copytree(folder, keep, dirs_exist_ok=True)
        click.echo(verdict.table())
        if verdict.broken:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
