"""Occurrences as marks: a shape for each way in which a slot ends, told apart without colours too, and words that say
the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.words import amount, exact, span
from tocsin.actors.scheduler.model.schedule_records import Occurrence

MEANINGS: Final[Mapping[str, str]] = {
    "fired": "became a job, which is done",
    "live": "its job waits, runs or retries",
    "queued": "waits for a live one to end",
    "coalesced": "the run of a newer slot stands for it",
    "skipped": "did not run",
    "expired": "was not started in time",
    "cancelled": "its job was cancelled",
    "dead": "its job is dead",
}
"""The meaning of each mark, in the order of the legend."""
SKIPPED: Final[Mapping[str, str]] = {
    "misfire": "it was late",
    "catch_up": "older than what is caught up",
    "overlap": "the one before was still live",
    "paused": "the schedule was paused",
    "edited": "the schedule was edited",
    "deleted": "the schedule was deleted",
    "id_taken": "another job had its id",
    "quota": "the instance was full",
}
"""Why a slot was skipped, in words."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One slot, or a run of `count` slots that ended alike. `words` say all that the shape does, and more."""

    kind: str
    slot: int
    words: str
    job: str | None = None
    count: int = 1


def mark_of(one: Occurrence) -> Mark:
    """Return the mark of an occurrence."""
    kind = "live" if one.live and one.state == "fired" else one.state
    return Mark(kind, one.slot, f"{_what(one, kind)} {_when(one)}{_late(one)}", one.job_id, one.count or 1)


def _what(one: Occurrence, kind: str) -> str:
    said = kind
    if one.reason is not None:
        said += f" ({SKIPPED.get(one.reason, one.reason)})"
    if one.triggered:
        said += ", triggered by hand"
    if one.coalesced:
        said += f", standing for {amount(one.coalesced, 'earlier slot')}"
    if one.until is not None:
        said = (f"{one.count:,} slots " if one.count else "slots ") + said
    return said + ":"


def _when(one: Occurrence) -> str:
    return exact(one.slot) if one.until is None else f"{exact(one.slot)} to {exact(one.until)}"


def _late(one: Occurrence) -> str:
    return f", {span(one.lateness_ms)} late" if one.lateness_ms >= 1_000 else ""


def marks_of(occurrences: Sequence[Occurrence]) -> Sequence[Mark]:
    """Return the marks of a page of occurrences, the oldest first, as time is read."""
    return [mark_of(one) for one in reversed(occurrences)]


def legend(marks: Sequence[Mark]) -> Sequence[tuple[str, str]]:
    """Return kind and meaning of the marks that are there."""
    there = {mark.kind for mark in marks}
    return [(kind, words) for kind, words in MEANINGS.items() if kind in there]
