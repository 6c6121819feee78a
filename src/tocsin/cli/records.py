"""Print jobs: lists of live and dead ones, and one in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tocsin.cli.job_options import shown
from tocsin.cli.output import Column, instant, key_values, now_ms, print_rows, relative, span, when
from tocsin.cli.words import printable

JOBS: Final = (
    Column("ID", 26),
    Column("STATE", 7),
    Column("NEXT", 11),
    Column("TRIES", 5, right=True),
    Column("POOL", 8),
    Column("PATH"),
)
DEAD: Final = (
    Column("ID", 26),
    Column("PARKED", 11),
    Column("TRIES", 5, right=True),
    Column("REASON", 12),
    Column("PATH"),
)

DAMAGED: Final = "damaged in the store: `tocsin check` says more"


def target(record: Mapping[str, Any]) -> str:
    return printable(record.get("functionPath") or record.get("workflow") or "")


def print_jobs(records: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    """Print a page of live jobs as a table with fixed columns, so that pages line up."""
    now = now_ms()
    rows = [
        (
            printable(record["id"]),
            record["state"],
            relative(record.get("nextAttemptAt", record["scheduledFor"]), now),
            str(record.get("attempts", 0)),
            printable(record.get("pool") or ""),
            target(record),
        )
        for record in records
    ]
    print_rows(JOBS, rows, header=header)


def print_dead(records: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    """Print a page of dead jobs; `dead show` has the last error."""
    now = now_ms()
    rows = [
        (
            printable(record["id"]),
            relative(record.get("parkedAt", now), now),
            str(record.get("attempts", 0)),
            printable(record.get("reason") or ""),
            target(record),
        )
        for record in records
    ]
    print_rows(DEAD, rows, header=header)


def print_record(record: Mapping[str, Any]) -> None:
    """Print one job, one member a line."""
    import msgspec

    now = now_ms()
    error, lease = record.get("lastError") or {}, record.get("lease") or {}
    put_off = record.get("putOff") or {}
    key_values(
        ("id", record["id"]),
        ("path", record.get("functionPath")),
        ("workflow", record.get("workflow")),
        ("state", record["state"]),
        ("due", when(record["scheduledFor"], now)),
        ("next attempt", when(record.get("nextAttemptAt"), now) if record["state"] != "dead" else None),
        ("dispatched", record.get("attempt")),
        ("charged tries", record.get("attempts")),
        ("losses", record.get("losses") or None),
        ("schedule", _schedule(record.get("schedule"))),
        ("follows", record.get("parent")),
        ("put off until", when(put_off.get("until"), now)),
        ("newer call due", when(put_off.get("nextDue"), now)),
        *shown(record),
        ("enqueued", when(record.get("enqueuedAt"), now)),
        ("expires", when(record.get("expiresAt"), now)),
        ("lease until", when(lease.get("until"), now)),
        ("worker", lease.get("worker")),
        ("keeps result", span(record["keepResultMs"]) if record.get("keepResultMs") else None),
        ("then", "\n".join(then_lines(record.get("then") or ())) or None),
        ("on dead", "\n".join(then_lines(record.get("onDead") or ())) or None),
        ("group", record.get("group")),
        ("parked", when(record.get("parkedAt"), now)),
        ("reason", record.get("reason")),
        ("last error", _error(error, now)),
        ("error data", msgspec.json.encode(error["data"]).decode() if error.get("data") is not None else None),
        ("last answer", record.get("lastResponse") or None),
        ("args", DAMAGED if record.get("argsDamaged") else msgspec.json.encode(record.get("args")).decode()),
    )


def then_lines(then: Sequence[Mapping[str, Any]], depth: int = 0) -> Iterator[str]:
    """Return the chained jobs, one a line, nested ones indented below."""
    for one in then:
        queue = f" (queue {one['queue']})" if one.get("queue") else ""
        delay = f", {span(one['delayMs'])} later" if one.get("delayMs") else ""
        name = f" {one['id']}" if one.get("id") else ""
        yield f"{'  ' * depth}{target(one)}{queue}{delay}{name}"
        yield from then_lines(one.get("then") or (), depth + 1)
        for line in then_lines(one.get("onDead") or (), depth + 1):
            yield f"{line} (if it dies)"


def _schedule(slot: Mapping[str, Any] | None) -> str | None:
    if slot is None:
        return None
    more = (
        f", and {slot.get('coalesced', 'many')} more since {instant(slot['firstSlot'])}" if "firstSlot" in slot else ""
    )
    return f"{slot['name']}, {'triggered' if slot.get('triggered') else 'slot'} {instant(slot['slot'])}{more}"


def _error(error: Mapping[str, Any], now: int) -> str | None:
    if not error:
        return None
    status = f"status {error['status']}, " if error.get("status") else ""
    code = f"{error['code']}: " if error.get("code") else ""
    return f"{status}{code}{error.get('message', '')}" + (f" ({relative(error['at'], now)})" if "at" in error else "")
