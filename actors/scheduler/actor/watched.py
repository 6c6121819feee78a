"""Tell watchers which jobs a turn changed: that is read off the rows that it wrote, at its end."""

from __future__ import annotations

from typing import Final

from tocsin.actors.runtime.overlay import Layer
from tocsin.actors.scheduler.inflight.inflight import Inflight
from tocsin.actors.scheduler.model.rows import BadRow, HistRow, decode
from tocsin.actors.scheduler.state.turn import Turn

PLACES: Final = frozenset({b"job", b"at", b"lease", b"dead"})
"""Families of rows that say how a job stands. Each time that changes, one of these is written or deleted."""


def note_changes(turn: Turn, inflight: Inflight) -> None:
    """Tell the feed, once the turn is durable, which jobs it changed. To be called when it has written everything."""
    feed = inflight.feed
    if feed is None:
        return
    if feed.is_over:
        inflight.feed = None
        return
    touched = touched_by(turn.state.storage.layer)
    if touched:
        turn.ctx.if_lost(feed.doubt, touched)
        turn.ctx.after_commit(feed.changed, touched)


def touched_by(layer: Layer) -> dict[str, str | None]:
    """Return the jobs whose rows a turn wrote, and of those that it erased, how they ended."""
    touched: dict[str, str | None] = {}
    ends: dict[str, str] = {}
    for key, value in layer.puts.items():
        family, _, rest = key.partition(b"/")
        if family in PLACES:
            touched[rest.partition(b"/")[0].decode()] = None
        elif family == b"hist":
            ends[rest.split(b"/")[1].decode()] = _outcome(key, value)
    for key in layer.deletes:
        family, _, rest = key.partition(b"/")
        if family in PLACES:
            touched.setdefault(rest.partition(b"/")[0].decode())
    for key in layer.deletes:
        if key.startswith(b"job/"):
            job_id = key[4:].decode()
            removed = b"dead/" + key[4:] in layer.deletes
            # Of a running job that is cancelled, the history tells when its attempt has ended.
            touched[job_id] = "removed" if removed else ends.get(job_id, "cancelled")
    return touched


def _outcome(key: bytes, value: bytes) -> str:
    try:
        return decode(HistRow, key, value).outcome
    except BadRow:
        return "cancelled"
