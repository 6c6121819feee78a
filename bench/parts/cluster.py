"""Many hosts on one PostgreSQL server: commits beside SQLite's, rates by the number of hosts, gaps of a failover.

The server, the hosts and the receiver share the processors of this machine, so more hosts than processors show what
sharing costs and not what more machines would bring.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
from collections.abc import Sequence
from pathlib import Path
from random import Random

from bench.cpu import spent
from bench.figures import Row
from bench.hosts import Host, hosts, shares
from bench.lease import now_ms
from bench.peers.services import MissingError, postgresql
from bench.setting import Part, Setting
from bench.wire import asked
from tocsin.storage.api import Batch, StoreProvider
from tocsin.storage.urls import open_provider

COMMITS = ((1, 1), (1, 32), (1, 1_000), (16, 1), (256, 1))
"""Actors that commit at once, each one behind the other, and jobs a commit: two rows each."""
HOSTS = (1, 2, 4)
NAMES = tuple(f"bench{number}" for number in range(64))
EVERY_MS = 200
"""Between two jobs of one scheduler, while a host is lost."""
SMALL = 0.05
"""A run of a smaller scale has one host only, and loses none: that would take as long as in a large one."""
BEFORE_S = 1.5
"""Of work, before it is."""
GAPS = {
    "terminated": (signal.SIGTERM, "", 3.0),
    "killed": (signal.SIGKILL, "", 4.0),
    "stopped": (signal.SIGSTOP, "&ttl=3", 7.0),
}
"""By what happens to one host of three: how, with what in the URL of the store, and for how long is looked at."""


def _of(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _commit_rows(actors: int, jobs: int) -> tuple[Row, Row]:
    words = f"jobs put, {_of(actors, 'actor')}, {_of(jobs, 'job')} a commit"
    below = f"cluster/sqlite/{actors}/{jobs}"
    return Row(f"cluster/commit/{actors}/{jobs}", f"PostgreSQL: {words}", limits=(below,)), Row(
        below, f"SQLite: {words}"
    )


def _gap_rows(name: str, words: str) -> tuple[Row, Row]:
    said = f"gap of a scheduler whose host is {words}"
    return Row(f"cluster/gap/{name}/median", f"{said}, median", "ms"), Row(
        f"cluster/gap/{name}/max", f"{said}, max", "ms"
    )


ROWS = (
    *(row for actors, jobs in COMMITS for row in _commit_rows(actors, jobs)),
    *(
        Row(f"cluster/submit/{n}", f"schedules, {_of(n, 'host')} of 32 producers", limits=("schedule/32/minted",))
        for n in HOSTS
    ),
    *(Row(f"cluster/fire/{n}", f"callbacks, {_of(n, 'host')}, signed", limits=("drain",)) for n in HOSTS),
    *_gap_rows("terminated", "told to stop (SIGTERM)"),
    *_gap_rows("killed", "killed (SIGKILL)"),
    *_gap_rows("stopped", "frozen (SIGSTOP), with a ttl of 3 s"),
)


# ---- Commits -------------------------------------------------------------------------------------------


async def commits(store: str, actors: int, jobs: int, count: int) -> float:
    """Jobs a second, put by so many actors at once, each a commit at a time."""
    provider: StoreProvider = open_provider(store)
    await provider.start()
    try:
        random, per_actor = Random(5), max(count // (actors * jobs), 2)

        async def put(number: int) -> None:
            held = await provider.open(f"bench/actor{number}")
            for start in range(per_actor):
                puts: dict[bytes, bytes] = {}
                for one in range(jobs):
                    name = b"%08x%08x%08x" % (start, one, random.getrandbits(32))
                    puts[b"job/" + name] = b"j" * 317
                    puts[b"line///09/" + name] = b""
                await held.commit(Batch(puts))
            await held.close()

        with spent() as cost:
            await asyncio.gather(*(put(number) for number in range(actors)))
        return actors * per_actor * jobs / cost.seconds
    finally:
        await provider.stop()


# ---- Hosts ---------------------------------------------------------------------------------------------


async def rates(bench: Setting, store: str, count: int) -> None:
    """Submits, then callbacks due at one instant, with so many hosts; each serves the schedulers that are its own."""
    jobs = bench.count(6_000)
    async with hosts(store, bench.receiver, count, NAMES) as found:
        mine = await shares(found, NAMES)
        each = jobs // count
        spans = await asyncio.gather(
            *(
                host.ask("submit", names=names, count=each, producers=32)
                for host, names in zip(found, mine, strict=True)
            )
        )
        bench.book.note(f"cluster/submit/{count}", each * count / max(one["seconds"] for one in spans))
        each = max(jobs // len(NAMES), 1)
        await bench.forget()
        at = now_ms() + 1_500
        await told(found, mine, each=each, at=at, every_ms=0)
        late = now_ms() - at
        stats = await bench.arrived(each * len(NAMES))
        if late > 0:
            bench.book.remark(f"The jobs for {count} hosts were {late} ms late: they were submitted while others ran.")
        bench.book.note(f"cluster/fire/{count}", each * len(NAMES) / (stats["last"] - at / 1000))


async def told(found: Sequence[Host], mine: Sequence[Sequence[str]], **given: int) -> None:
    """Have each host make the jobs of its own schedulers."""
    await asyncio.gather(*(host.ask("due", names=names, **given) for host, names in zip(found, mine, strict=True)))


async def gap(bench: Setting, store: str, name: str) -> None:
    """How late the latest job of each scheduler of a host was that is lost in the middle of its work."""
    how, rest, seconds = GAPS[name]
    each = int((BEFORE_S + seconds) * 1000) // EVERY_MS
    async with hosts(store + rest, bench.receiver, 3, NAMES) as found:
        mine = await shares(found, NAMES)
        await bench.forget()
        at = now_ms() + 1_500
        await told(found, mine, each=each, at=at, every_ms=EVERY_MS)
        await asyncio.sleep(max(at - now_ms(), 0) / 1000 + BEFORE_S)
        found[0].process.send_signal(how)
        await bench.arrived(each * len(NAMES))
        gaps = [(await asked(bench.receiver, f"/late?{one}-"))[-1] for one in mine[0]]
    bench.book.note(f"cluster/gap/{name}/median", statistics.median(gaps))
    bench.book.note(f"cluster/gap/{name}/max", max(gaps))


def _place(folder: Path) -> Path:
    """A folder for the server, which runs as another user."""
    place = folder / "postgresql"
    place.mkdir()
    folder.chmod(0o755)
    return place


async def measure(bench: Setting) -> None:
    """On one fresh server, a store after the other."""
    try:
        with postgresql(_place(bench.folder)) as url:
            numbers = iter(range(1_000))

            def store() -> str:
                return f"{url}?schema=bench{next(numbers)}"

            for actors, jobs in COMMITS:
                count = bench.count(400 if actors == jobs == 1 else 6_000 if jobs < 1_000 else 20_000)
                for kind, place in (("commit", store()), ("sqlite", f"sqlite:///{bench.store()}")):
                    bench.book.note(f"cluster/{kind}/{actors}/{jobs}", await commits(place, actors, jobs, count))
            small = bench.scale < SMALL
            for count in HOSTS[:1] if small else HOSTS:
                await rates(bench, store(), count)
            for name in () if small else GAPS:
                await gap(bench, store(), name)
    except MissingError as error:
        bench.book.remark(f"Nothing was measured on PostgreSQL: {error}")


PART = Part("cluster", "Many hosts on PostgreSQL", ROWS, measure, once=True)
