"""Copy the schedulers of a store into memory. The store is only read, from a snapshot, also while it is in use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from tocsin.actors.rehearsal.history import History, Ran
from tocsin.actors.rehearsal.targets import Targets
from tocsin.actors.scheduler.integrity.check import held
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.rows import PULLED, BadRow, HistRow, JobRow, LeaseRow, R, decode, encode
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow
from tocsin.errors import NotFoundError
from tocsin.storage.api import StoreView, after, each_row
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk
from tocsin.storage.notes import NOTES, check_not_moved, read_notes
from tocsin.storage.snapshot import StoreLook, StoreSnapshot

PAGE: Final = 1_000
HISTORY: Final = b"hist/"
LEFT_OUT: Final = (b"audit/", HISTORY)
"""Families that tell of the past only, in the order of keys: a rehearsal makes its own."""
LEASES: Final = b"lease/"
GOES_ON: Final = ("fired", "accepted", PULLED)
"""Kinds of leases whose attempts somebody works on."""
ALL: Final = 2**62
MOST_ATTEMPTS: Final = 200_000
"""So many of the newest attempts of the history are read."""
PREFIX: Final = str(actor_of(""))


@dataclass(slots=True)
class Copy:
    """Schedulers to be rehearsed, and the history of their calls."""

    disk: MemoryDisk
    instances: list[str]
    history: History
    jobs: int = 0
    pools: dict[str, set[str]] = field(default_factory=dict)
    """Those that a job, a schedule or a setting names, by instance."""
    targets: Targets = field(default_factory=Targets)


async def copy_store(look: StoreLook, only: str | None, call_ms: int) -> Copy:
    """Copy every scheduler, or the one named. NotFoundError if there is none of that name; StoreMoved, StoreError."""

    async def read(snapshot: StoreSnapshot) -> Copy:
        check_not_moved(await read_notes(snapshot.view(NOTES)), look.place)
        names = [name for name in _names(snapshot) if only is None or name == only]
        if only is not None and not names:
            raise NotFoundError(f"there is no scheduler {only!r} in {look.place}")
        copy = Copy(MemoryDisk(), names, History(call_ms))
        for name in names:
            await _copy_one(snapshot, name, copy)
        return copy

    return await held(look, read)


def hold_attempts(copy: Copy, until: int) -> None:
    """Let the attempts that ran when the store was copied go on until then at least, whoever ran them: a host would
    take its own callbacks for lost, since it starts here anew. Whoever answers for them extends their leases."""
    for rows in copy.disk.maps.values():
        for key, value in rows.range(LEASES, after(LEASES), ALL, False):
            lease = _read(LeaseRow, key, value)
            if lease is not None and lease.kind in GOES_ON and not lease.orphan:
                kind = "accepted" if lease.kind == "fired" else lease.kind
                held = replace(lease, kind=kind, until=max(lease.until, until), charged=True)
                rows.apply({key: encode(held)})


def _names(snapshot: StoreSnapshot) -> list[str]:
    found: list[str] = []
    last = PREFIX
    while page := [name for name in snapshot.names(last, PAGE) if name.startswith(PREFIX)]:
        found += [name.removeprefix(PREFIX) for name in page]
        last = page[-1]
    return found


async def _copy_one(snapshot: StoreSnapshot, name: str, copy: Copy) -> None:
    """Copy the rows of one scheduler."""
    actor = str(actor_of(name))
    view, ran, pools, apart = snapshot.view(actor), Ran(), set[str](), list[JobRow]()
    writes = ActorWrites(actor, wake_at=snapshot.wake_at(actor))
    async for key, value in _rows(view):
        writes.rows[key] = value
        family, _, rest = key.partition(b"/")
        if family == b"job" and (job := _read(JobRow, key, value)) is not None:
            copy.jobs += 1
            ran.note_job(job)
            pools.add(job.pool)
            if job.extras is not None:
                apart.append(job)
        elif family == b"cron" and (row := _read(DefinitionRow, key, value)) is not None:
            ran.note_schedule(rest.decode(), row)
            pools.add(row.pool)
            copy.targets.note_schedule(row)
        elif family == b"pool":
            pools.add(rest.decode())
    copy.pools[name] = pools - {""}
    copy.targets.note(apart, writes.rows)
    copy.disk.apply([writes])
    async for key, value in _newest(view, MOST_ATTEMPTS - copy.history.attempts):
        if (attempt := _read(HistRow, key, value)) is not None:
            copy.history.note(attempt, ran.of(key.decode().split("/")[2], attempt))


async def _rows(view: StoreView) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield all rows but those left out, which may be most of them: they are jumped over."""
    starts = [b"\x00", *(after(family) for family in LEFT_OUT)]
    for start, end in zip(starts, (*LEFT_OUT, b"\xff"), strict=True):
        async for row in each_row(view, start, end, PAGE):
            yield row


async def _newest(view: StoreView, most: int) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield the rows of the history, the last day first."""
    end = after(HISTORY)
    while most > 0 and (page := await view.scan(HISTORY, end, limit=min(PAGE, most), reverse=True)):
        for row in page:
            yield row
        most, end = most - len(page), page[-1][0]


def _read(kind: type[R], key: bytes, value: bytes) -> R | None:
    """Read a row; None for one that the scheduler will set aside."""
    try:
        return decode(kind, key, value)
    except BadRow:
        return None
