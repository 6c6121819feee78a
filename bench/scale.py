"""What docs/scale.md says of many rows and of several servers, measured: `python -m bench scale`.

Two servers as `initdb` makes them, with more memory. The slot that moves is copied by the steps of docs/scale.md, once
without and once with an interruption after each of them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import asyncpg

from bench.figures import shown
from bench.peers.services import postgresql
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.ownership.engine import Held, HostRow, slot_of
from tocsin.storage.postgres.engine import PostgresEngine
from tocsin.storage.postgres.statements import numbers_of

PER_COPY = 20_000
"""Rows of one COPY."""
DAY_MS = 86_400_000
DUE_MS = 1_798_661_545_521
JOB = b"\xdc\x00\x1b\x01" + b"x" * 284
"""As long as the row of a job with 186 bytes of args."""
SETTINGS = ("shared_buffers=512MB", "max_wal_size=8GB", "checkpoint_timeout=15min")
KV = ("actor", "key", "value")
ALL = ("mail", "kv", "actor")
"""Tables whose rows belong to a slot, beside the slot's own row."""
Connection = Any


class Interrupted(Exception):
    """The process that moves a slot ended here."""


def tell(name: str, value: float, unit: str, note: str = "") -> None:
    print(f"  {name:<52} {shown(value):>12} {unit:<8} {note}", flush=True)


def rows_of(jobs: int, actors: list[int], random: Random) -> Iterator[tuple[int, bytes, bytes]]:
    """The two rows of each job that waits: the job, and its place in the line. Ids ascend, and are due within a day."""
    for number in range(jobs):
        actor, name = actors[number % len(actors)], b"%026x" % ((number << 40) + random.getrandbits(40))
        yield actor, b"job/" + name, JOB
        yield actor, b"line///09/%015d/%b" % (DUE_MS + random.randrange(DAY_MS), name), b""


async def log_position(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


async def copied(connection: Connection, rows: Iterator[tuple[int, bytes, bytes]]) -> None:
    some: list[tuple[int, bytes, bytes]] = []
    for row in rows:
        some.append(row)
        if len(some) == PER_COPY:
            await connection.copy_records_to_table("kv", schema_name="tocsin", records=sorted(some), columns=KV)
            some.clear()
    await connection.copy_records_to_table("kv", schema_name="tocsin", records=sorted(some), columns=KV)


# ---- One server --------------------------------------------------------------------------------------


async def loaded(connection: Connection, jobs: int, actors: list[int]) -> None:
    """Load, vacuum, and look at the sizes and at how long it takes to find what is due."""
    names = [(actor, f"scheduler/scale-{actor}") for actor in actors]
    await connection.executemany("INSERT INTO tocsin.actor (actor, name, wake_at) VALUES ($1, $2, 0)", names)
    log, began = await log_position(connection), time.perf_counter()
    await copied(connection, rows_of(jobs, actors, Random(1)))
    took = time.perf_counter() - began
    tell("load by COPY", jobs / took, "jobs/s", f"{2 * jobs:,} rows in {took:.1f} s")
    tell("  WAL", (await log_position(connection) - log) / jobs, "B/job")
    began = time.perf_counter()
    await connection.execute("VACUUM ANALYZE tocsin.kv")
    tell("vacuum after it", time.perf_counter() - began, "s")
    heap, index = [
        await connection.fetchval("SELECT pg_relation_size($1::text::regclass)", f"tocsin.{name}")
        for name in ("kv", "kv_pkey")
    ]
    tell("size", (heap + index) / jobs, "B/job", f"heap {heap / jobs:.0f}, index {index / jobs:.0f}")
    random = Random(2)
    for limit in (1, 100, 500):
        spent = []
        for _ in range(60):
            began = time.perf_counter()
            await connection.fetch(
                "SELECT key, value FROM tocsin.kv WHERE actor = $1 AND key >= $2 AND key < $3 ORDER BY key LIMIT $4",
                random.choice(actors), b"line/", b"line0", limit,
            )  # fmt: skip
            spent.append(time.perf_counter() - began)
        tell(f"the first {limit} in the line of one actor, p50", sorted(spent)[30] * 1000, "ms")


async def lived(url: str, connection: Connection) -> None:
    """Whole lives of jobs beside all the others: submitted, claimed, settled, in three commits of `batch` jobs each."""
    engine, host, actor = PostgresEngine(url), uuid4().hex, "scheduler/scale"
    slot = slot_of(actor)
    await engine.open()
    try:
        await engine.register(HostRow(host, "scale"), 3_600)
        (row,) = await engine.take([slot], host)
        seq = row.seq

        async def commit(puts: dict[bytes, bytes], deletes: list[bytes]) -> None:
            nonlocal seq
            rows: dict[bytes, bytes | None] = {**puts, **dict.fromkeys(deletes)}
            if await engine.commit(host, [Held(slot, row.epoch, seq)], [ActorWrites(actor, rows, 1)]) != {slot}:
                raise SystemExit("the commit was refused")
            seq += 1

        for batch, rounds in ((1, 600), (32, 200), (500, 30)):
            await connection.execute("CHECKPOINT")
            for measured in (False, True):  # the first time whole pages go into the log
                log, began = await log_position(connection), time.perf_counter()
                for number in range(rounds):
                    start = (1 << 90) + (measured << 80) + number * batch
                    names = [b"%026x" % (start + one) for one in range(batch)]
                    jobs, leases = [b"job/" + name for name in names], [b"lease/" + name for name in names]
                    places = [b"line///09/%015d/%b" % (DUE_MS, name) for name in names]
                    await commit(dict.fromkeys(jobs, JOB) | dict.fromkeys(places, b""), [])
                    await commit(dict.fromkeys(leases, b"l" * 90), places)
                    ended = [b"hist/%015d/%b" % (DUE_MS, name) for name in names]
                    await commit(dict.fromkeys(ended, b"h" * 80), [*jobs, *leases])
                took, lives = time.perf_counter() - began, rounds * batch
                if measured:
                    tell(f"lives of jobs, {batch} a commit", lives / took, "/s", f"{3 * rounds / took:,.0f} commits/s")
                    tell("  WAL", (await log_position(connection) - log) / lives, "B/life")
    finally:
        await engine.close()


async def emptied(connection: Connection, actors: list[int]) -> None:
    """A third of all jobs ends at once: what vacuum takes, and the head of a line whose first places are gone."""
    await connection.execute("ALTER TABLE tocsin.kv SET (autovacuum_enabled = off)")
    began, gone = time.perf_counter(), 0
    for actor in actors[: len(actors) // 3]:
        gone += int((await connection.execute("DELETE FROM tocsin.kv WHERE actor = $1", actor)).split()[1])
    tell("rows deleted", gone / (time.perf_counter() - began), "/s", f"{gone:,} rows")
    began = time.perf_counter()
    await connection.execute("VACUUM tocsin.kv")
    tell("vacuum of them", time.perf_counter() - began, "s")
    line = "SELECT key FROM tocsin.kv WHERE actor = $1 AND key >= $2 AND key < $3 ORDER BY key LIMIT $4"
    actor = actors[-1]
    first = [row["key"] for row in await connection.fetch(line, actor, b"line/", b"line0", 10_000)]
    await connection.execute("DELETE FROM tocsin.kv WHERE actor = $1 AND key = ANY($2)", actor, first)
    for words, start in (("from the start", b"line/"), ("once more", b"line/"), ("from the last one", first[-1])):
        began = time.perf_counter()
        await connection.fetch(line, actor, start, b"line0", 1)
        tell(f"the head behind {len(first):,} deleted, {words}", (time.perf_counter() - began) * 1000, "ms")


# ---- Two servers -------------------------------------------------------------------------------------


async def moved(
    source: Connection, target: Connection, slot: int, mover: str, stop_after: str = ""
) -> dict[str, float]:
    """Move a slot that its owner has let go of. Every step may be done again: whoever is interrupted begins anew.

    The slot can be taken on one server at most at any instant: its row there goes in one transaction, and only then the
    row here is given free.
    """
    low, high = numbers_of(slot, slot)
    began = time.perf_counter()
    spent: dict[str, float] = {}

    def done(step: str) -> None:
        spent[step] = time.perf_counter() - began
        if step == stop_after:
            raise Interrupted(step)

    here = await source.fetchrow("SELECT epoch, seq FROM tocsin.slot WHERE slot = $1 AND owner = $2", slot, mover)
    if here is not None:
        done("held")
        async with target.transaction():
            await _cleared(target, slot)
            await target.execute("DELETE FROM tocsin.slot WHERE slot = $1", slot)
            await _copied_rows(source, target, f"actor >= {low} AND actor < {high}", ("actor", "kv"))
            await _copied_rows(source, target, f"slot = {slot}", ("mail",))
            await target.execute(
                "INSERT INTO tocsin.slot (slot, owner, epoch, seq, base_seq) VALUES ($1, $2, $3, $4, $4)",
                slot, mover, here["epoch"] + 1, here["seq"],
            )  # fmt: skip
        done("copied")
        if await checksum(source, slot) != await checksum(target, slot):
            raise SystemExit(f"slot {slot} is another one after it was copied")
        done("checked")
        await source.execute("DELETE FROM tocsin.slot WHERE slot = $1 AND owner = $2", slot, mover)
        done("given up")
    await target.execute("UPDATE tocsin.slot SET owner = NULL WHERE slot = $1 AND owner = $2", slot, mover)
    done("given free")
    await _cleared(source, slot)
    done("cleared")
    return spent


async def _cleared(connection: Connection, slot: int) -> None:
    low, high = numbers_of(slot, slot)
    for table in ("kv", "actor"):
        await connection.execute(f"DELETE FROM tocsin.{table} WHERE actor >= {low} AND actor < {high}")
    await connection.execute("DELETE FROM tocsin.mail WHERE slot = $1", slot)


COLUMNS = {"actor": "actor, name, wake_at", "kv": "actor, key, value", "mail": "slot, op, actor, body, sender, at"}


async def _copied_rows(source: Connection, target: Connection, which: str, tables: tuple[str, ...]) -> None:
    for table in tables:
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue(64)

        async def read(table: str = table, pieces: asyncio.Queue[bytes | None] = pieces) -> None:
            order = "ORDER BY seq" if table == "mail" else ""
            query = f"SELECT {COLUMNS[table]} FROM tocsin.{table} WHERE {which} {order}"
            await source.copy_from_query(query, output=pieces.put, format="binary")
            await pieces.put(None)

        async def arriving(pieces: asyncio.Queue[bytes | None] = pieces) -> AsyncIterator[bytes]:
            while (piece := await pieces.get()) is not None:
                yield bytes(piece)

        columns = COLUMNS[table].split(", ")
        writing = target.copy_to_table(table, schema_name="tocsin", source=arriving(), columns=columns, format="binary")
        await asyncio.gather(read(), writing)


async def checksum(connection: Connection, slot: int) -> tuple[object, ...]:
    """Counts and sums over all that belongs to a slot."""
    low, high = numbers_of(slot, slot)
    row = await connection.fetchrow(
        "SELECT count(*), sum(hashtextextended(encode(key, 'hex') || encode(value, 'hex'), actor)::numeric), "
        f"(SELECT count(*) FROM tocsin.actor WHERE actor >= {low} AND actor < {high}), "
        f"(SELECT count(*) FROM tocsin.mail WHERE slot = {slot}) FROM tocsin.kv WHERE actor >= {low} AND actor < {high}"
    )
    return tuple(row)


async def held_by(connection: Connection, slot: int, mover: str) -> None:
    await connection.execute(
        "INSERT INTO tocsin.slot (slot, owner) VALUES ($1, $2) ON CONFLICT (slot) DO UPDATE SET owner = $2", slot, mover
    )


async def takeable(connection: Connection, slot: int) -> bool:
    row = await connection.fetchrow("SELECT owner FROM tocsin.slot WHERE slot = $1", slot)
    return row is not None and row["owner"] is None


async def moving(source: Connection, target: Connection, jobs: int) -> None:
    """One slot with so many jobs, moved; then one with few, interrupted after each step."""
    mover = str(uuid4())
    await target.execute("DELETE FROM tocsin.slot")  # its slots are those that come
    for slot, few in ((4_000, jobs), (4_001, 2_000)):
        actor = numbers_of(slot, slot)[0] + 7
        await source.execute("INSERT INTO tocsin.actor (actor, name) VALUES ($1, $2)", actor, f"scheduler/moves-{slot}")
        await copied(source, rows_of(few, [actor], Random(3)))
        await held_by(source, slot, mover)
    spent = await moved(source, target, 4_000, mover)
    tell("a slot moved: nobody has it for", spent["given free"], "s", f"{2 * jobs:,} rows")
    tell("  of which copied", 2 * jobs / spent["copied"], "rows/s")
    tell("  deleted at its old place, afterwards", spent["cleared"] - spent["given free"], "s")
    before = await checksum(source, 4_001)
    for step in ("held", "copied", "checked", "given up", "given free"):
        try:
            await moved(source, target, 4_001, mover, step)
        except Interrupted:
            places = [await takeable(each, 4_001) for each in (source, target)]
            if places[0] or places[1] != (step == "given free"):
                raise SystemExit(f"interrupted after {step!r}, the slot can be taken at {places}") from None
    await moved(source, target, 4_001, mover)
    if await checksum(target, 4_001) != before or not await takeable(target, 4_001):
        raise SystemExit("the slot that was interrupted at each step is not what it was")
    print("  a move interrupted after each of its steps and begun anew: the same rows, one place at every instant")


# ---- All of it -----------------------------------------------------------------------------------------


def measure(jobs: int, folder: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as made, ExitStack() as stack:
        urls = []
        for name in ("one", "two"):
            place = Path(made) / name
            place.mkdir()
            Path(made).chmod(0o755)
            urls.append(stack.enter_context(postgresql(place, SETTINGS)))
        asyncio.run(_measure(jobs, *urls))


async def _measure(jobs: int, one: str, two: str) -> None:
    for url in (one, two):
        engine = PostgresEngine(url)
        await engine.open()
        await engine.close()
    source, target = await asyncpg.connect(one), await asyncpg.connect(two)
    actors = [numbers_of(slot, slot)[0] + 1 for slot in range(256)]
    await loaded(source, jobs, actors)
    await lived(one, source)
    await moving(source, target, min(jobs // 4, 244_140))
    await emptied(source, actors)
    await source.close()
    await target.close()
