"""Accepted work that cannot be read any more: which rows under `bad/` were a job or a schedule.

What was set aside stays until people delete it, so the rows themselves are the count that survives a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from tocsin.actors.scheduler.model.row_kinds import BAD
from tocsin.storage.api import StoreView, after

NO_JOB: Final = b"no job"
"""The value of a line row under `bad/` whose job was not there: the row is all that is left of it."""
COUNTED: Final = 1_000
PAGE_BYTES: Final = 1024 * 1024
FAMILIES: Final = tuple(BAD + family + b"/" for family in (b"job", b"later", b"line", b"cron"))


@dataclass(frozen=True, slots=True)
class Lost:
    """How many were accepted and will not run; `more`: counting stopped there."""

    jobs: int = 0
    schedules: int = 0
    more: bool = False

    def __bool__(self) -> bool:
        return bool(self.jobs or self.schedules)

    def __str__(self) -> str:
        counts = ((self.jobs, "job"), (self.schedules, "schedule"))
        said = " and ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counts if count)
        return f"{said} or more" if self.more else said


def lost_work(key: bytes, value: bytes) -> tuple[str, str] | None:
    """Tell what a row under `bad/` was: `job` or `schedule`, and its id or name; None if neither is lost with it."""
    family, _, rest = key.removeprefix(BAD).partition(b"/")
    if family == b"line" and value == NO_JOB:
        family, rest = b"job", rest.rpartition(b"/")[2]
    kind = {b"job": "job", b"later": "job", b"cron": "schedule"}.get(family)
    return None if kind is None else (kind, rest.decode("utf-8", "backslashreplace"))


async def lost(view: StoreView) -> Lost:
    """Count, up to a bound, what was set aside: one hop if there is nothing."""
    first = await view.scan_many([(family, after(family), 1) for family in FAMILIES])
    found: set[tuple[str, str]] = set()
    for family, rows in zip(FAMILIES, first, strict=True):
        start, page = family, rows
        while page and len(found) < COUNTED:
            page = await view.scan(start, after(family), limit=COUNTED, max_bytes=PAGE_BYTES)
            works = filter(None, (lost_work(key, value) for key, value in page))
            found.update(islice((work for work in works if work not in found), COUNTED - len(found)))
            start = page[-1][0] + b"\x00" if page else start
    jobs = sum(kind == "job" for kind, _ in found)
    return Lost(jobs, len(found) - jobs, more=len(found) >= COUNTED)
