"""The names of lines. A job waits in a line of its pool; the name of that line tells everything else of it.

    name  = level base shard
    level = "~" once for each level of suspects (`suspects`)
    base  = the queue of pulled work, "" for callbacks to the host's origin, "@" and a name for those to another origin
    shard = "#" and a hash of the shard key, where jobs with different shard keys have turns

No name of a user's queue or origin holds one of these signs. The name of a job's line follows from the rows of the job
alone, so whoever takes the job out of its line finds it, whatever has been set since.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from tocsin.actors.scheduler.model.crockford import crockford
from tocsin.actors.scheduler.model.rows import AtRow, JobRow
from tocsin.actors.scheduler.model.suspects import level_of

MARK: Final = "~"
ORIGIN: Final = "@"
SHARD: Final = "#"
DIGEST: Final = 10
"""Bytes of the hash of a shard key."""


def line_of(job: JobRow, at: AtRow) -> str:
    """Return the name of the line in which the job waits."""
    if job.extras is None and not (at.losses or at.apart or at.in_turn):
        return job.queue  # as of most
    line = base_of(job)
    if at.losses or at.apart:
        line = marked(line, level_of(at))
    return f"{line}{SHARD}{shard_of(job.shard_key or '')}" if at.in_turn else line


def base_of(job: JobRow) -> str:
    """Return the base of the names of its lines: its queue, or its origin."""
    extras = job.extras
    return job.queue if extras is None or not extras.origin else ORIGIN + extras.origin


@lru_cache(4096)
def shard_of(key: str) -> str:
    """Return what stands for a shard key, which may be any text, in the name of a line."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=DIGEST).digest()
    return crockford(int.from_bytes(digest, "big"), DIGEST * 8)


def marked(base: str, level: int) -> str:
    """Return the name of the line of a base and a level."""
    return MARK * level + base


def level_in(line: str) -> int:
    """Return the level that the name of a line tells."""
    return len(line) - len(line.lstrip(MARK))


def whole(line: str) -> str:
    """Return the name without the shard: of the line that its jobs would be in if they had no turns."""
    return line.partition(SHARD)[0]


def shard_in(line: str) -> str:
    """Return what stands for the shard key; "" in a line for all shard keys."""
    return line.partition(SHARD)[2]


def base_in(line: str) -> str:
    """Return the name without level and shard."""
    return whole(line).lstrip(MARK)


def queue_in(line: str) -> str:
    """Return the queue whose jobs stand in the line: "" for callbacks."""
    base = base_in(line)
    return "" if base.startswith(ORIGIN) else base


def origin_in(line: str) -> str:
    """Return the name of the origin to which the callbacks of this line go: "" for the host's own, and for pulled
    work."""
    base = base_in(line)
    return base[1:] if base.startswith(ORIGIN) else ""


def place_in(line: str, due: int) -> AtRow:
    """Derive what a place in a line tells of a job whose own row of it is lost."""
    level = level_in(line)
    return AtRow(due, losses=level + 1 if level else 0, apart=level, in_turn=SHARD in line)
