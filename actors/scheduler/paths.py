"""How many live jobs, chained ones included, run each function path: `fn/<path>`, one row for each, written at most
once a turn. So "does anything of this prefix still pend" is answered without walking jobs."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from tocsin.actors.overlay import ActorStorage
from tocsin.actors.scheduler.rows import BadRow, JobRow, decode
from tocsin.storage.api import Row

FN_BYTES: Final = 768
"""Of a function path in a key."""
KNOWN: Final = 4_096
"""Counts kept in memory, so that a turn reads none of paths in use."""


class Paths:
    """Part of the book, and like it dropped when a turn fails. Paths are known by their keys."""

    def __init__(self, storage: ActorStorage) -> None:
        self._storage = storage
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._changes: Counter[bytes] = Counter()

    def change(self, job: JobRow, by: int) -> None:
        """The job counts from now on (1), or no more (-1): it ended, or is dead."""
        for key in keys_of(job):
            self._changes[key] += by

    @property
    def unwritten(self) -> int:
        """How many rows the end of the turn writes, at most."""
        return len(self._changes)

    async def close(self) -> None:
        """At the end of a turn: write the counts that changed."""
        changes, self._changes = self._changes, Counter()
        changed = [key for key, by in changes.items() if by]
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

    def count_anew(self, jobs: Iterable[Row], dead: Iterable[Row], stored: Iterable[Row]) -> None:
        """From the rows of all jobs: where there are no counts yet, or wrong ones."""
        parked = {key[5:] for key, _ in dead}
        living: list[JobRow] = []
        for key, value in jobs:
            if key[4:] not in parked:
                try:
                    living.append(decode(JobRow, key, value))
                except BadRow:
                    continue  # whoever needs it sets it aside, and counts anew then
        self.replace(living, [key for key, _ in stored])

    def replace(self, living: Iterable[JobRow], stored: Iterable[bytes]) -> None:
        """These jobs and no others count; `stored` are the keys that have a count now."""
        self._changes = Counter()
        counts = Counter(key for job in living for key in keys_of(job))
        for key in {*stored, *counts}:
            self._write(key, counts[key])


def keys_of(job: JobRow) -> Iterator[bytes]:
    """Under which a job counts: its own, and one for each job that follows it."""
    yield fn_key(job.target)
    for target in job.chained:
        yield fn_key(target)


def _count(value: bytes) -> int:
    return int(value) if value.isdigit() else 0


def fn_key(target: str) -> bytes:
    """Of a long one only the beginning and a hash."""
    whole = target.encode()
    if len(whole) > FN_BYTES:
        whole = whole[:FN_BYTES] + b"#" + hashlib.blake2b(whole, digest_size=8).hexdigest().encode()
    return b"fn/%b" % whole
