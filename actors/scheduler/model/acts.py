"""Rows that are kept of a bulk action for as long as it can be undone."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.actors.scheduler.model.rows import AtRow, DeadRow, JobRow, PoolRow, Row

UNDO: Final = "undo"
"""The kind of the timers that forget an action, or go on with an undo that nobody drives."""
UNDO_MS: Final = 10 * 60_000
"""For how long an action can be undone, from the last thing that it changed."""
KEPT_MOST: Final = 100_000
KEPT_BYTES: Final = 256 * 1024 * 1024
"""An action that changes more than this cannot be undone."""


class ActRow(Row, frozen=True, array_like=True, tag=1):
    """`act/<id>`: an action that can be undone, or an undo that goes on."""

    action: str
    rings_at: int
    """The instant of its timer: what is kept is forgotten then, or the undo goes on. 0: it is being undone, and has
    none."""
    kept: int = 0
    size: int = 0
    """The number of rows that are kept in `trash/`, and their length."""
    full: bool = False
    """True if it changed more than can be kept: nothing is kept any more."""
    undone_by: str = ""
    undoes: str = ""
    """Of an undo that goes on: what it undoes."""
    done: int = 0
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    """Of an undo: what could not be put back, by reason. Of an action: what nobody can put back."""


class TrashRow(Row, frozen=True, array_like=True, tag=1):
    """`trash/<action>/<id>`: what one action did to one job or pool, so that it can be undone. `what` says what that
    was; the rest of the args of a job is in `trashargs/`."""

    what: str
    incarnation: str = ""
    job: JobRow | None = None
    at: AtRow | None = None
    dead: DeadRow | None = None
    pool: tuple[PoolRow | None, PoolRow | None] | None = None
    """As it was before the action, and after it."""
    slot: bytes | None = None
    """Of an occurrence: the row of its slot, as it was before the action."""


def act_key(action_id: str) -> bytes:
    return b"act/%b" % action_id.encode()


def trash_prefix(action_id: str) -> bytes:
    return b"trash/%b/" % action_id.encode()


def trash_key(action_id: str, about: str) -> bytes:
    return b"trash/%b/%b" % (action_id.encode(), about.encode())


def trash_args_key(action_id: str, job_id: str, n: int) -> bytes:
    return b"trashargs/%b/%b/%02d" % (action_id.encode(), job_id.encode(), n)


def trash_args_prefix(action_id: str) -> bytes:
    return b"trashargs/%b/" % action_id.encode()
