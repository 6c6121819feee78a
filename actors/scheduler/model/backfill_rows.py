"""The rows of backfills: slots of the past that are to run, and how far their schedule has come with them."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.actors.scheduler.model.row import Row

BACKFILL: Final = "cronbackfill"
"""The kind of the timer at which a schedule goes on with its backfills; its instant is `Backfilling.rings_at`."""
AT_ONCE: Final = 20
"""Backfills of one schedule that go on or wait for each other."""

RuleKey = tuple[str | None, int | None, int | None, str, int]
"""The members that the slots of a schedule follow from: `cron`, `every_ms` or `at`, `timezone` and `anchor`."""
Range = tuple[int, int]
"""Slots from the first instant up to the second one, both included."""


class BackfillRow(Row, frozen=True, array_like=True, tag=1):
    """`backfill/<schedule>/<id>`: slots of the past that run at a pace. It stays as long as the history of its
    schedule, and says of slots whose own rows are dropped for their age that they were decided."""

    first: int
    """Slots from this instant on, up to ..."""
    last: int
    """... this one, included."""
    rate: int
    """So many a second."""
    matched: int
    """How many were to run when it was asked for."""
    cursor: int
    """All slots up to this instant are decided."""
    rule: RuleKey
    """Of the schedule when it was asked for."""
    started: int = 0
    state: str = "running"
    """`running`, `done` or `stopped`."""
    error: str | None = None
    """Why it stopped, if nobody stopped it."""
    not_before: int = 0
    """The instant before which no further slot starts."""


class Backfilling(msgspec.Struct, frozen=True, array_like=True):
    """The part of the cursor of a schedule that is there while slots of its past run."""

    ids: tuple[str, ...] = ()
    """Backfills that have not ended, in their order; the first of them goes on."""
    rings_at: int | None = None
    """Its timer; None while it waits for live occurrences to end."""
    live_slot: int | None = None
    """The slot that it has started last, while that lives and the schedule allows one occurrence at a time."""


def backfill_prefix(name: str) -> bytes:
    """Return the prefix of all backfills of a schedule, in the order in which they were asked for."""
    return b"backfill/%b/" % name.encode()


def backfill_key(name: str, backfill_id: str) -> bytes:
    """Return the key of one of them."""
    return backfill_prefix(name) + backfill_id.encode()
