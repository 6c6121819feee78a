"""A PostgreSQL that is away for less and for more than a host's lease, under load:
`python -m tests.processes.cluster_outages`.

Nobody is declared dead and no slot changes hands; what was accepted comes, once; a host that cannot know whether it is
still the owner sends nothing.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from tests.postgres import KINDS, Postgres, postgres_server
from tests.processes.cluster_ledger import Verdict, deliveries_in
from tests.processes.cluster_running import SETTLE_S, Running, running, store_of

TTL_S: Final = 4.0
MARGIN_S: Final = 0.2 * TTL_S
"""So long before the end of its lease a host stops to trust its memory."""
OUTAGES: Final = (0.5 * TTL_S, 2.5 * TTL_S)
BETWEEN_S: Final = 6.0
BACK_S: Final = 6.0
"""All is as before so long after the server is back."""
OWNERS: Final = "SELECT slot, owner, epoch FROM tocsin.slot ORDER BY slot"
HOSTS: Final = "SELECT host, state FROM tocsin.host ORDER BY host"


async def outages(
    folder: Path, server: Postgres, seconds: Sequence[float] = OUTAGES, settle_s: float = SETTLE_S
) -> Verdict:
    """Stop the server for each of these times, once in order and once in a crash, by turns."""
    store = store_of(server, TTL_S)
    database = store.rpartition("/")[2].partition("?")[0]
    async with running(folder, store, actors=30) as run:
        loading = asyncio.create_task(run.load.steadily(20, sum(seconds) + BETWEEN_S * (len(seconds) + 1)))
        await asyncio.sleep(BETWEEN_S)
        before = await asyncio.to_thread(_owners, server, database)
        silences = [await _outage(run, server, number, away) for number, away in enumerate(seconds)]
        await loading
        await run.end(settle_s)
        after = await asyncio.to_thread(_owners, server, database)
    verdict = run.verdict({f"outage of {away:g} s": away + BACK_S for away in seconds})
    if moved := before - after:
        verdict.broken.append(
            f"{len(moved)} slots and hosts are not as before, only because the server was away: {sorted(moved)[:3]}"
        )
    for away, (began, ended) in zip(seconds, silences, strict=True):
        late = [one for one in deliveries_in(run.log)[0] if began + TTL_S - MARGIN_S + 0.5 < one.at < ended]
        if late:
            verdict.broken.append(
                f"{len(late)} callbacks left in the outage of {away:g} s after their owner's deadline"
            )
    return verdict.judge()


def _owners(server: Postgres, database: str) -> set[str]:
    """Each slot with its owner and epoch, and each host with its state."""
    return set(server.sql(f"{OWNERS}; {HOSTS}", database).splitlines())


async def _outage(run: Running, server: Postgres, number: int, away: float) -> tuple[float, float]:
    """Returns when the server was away."""
    run.disrupted(f"outage of {away:g} s")
    await asyncio.to_thread(server.crash if number % 2 else server.stop)
    loop = asyncio.get_running_loop()
    began = run.disruptions[-1].at
    await asyncio.sleep(away)
    ended = began + away
    await loop.run_in_executor(None, server.start)
    await asyncio.sleep(BETWEEN_S)
    return began, ended


@click.command()
@click.option("--postgres", "kinds", multiple=True, type=click.Choice(KINDS), default=KINDS)
@click.option("--keep", type=click.Path(path_type=Path), help="Copy the logs of hosts and receiver here.")
def main(kinds: tuple[str, ...], keep: Path | None) -> None:
    """The outages on each PostgreSQL; exit 1 if a promise is broken."""
    broken = False
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder, postgres_server(kind, durable=True, port=0) as server:
            verdict = asyncio.run(outages(Path(folder), server))
            if keep is not None:
                shutil.copytree(folder, keep / kind, dirs_exist_ok=True)
            click.echo(f"PostgreSQL {server.version}, a lease of {TTL_S:g} s\n{verdict.table()}\n")
        broken |= bool(verdict.broken)
    if broken:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
