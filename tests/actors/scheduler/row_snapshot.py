"""All rows of a small scheduler, decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from tocsin.actors.scheduler.model.row_kinds import read_row
from tocsin.actors.scheduler.model.rows import AtRow, DeadRow, JobRow, LeaseRow, Row, decode, encode
from tocsin.storage.api import StoreView


@dataclass(slots=True)
class Snapshot:
    """What is where, by id."""

    jobs: dict[str, JobRow] = field(default_factory=dict)
    at: dict[str, AtRow] = field(default_factory=dict)
    dead: dict[str, DeadRow] = field(default_factory=dict)
    leases: list[tuple[str, str, LeaseRow]] = field(default_factory=list)
    waiting: dict[str, tuple[str, str, int, int]] = field(default_factory=dict)
    """By id: pool, queue, priority, due."""


async def snapshot(view: StoreView) -> Snapshot:
    """A store so small that one page holds it."""
    taken = Snapshot()
    for key, value in await view.scan(b"\x01", b"\xff", limit=5_000):
        shape = read_row(key, value)
        if shape is None:
            continue
        if isinstance(shape.row, JobRow):
            taken.jobs[shape.names[0]] = shape.row
        elif isinstance(shape.row, AtRow):
            taken.at[shape.names[0]] = shape.row
        elif isinstance(shape.row, DeadRow):
            taken.dead[shape.names[0]] = shape.row
        elif isinstance(shape.row, LeaseRow):
            taken.leases.append((shape.names[0], shape.names[1], shape.row))
        elif shape.family == b"line":
            pool, queue, priority, due, job_id = shape.names
            taken.waiting[job_id] = (pool, queue, 9 - int(priority), int(due))
    return taken


def edited(kind: type[Row], **changes: object) -> Callable[[bytes], bytes]:
    """Return a function that changes members of an encoded row."""
    return lambda value: encode(msgspec.structs.replace(decode(kind, b"", value), **changes))
