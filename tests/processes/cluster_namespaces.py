"""A real cut between a host and its database, while its users and receivers still reach it (as root):
`python -m tests.processes.cluster_namespaces`.

At its deadline the host sends nothing more and answers nothing from memory; the others have its actors before long;
when the cut is mended, it serves again.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import urllib.error
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from tests.cli.processes import COMMAND
from tests.postgres import Postgres, postgres_server
from tests.processes.cluster_hosts import HostProcess, Place
from tests.processes.cluster_ledger import Verdict, deliveries_in
from tests.processes.cluster_running import SETTLE_S, Running, eventually, running, store_of
from tests.processes.network_namespace import Network, network

TTL_S: Final = 5.0
MARGIN_S: Final = 1.0
ON_ITS_WAY_S: Final = 0.3
"""A callback that was sent at the deadline arrives so much later."""
BEFORE_S: Final = 6.0
CUT_S: Final = 3 * TTL_S
BACK_S: Final = 90.0
"""Within this time the host serves again: its connections try more and more seldom while the cut lasts."""
KIND: Final = "cut"


@dataclass
class Cut:
    """A run, and what the host answered that was cut off, after its deadline."""

    verdict: Verdict
    answered: list[tuple[float, str]] = field(default_factory=list)
    back_s: float = 0.0


async def cut_off(folder: Path, settle_s: float = SETTLE_S) -> Cut:
    """Cut the database off from one of three hosts, under load, and mend it."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        away = stack.enter_context(network(2))
        data, public = away.links
        places = [Place(public.there, (*away.command, *COMMAND)), Place(public.here), Place(public.here)]
        addresses = f"listen_addresses=127.0.0.1,{data.here}"
        server = stack.enter_context(postgres_server(port=0, settings=(addresses,)))
        _let_in(server, data.here)
        store = store_of(server, TTL_S).replace("127.0.0.1", data.here)
        async with running(folder, store, actors=30, places=places, receiver=public.here) as run:
            loading = asyncio.create_task(run.load.steadily(20, BEFORE_S + CUT_S + BACK_S))
            await asyncio.sleep(BEFORE_S)
            answered = await _cut_and_mend(run, away)
            mended = time.time()
            await loop.run_in_executor(None, eventually, lambda: _sent(run, public.there, mended), BACK_S)
            run.load.stopped.set()
            await loading
            await run.end(settle_s)
        cut = Cut(run.verdict({KIND: TTL_S + 2}), answered)
        _judge(cut, run, public.there)
        return cut


def _let_in(server: Postgres, address: str) -> None:
    """Let connections from this network in, as those from this machine are."""
    with (server.folder / "data" / "pg_hba.conf").open("a") as file:
        file.write(f"host all all {address}/24 trust\n")
    server.sql("SELECT pg_reload_conf()")


async def _cut_and_mend(run: Running, away: Network) -> list[tuple[float, str]]:
    host, loop = run.hosts[0], asyncio.get_running_loop()
    run.disrupted(KIND, 0)
    away.links[0].cut()
    await asyncio.sleep(TTL_S - MARGIN_S + ON_ITS_WAY_S)
    answered: list[tuple[float, str]] = []
    while time.time() < run.disruptions[-1].at + CUT_S:
        asked = [loop.run_in_executor(None, _asked, host, actor) for actor in run.load.actors[:10]]
        answered += [(time.time(), said) for said in await asyncio.gather(*asked)]
    away.links[0].mend()
    return answered


def _sent(run: Running, source: str, since: float) -> bool:
    """Whether the host has sent anything since then."""
    return any(one.source == source and one.at > since for one in deliveries_in(run.log)[0])


def _asked(host: HostProcess, actor: str) -> str:
    """What a host answers to a question about an actor that it cannot know any more."""
    try:
        host.ask(f"/i/{actor}/status")
    except urllib.error.HTTPError as error:
        return str(error.code)
    except OSError as error:
        return type(error).__name__
    return "200"


def _judge(cut: Cut, run: Running, source: str) -> None:
    verdict = cut.verdict.judge()
    began = run.disruptions[-1].at
    deadline, mended = began + TTL_S - MARGIN_S + ON_ITS_WAY_S, began + CUT_S
    sent = [one.at for one in verdict.deliveries if one.source == source]
    if late := [at for at in sent if deadline < at < mended]:
        verdict.broken.append(f"{len(late)} callbacks left the host that was cut off after its deadline")
    if knew := [said for _, said in cut.answered if said == "200"]:
        verdict.broken.append(
            f"the host that was cut off answered {len(knew)} questions from memory after its deadline"
        )
    if not cut.answered:
        verdict.broken.append("nothing was asked of the host that was cut off")
    if not [at for at in sent if at < began]:
        verdict.broken.append("the host that was cut off had sent nothing before")
    if not (back := [at - mended for at in sent if at > mended]):
        verdict.broken.append(f"the host that was cut off did not serve again within {BACK_S:g} s")
    cut.back_s = min(back, default=0.0)


@click.command()
def main() -> None:
    """Cut a host off from its database; exit 1 if a promise is broken."""
    with tempfile.TemporaryDirectory() as folder:
        cut = asyncio.run(cut_off(Path(folder)))
    answers = {said: sum(1 for _, one in cut.answered if one == said) for _, said in cut.answered}
    click.echo(f"{cut.verdict.table()}\nanswers of the host that was cut off: {answers}")
    click.echo(f"it served again {cut.back_s:.1f} s after the cut was mended")
    if cut.verdict.broken:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
