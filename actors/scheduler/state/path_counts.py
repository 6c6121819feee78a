"""Count how many live jobs, chained ones included, run each function path: one row `paths/<path>`, written at most once
a turn. So "does anything of this prefix still pend" is answered without reading jobs."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Final

from tocsin.actors.runtime.overlay import ActorStorage
from tocsin.actors.scheduler.model.groups import GroupRow
from tocsin.actors.scheduler.model.rows import META_RECOUNT, BadRow, JobRow, decode
from tocsin.storage.api import Row, after, each_row

PATH_BYTES: Final = 768
"""How many bytes of a function path stand in a key; of a longer path the rest is hashed."""
PATHS: Final = b"paths/"
"""The family sorts beside `meta/` and `lines/`: on a page that a commit writes anyway (measured: 4 KiB less each)."""
KNOWN: Final = 4_096
"""How many counts are kept in memory, so that a turn need not read those of paths in use."""
WRITTEN_AT_ONCE: Final = 500
"""How many counts one turn writes of those that were counted anew."""
PAGE: Final = 1_000


class Paths:
    """Part of the state, and dropped with it when a turn fails. Paths are known by their keys."""

    def __init__(self, storage: ActorStorage) -> None:
        self._storage = storage
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self.changes: Counter[str] = Counter()
        """Of this turn, by function path: the state adds 1 for each job that lives from now on, and -1 for each that
        ended or died."""
        self.recounted: dict[bytes, int] = {}
        """Counted anew, and not yet written: there may be more than a commit holds."""
        self.counting = False
        """True if counts of the last recount may still have to be written."""

    async def close(self, at_once: int = WRITTEN_AT_ONCE) -> None:
        """Write the counts that changed in this turn, and up to `at_once` of those that were counted anew."""
        changes: dict[bytes, int] = {}
        for target, by in self.changes.items():
            key = path_key(target)
            changes[key] = changes.get(key, 0) + by
        self.changes.clear()
        changed = [key for key, by in changes.items() if by]
        if self.counting:
            for key in [*changed, *islice(self.recounted, at_once)]:
                if key in self.recounted:
                    self._write(key, self.recounted.pop(key))
            if not self.recounted:
                self.counting = False
                self._storage.delete(META_RECOUNT)
        if unknown := [key for key in changed if key not in self._known]:
            rows = await self._storage.get_many(unknown)
            self._known.update((key, _count(rows.get(key, b""))) for key in unknown)
        for key in changed:
            self._write(key, self._known[key] + changes[key])
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def _write(self, key: bytes, count: int) -> None:
        self._known[key] = max(count, 0)
        self._known.move_to_end(key)
        if count > 0:
            self._storage.put(key, b"%d" % count)
        else:
            self._storage.delete(key)

    # ---- Counting anew ---------------------------------------------------------------------------

    async def count_anew(self) -> None:
        """Count from the rows of all jobs, where there are no counts yet or they may be wrong."""
        parked = {key[5:] async for key, _ in self._rows(b"dead/")}
        counts: Counter[bytes] = Counter()
        async for key, value in self._rows(b"job/"):
            if key[4:] not in parked:
                try:
                    counts.update(keys_of(decode(JobRow, key, value)))
                except BadRow:
                    continue  # whoever needs it sets it aside, and counts anew then
        await self._replace(counts)

    async def replace(self, living: Iterable[JobRow]) -> None:
        """Count these jobs and no others."""
        await self._replace(Counter(key for job in living for key in keys_of(job)))

    async def _replace(self, counts: Counter[bytes]) -> None:
        """Replace all counts; rows that are right stay. The row `meta/recount` exists until all others are written, so
        that the next activation counts again if the process ends before."""
        self.changes.clear()
        self._known.clear()
        async for key, value in self._rows(b"group/"):
            try:
                counts.update(path_key(target) for target in decode(GroupRow, key, value).pending())
            except BadRow:
                continue  # it is set aside when somebody needs it; what was to follow is lost
        wrong: dict[bytes, int] = dict(counts)
        async for key, value in self._rows(PATHS):
            if value == b"%d" % wrong.get(key, 0):
                del wrong[key]
            else:
                wrong.setdefault(key, 0)
        self.recounted, self.counting = wrong, True
        self._storage.put(META_RECOUNT, b"")

    def _rows(self, prefix: bytes) -> AsyncIterator[Row]:
        """Read the rows of a family, a page at a time: job rows hold args, and there may be many."""
        return each_row(self._storage, prefix, after(prefix), PAGE)


def keys_of(job: JobRow) -> Iterator[bytes]:
    """Return the keys under which a job counts: its own, and one for each job that follows it."""
    yield path_key(job.target)
    for target in job.chained:
        yield path_key(target)


def paths_of(job: JobRow) -> frozenset[str]:
    """Return the paths of a job and of all that follow it."""
    return frozenset((job.target, *job.chained))


def _count(value: bytes) -> int:
    return int(value) if value.isdigit() else 0


def path_key(target: str) -> bytes:
    """Return the key of a path; of a long path, its beginning and a hash."""
    whole = target.encode()
    if len(whole) > PATH_BYTES:
        whole = whole[:PATH_BYTES] + b"#" + hashlib.blake2b(whole, digest_size=8).hexdigest().encode()
    return PATHS + whole
