"""Records of backfills for callers: plain values, camelCase in JSON. Instants are epoch ms."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.model.records import Value


class Backfill(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Slots of a schedule's past that are run at a pace, from `start` on and before `end`.

    `matched` slots were to run when it was asked for, `left_out` were not: they ran already, are held back or dead, or
    it is not known any more. `slots`: the first of those matched, in the answer to the call only. `state`: `running`,
    `waiting` (for an earlier one, `waits_for`), `done`, or `stopped` (by itself: `error`); `dry run` for none at all.
    """

    backfill_id: str = ""
    name: str
    start: int
    end: int
    rate_per_second: int
    matched: int
    started: int
    state: str
    left_out: int | None = None
    slots: Sequence[int] = ()
    reached: int | None = None
    """All slots up to this instant are decided."""
    waits_for: str | None = None
    error: str | None = None
