"""The rows of schedules: what was defined, how far it has come, and what became of each slot."""

from __future__ import annotations

import hashlib
from operator import attrgetter
from typing import Any, Final

from tocsin.actors.scheduler.model.asked_by import Pause
from tocsin.actors.scheduler.model.backfill_rows import Backfilling, Range, RuleKey
from tocsin.actors.scheduler.model.crockford import crockford
from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.rows import JobRow, Row
from tocsin.dispatch.retry import Retry

TIMER: Final = "cron"
"""The kind of the timer that rings a schedule; its instant is `CursorRow.rings_at`."""
FORGET: Final = "cronforget"
"""The kind of the timer that drops a deleted schedule's history; its instant is `CursorRow.forget_at`."""

RECHECK: Final = "cronrecheck"
"""The kind of the timer of a pass over all schedules; its key is the last name that was looked at."""


class DefinitionRow(Row, frozen=True, array_like=True, tag=1):
    """`cron/<name>`: rewritten by edits only."""

    uid: str
    """Of the creating turn: a schedule that is made again under the same name is another one."""
    created_at: int
    anchor: int
    """The instant that `every_ms` counts from."""
    cron: str | None = None
    every_ms: int | None = None
    at: int | None = None
    timezone: str = "UTC"
    args: bytes = b"{}"
    args_rows: int = 0
    function_path: str | None = None
    workflow: str | None = None
    pool: str = ""
    max_concurrency: int | None = None
    priority: int = 0
    labels: tuple[str, ...] = ()
    shard_key: str | None = None
    retry: Retry | None = None
    timeout_ms: int | None = None
    expires_after_ms: int | None = None
    misfire: str = "one"
    grace_ms: int = 60_000
    catch_up_limit: int | None = 100
    overlap: str = "skip"
    jitter_ms: int = 0
    owner: str | None = None
    initiator: tuple[str, str] = ("", "")
    """Who defined it last: the name of their token and the user, each "" if there is none."""
    queue: str = ""
    then: bytes = b""
    """Jobs chained to each occurrence (`followers`); ids are given with the occurrence."""
    extras: JobExtras | None = None  # what few schedules have: options of each occurrence
    on_dead: bytes = b""
    """Jobs that start when an occurrence dies; written and named in the same way."""


_INHERITED: Final = tuple({*DefinitionRow.__struct_fields__} & {*JobRow.__struct_fields__} - {"args", "args_rows"})
_inherited: Final = attrgetter(*_INHERITED)


def inherited(row: DefinitionRow) -> dict[str, Any]:
    """Return what an occurrence has of its schedule: the members of a job's row that a definition also has, but
    args."""
    return dict(zip(_INHERITED, _inherited(row), strict=True))


def rule_key(row: DefinitionRow) -> RuleKey:
    """Return what the slots of this definition follow from."""
    return row.cron, row.every_ms, row.at, row.timezone, row.anchor if row.every_ms is not None else 0


Piece = tuple[int, int, int | None]
"""Slots that follow one another: the first, the last, and how many; None: not counted."""


class CursorRow(Row, frozen=True, array_like=True, tag=1):
    """`cronat/<name>`: how far it has come. Changes in the commit of the occurrence it speaks of."""

    revision: int
    last: int
    """All slots up to this instant are accounted for; the next one is later."""
    next_slot: int | None = None
    rings_at: int | None = None
    """Its timer; None while paused, completed or deleted."""
    paused: bool = False
    live: int = 0
    """Occurrences whose jobs wait, run or retry."""
    queued: int | None = None
    """A slot held back until no occurrence is live: by `overlap: queue`, or because it stands for others."""
    missed_from: int | None = None
    """Of earlier versions: the first of the slots that were missed and were still being counted, ..."""
    missed: int | None = 0
    """... and how many up to `last`; None: not counted, there were too many."""
    kept: int = 0
    """Slot rows there are."""
    error: str | None = None
    forget_at: int | None = None
    """Set once it is deleted: when its history goes."""
    orphaned: bool = False
    """Its owner's last registration did not name it, and kept it."""
    skip_to: int | None = None
    """Set at a resume: slots up to this instant passed while the schedule was paused."""
    aim: tuple[int, int] | None = None
    """Of earlier versions: of a long backlog the newest slots were looked for, backwards."""
    fire_to: int | None = None
    """Slots up to this one are the newest of a backlog: each fires."""
    run: tuple[int, int, str] | None = None
    """The newest row is a run that goes on: its first slot, how many, and why they are skipped."""
    used_to: int | None = None
    """The clock was ahead: slots up to this instant may have their rows already."""
    starts_from: int | None = None
    """No later slot of it starts before this instant: an earlier one was spread, and starts until then."""
    stands: tuple[Piece, ...] | None = None
    """The slot held back is a catch-up (`misfire: one`): the earlier slots it stands for, to which those are added that
    come while it waits. None: `overlap: queue` holds it, and nothing is added."""
    pause: Pause | None = None
    backfill: Backfilling | None = None
    forgotten: Range | None = None
    """Slots from the first up to the second may have had rows that were dropped for their age."""


class SlotRow(Row, frozen=True, array_like=True, tag=1):
    """`slot/<name>/<15-digit ms>`: what became of one slot, or of a run of them. Unique for ever.

    A run does not stand for slots inside it that have a row of their own. There are some only where a clock was ahead,
    and where a schedule of another rule was deleted and made again as one for a single instant of the past.
    """

    state: str
    """`fired`, `skipped`, `coalesced`, `expired`, `cancelled`, `dead`, `queued` (held back by an overlap)."""
    at: int
    """When that was decided."""
    due: int
    """The slot and its jitter."""
    job_id: str | None = None
    reason: str | None = None
    """For `skipped`: misfire, overlap, paused, catch_up, id_taken, quota, edited, deleted."""
    until: int | None = None
    """For a run of slots: the last of them; where a clock was ahead, the instant that it was set back to."""
    count: int | None = 1
    """How many slots this row stands for; None: not counted, there were too many."""
    first_slot: int | None = None
    """The earliest of the slots that this one stands for, and ..."""
    coalesced: int | None = 0
    """... how many they are, besides itself; None: not counted."""
    request: str | None = None
    """For one that was triggered: the hash of its request key."""
    backfill: str | None = None
    """The backfill that started it."""


class TriggerRow(Row, frozen=True, array_like=True, tag=1):
    """`trigger/<name>/<hash>`: the occurrence that a request key made."""

    slot: int
    job_id: str


# ---- Keys ----------------------------------------------------------------------------------------


def definition_key(name: str) -> bytes:
    return b"cron/%b" % name.encode()


def definition_args_key(name: str, n: int) -> bytes:
    return b"cronargs/%b/%02d" % (name.encode(), n)


def cursor_key(name: str) -> bytes:
    return b"cronat/%b" % name.encode()


def slot_prefix(name: str) -> bytes:
    return b"slot/%b/" % name.encode()


def slot_key(name: str, slot: int, request: str | None = None) -> bytes:
    """Return the key of a slot; a triggered occurrence stands beside the slot of the same instant."""
    return b"slot/%b/%015d%b" % (name.encode(), slot, b"" if request is None else b"+" + request.encode())


def trigger_key(name: str, request: str) -> bytes:
    return b"trigger/%b/%b" % (name.encode(), request.encode())


def split_slot_key(key: bytes) -> int:
    """Return the slot."""
    return int(key.rsplit(b"/", 1)[1][:15])


# ---- Ids -----------------------------------------------------------------------------------------


def occurrence_id(name: str, slot: int) -> str:
    """Derive the id from both, so that nothing makes two jobs of one slot. Jobs of one instant lie together."""
    return f"cron-{slot:015d}-{_hash(name)}"


def triggered_id(name: str, request: str) -> str:
    return f"run-{request}-{_hash(name)}"


def request_hash(request_key: str) -> str:
    return _hash(request_key, 15)


def jitter_of(name: str, jitter_ms: int) -> int:
    """Return the offset of a name, the same at every slot and after every restart: 0 <= offset < jitter_ms."""
    if not jitter_ms:
        return 0
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") % jitter_ms


def _hash(text: str, size: int = 10) -> str:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=size).digest()
    return crockford(int.from_bytes(digest, "big"), size * 8)
