"""An owner that does not know yet that its slot was taken writes before, during and after that:
`python -m tests.processes.cluster_stale_owner --tries 10000`.

None of its writes may come through. The same tries with a commit that compares without locking the row must let some
through: this shows that the tries can find the fault.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import asyncpg
import click

from tests.postgres import KINDS, Postgres, postgres_server
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.ownership.engine import Held, HostRow, slot_of
from tocsin.storage.postgres.engine import PostgresEngine
from tocsin.storage.postgres.statements import statements

PHASES: Final = ("before", "by another", "during", "at once", "after")
"""`before`: a packet of the owner's own that comes a second time. `by another`: one that knows the slot's numbers, as
after a failover to a store in which epochs were counted anew. `during`: the slot is being taken, and the write is
seen to wait for that. `at once`: both set out together; whoever is first, the other one must notice."""
LANES: Final = 4
ROW_LOCK: Final = " FOR NO KEY UPDATE OF s"
KEY: Final = b"n"
WAITS_S: Final = 10.0
WAITING: Final = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
"""Not from pg_stat_activity: a transaction sees the sessions there, to its end, as they were when it looked first."""


@dataclass
class Host:
    """One host of the store, as far as the engine knows."""

    id: str
    engine: PostgresEngine


@dataclass
class Tries:
    """What came of each: by phase, how many there were, and how many came through."""

    server: Postgres
    random: Random
    locked: bool = True
    """False: the commit compares without locking, for control."""
    tried: Counter[str] = field(default_factory=Counter)
    through: Counter[str] = field(default_factory=Counter)
    first: int = 0
    """How often, of those at once, the owner's commit was first, and counted."""

    async def run(self, count: int) -> None:
        url = self.server.url(self.server.database("tocsin"), user="tocsin")
        async with AsyncExitStack() as stack:
            hosts = [await self._host(stack, url) for _ in range(2)]
            lanes = [Lane(self, hosts, f"actor-{number}") for number in range(LANES)]
            assert len({lane.slot for lane in lanes}) == LANES
            shares = [count // LANES + (number < count % LANES) for number in range(LANES)]
            await asyncio.gather(*(lane.run(url, share) for lane, share in zip(lanes, shares, strict=True)))

    async def _host(self, stack: AsyncExitStack, url: str) -> Host:
        engine = PostgresEngine(url, random=self.random)
        if not self.locked:
            plain = engine._sql.commit.replace(ROW_LOCK, "")
            assert plain != engine._sql.commit, "the commit locks its rows in other words now"
            engine._sql = replace(engine._sql, commit=plain)
        await engine.open()
        stack.push_async_callback(engine.close)
        host = Host(f"{self.random.getrandbits(128):032x}", engine)
        await engine.register(HostRow(host.id, "tests"), 3_600)
        return host

    def note(self, phase: str, came_through: bool) -> None:
        self.tried[phase] += 1
        self.through[phase] += came_through

    def table(self) -> str:
        lines = [f"{'the write came':<28}{'tries':>8}{'through':>9}"]
        lines += [f"{phase:<28}{self.tried[phase]:>8}{self.through[phase]:>9}" for phase in PHASES]
        lines.append(f"of those at once, the owner was first {self.first} times, and its write counted")
        return "\n".join(lines)


class Lane:
    """One slot that two hosts take from each other."""

    def __init__(self, tries: Tries, hosts: Sequence[Host], actor: str) -> None:
        self._tries, self._actor = tries, actor
        self.slot = slot_of(actor)
        self._owner, self._thief = hosts
        self._held = Held(self.slot, 0, 0)
        self._written = 0

    async def run(self, url: str, count: int) -> None:
        (row,) = await self._owner.engine.take([self.slot], self._owner.id)
        self._held = Held(self.slot, row.epoch, row.seq)
        connection = await asyncpg.connect(url)
        try:
            for number in range(count):
                await self._write()
                phase = PHASES[number % len(PHASES)]
                match phase:
                    case "before":
                        before = replace(self._held, seq=self._held.seq - 1)
                        await self._stale(phase, before)
                    case "by another":
                        await self._stale(phase, self._held, self._thief)
                    case "during":
                        await self._during(connection)
                    case "at once":
                        await self._at_once(connection)
                    case _:
                        stale, writer = self._held, self._owner
                        self._taken(await self._steal(connection))
                        await self._stale(phase, stale, writer)
        finally:
            await connection.close()

    async def _commit(self, host: Host, held: Held, value: bytes) -> bool:
        writes = ActorWrites(self._actor, {KEY: value})
        return await host.engine.commit(host.id, [held], [writes]) == {self.slot}

    async def _write(self) -> None:
        """Commit as the owner that it is: this must be accepted."""
        self._written += 1
        assert await self._commit(self._owner, self._held, b"%d" % self._written), "the owner's own write was refused"
        self._held = replace(self._held, seq=self._held.seq + 1)

    async def _stale(self, phase: str, held: Held, writer: Host | None = None) -> None:
        said = await self._commit(writer or self._owner, held, b"stale")
        self._tries.note(phase, said or await self._stored() == b"stale")

    async def _stored(self) -> bytes | None:
        found: dict[bytes, bytes] = await self._owner.engine.get(self._actor, [KEY])
        return found.get(KEY)

    async def _during(self, connection: asyncpg.Connection[Any]) -> None:
        """Send the write while the slot is taken, and let the thief go on only once the write waits for it."""
        writer, held = self._owner, self._held
        transaction = connection.transaction()
        await transaction.start()
        row = await self._take(connection)
        late = asyncio.create_task(self._commit(writer, held, b"stale"))
        deadline = asyncio.get_running_loop().time() + WAITS_S
        while not late.done() and not await connection.fetchval(WAITING):
            assert asyncio.get_running_loop().time() < deadline, "the write does not wait"
        await transaction.commit()
        said = await late
        self._taken(row)
        self._tries.note("during", said or await self._stored() == b"stale")
        await self._reread()

    async def _at_once(self, connection: asyncpg.Connection[Any]) -> None:
        """Both at the same time. If the owner's write was first, the thief must know of it: it reads the new `seq`."""
        writer, held = self._owner, self._held

        async def write() -> bool:
            await asyncio.sleep(self._tries.random.uniform(-0.002, 0.004))
            return await self._commit(writer, held, b"first")

        said, row = await asyncio.gather(write(), self._steal(connection))
        self._taken(row)
        known = row["seq"] == held.seq + said
        stored = await self._stored()
        self._tries.first += said and known
        self._tries.note("at once", not known or (stored == b"first") != said)
        await self._reread()

    async def _steal(self, connection: asyncpg.Connection[Any]) -> Any:
        async with connection.transaction():
            return await self._take(connection)

    async def _take(self, connection: asyncpg.Connection[Any]) -> Any:
        """Take the slot by the engine's own statements: it is given up in the same moment, since its owner lives."""
        sql = statements("tocsin")
        await connection.fetch(sql.release, [self.slot], self._owner.id)
        (row,) = await connection.fetch(sql.take, [self.slot], self._thief.id)
        return row

    def _taken(self, row: Any) -> None:
        self._owner, self._thief = self._thief, self._owner
        self._held = Held(self.slot, row["epoch"], row["seq"])

    async def _reread(self) -> None:
        """Go on from what is stored: where a stale write came through, `seq` is not what the thief was told."""
        (row,) = await self._owner.engine.settle([self.slot])
        self._held = Held(self.slot, row.epoch, row.seq)


async def stale(server: Postgres, count: int, *, locked: bool = True, seed: int = 1) -> Tries:
    """Do so many tries, and return what came of them."""
    tries = Tries(server, Random(seed), locked)
    await tries.run(count)
    return tries


@click.command()
@click.option("--tries", default=10_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(tries: int, seed: int) -> None:
    """Stale writes on each PostgreSQL; exit 1 if one comes through, or if the control lets none through."""
    broken = False
    for kind in KINDS:
        with postgres_server(kind) as server:
            done = asyncio.run(stale(server, tries, seed=seed))
            control = asyncio.run(stale(server, tries // 10, locked=False, seed=seed))
            click.echo(
                f"PostgreSQL {server.version}\n{done.table()}\n\nfor control, without the lock\n{control.table()}\n"
            )
        broken |= bool(done.through.total()) or not control.through.total()
    if broken:
        raise SystemExit("BROKEN: a stale write came through, or the control let none through")


if __name__ == "__main__":
    main()
