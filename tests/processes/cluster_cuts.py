"""Hosts whose connections to PostgreSQL are cut in mid-commit, whose packets come late and twice, and that are cut off
for longer than their lease: `python -m tests.processes.cluster_cuts --seconds 60`.

Each actor counts its commits, whoever owns it. What was said to be done is in the store once; what was said to have
failed is not, ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

import asyncpg
import click

from tests.postgres import KINDS, Postgres, postgres_server
from tests.processes.cutting_proxy import LONGEST_DELAY_S, CuttingProxy, cutting_proxy
from tocsin.errors import StoreError
from tocsin.storage.api import Batch, Leaving
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.postgres.engine import PostgresEngine

HOSTS: Final = 3
ACTORS: Final = 24
TTL_S: Final = 2.0
FAULTY: Final = 0.02
BETWEEN_S: Final = 1.5
BLACKOUT_S: Final = 1.4 * TTL_S
STORED: Final = """
SELECT a.name, k.key, k.value FROM tocsin.kv k JOIN tocsin.actor a USING (actor) ORDER BY a.name, k.key"""


@dataclass
class Cuts:
    """What was tried, and what was said of it."""

    random: Random
    faulty: float = FAULTY
    actors: int = ACTORS
    done: defaultdict[str, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """By actor and number, the commit that was said to be done."""
    failed: set[bytes] = field(default_factory=set)
    twice: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    takes: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    numbers: count[int] = field(default_factory=count)

    async def run(self, server: Postgres, seconds: float) -> list[str]:
        """Run all of it; returns what was broken."""
        database = server.database("tocsin")
        async with AsyncExitStack() as stack:
            place = ("127.0.0.1", server.port) if server.port else server.socket
            proxies = [await stack.enter_async_context(cutting_proxy(place, self.random)) for _ in range(HOSTS)]
            hosts = [await self._host(stack, proxy.port, database) for proxy in proxies]
            for proxy in proxies:
                proxy.faulty = self.faulty
            names = [f"actor-{number}" for number in range(self.actors)]
            work = [asyncio.create_task(self._drive(name, hosts)) for name in names]
            breaking = asyncio.create_task(self._break(proxies))
            await asyncio.sleep(seconds)
            breaking.cancel()
            with suppress(asyncio.CancelledError):
                await breaking
            for proxy in proxies:
                proxy.faulty = 0
                proxy.passes.set()
                self.faults += proxy.done
            self.over.set()
            await asyncio.gather(*work)
            await asyncio.sleep(2 * LONGEST_DELAY_S)  # what is still on its way arrives
        return await self._check(server.url(database))

    async def _host(self, stack: AsyncExitStack, port: int, database: str) -> OwnedProvider:
        engine = PostgresEngine(f"postgresql://tocsin@127.0.0.1:{port}/{database}", random=self.random)
        provider = OwnedProvider(engine, timing=Timing.of(TTL_S), random=self.random)
        await provider.start()
        stack.push_async_callback(provider.stop)
        following = asyncio.create_task(self._follow(provider))
        stack.callback(following.cancel)
        return provider

    async def _follow(self, provider: OwnedProvider) -> None:
        async for event in provider.events():
            if isinstance(event, Leaving):
                event.left()  # commits that come after it are refused: their actor is opened elsewhere

    async def _break(self, proxies: Sequence[CuttingProxy]) -> None:
        """Break all connections of one host, or have nothing of it pass for longer than its lease, by turns."""
        for turn in count():
            await asyncio.sleep(BETWEEN_S)
            proxy = self.random.choice(proxies)
            if turn % 2:
                proxy.passes.clear()
                await asyncio.sleep(BLACKOUT_S)
                proxy.passes.set()
                self.faults["blackout"] += 1
            else:
                proxy.cut_all()
                self.faults["all cut"] += 1

    # ---- Counting --------------------------------------------------------------------------------

    async def _drive(self, name: str, hosts: Sequence[OwnedProvider]) -> None:
        """Count, on whichever host has the actor."""
        while not self.over.is_set():
            here = next((host for host in hosts if host.locate(name).here), None)
            if here is None:
                await asyncio.sleep(0.02)
                continue
            try:
                await self._count(name, here)
            except StoreError:
                await asyncio.sleep(0.01)

    async def _count(self, name: str, host: OwnedProvider) -> None:
        store = await host.open(name)
        try:
            while not self.over.is_set():
                number = int((await store.get([b"n"])).get(b"n", b"0")) + 1
                attempt = b"%d" % next(self.numbers)
                try:
                    await store.commit(Batch(puts={b"n": b"%d" % number, b"h:%08d" % number: attempt}))
                except StoreError:
                    self.failed.add(attempt)
                    raise
                if number in self.done[name]:
                    self.twice.append(f"{name} counted {number} twice")
                self.done[name][number] = attempt
        finally:
            await store.close()

    async def _check(self, url: str) -> list[str]:
        """Compare the rows, read past all proxies, with what was said."""
        connection = await asyncpg.connect(url)
        stored: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        counted: dict[str, int] = {}
        for name, key, value in await connection.fetch(STORED):
            if key == b"n":
                counted[name] = int(value)
            else:
                stored[name][int(key[2:])] = value
        self.takes = await connection.fetchval("SELECT sum(epoch) FROM tocsin.slot")
        await connection.close()
        broken = list(self.twice)
        for name, done in self.done.items():
            if lost := done.items() - stored[name].items():
                broken.append(f"{name}: done, and not in the store: {sorted(lost)[:3]}")
            if counted.get(name) != len(done):
                broken.append(f"{name}: counted to {counted.get(name)} with {len(done)} commits")
        came = [attempt for rows in stored.values() for attempt in rows.values() if attempt in self.failed]
        if came:
            broken.append(f"{len(came)} commits are in the store that were said to have failed: {came[:3]}")
        return broken

    def table(self) -> str:
        commits = sum(len(done) for done in self.done.values())
        faults = ", ".join(f"{name} {number}" for name, number in sorted(self.faults.items()))
        return (
            f"{commits} commits done, {len(self.failed)} refused or given up, slots taken {self.takes} times\n"
            f"faults: {faults}"
        )


async def cuts(
    server: Postgres, seconds: float, seed: int = 1, faulty: float = FAULTY, actors: int = ACTORS
) -> tuple[Cuts, list[str]]:
    """Run for so long, with this part of the statements faulty; returns the counts, and what was broken."""
    made = Cuts(Random(seed), faulty, actors)
    return made, await made.run(server, seconds)


@click.command()
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--postgres", "kinds", multiple=True, type=click.Choice(KINDS), default=KINDS)
def main(seconds: float, seed: int, kinds: tuple[str, ...]) -> None:
    """Cut connections of each PostgreSQL; exit 1 if a promise is broken."""
    broken = []
    for kind in kinds:
        with postgres_server(kind) as server:
            made, found = asyncio.run(cuts(server, seconds, seed))
            click.echo(f"PostgreSQL {server.version}\n{made.table()}\n")
        broken += found
    if broken:
        raise SystemExit("\n".join(f"BROKEN: {one}" for one in broken))


if __name__ == "__main__":
    main()
