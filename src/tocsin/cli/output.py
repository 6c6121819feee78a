"""What commands print: data on stdout, words on stderr, nothing that could drive the terminal.
Tables fit the terminal, or 80 columns where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def emit(value: Any) -> None:
    """One JSON value on one line of stdout."""
    import msgspec

    click.echo(msgspec.json.encode(value).decode())


def say(words: str) -> None:
    """Words for people, on stderr."""
    click.echo(words, err=True)


def console() -> Console:
    """A console on today's stdout; colours only on a terminal."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def show(what: RenderableType) -> None:
    """Print something rich can draw; where nobody looks, without the spaces that fill up lines."""
    out = console()
    if out.is_terminal:
        out.print(what)
        return
    with out.capture() as captured:
        out.print(what)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def printable(value: object) -> str:
    """Text safe to show: control characters, escape sequences among them, are spelt out."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def key_values(pairs: Iterable[tuple[str, object]]) -> None:
    """An aligned list of names and values; values that are None are left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            grid.add_row(Text(name), Text("\n".join(printable(line) for line in str(value).splitlines())))
    show(grid)


def width() -> int:
    """Columns of the terminal, or 80 where there is none."""
    return console().width


def wrapped(text: str, *, indent: int, rest: int) -> None:
    """Words over as many lines as they need; `rest` indents all lines but the first."""
    from rich.text import Text

    lines = Text(text).wrap(console(), max(width() - rest, 20), overflow="fold")
    for number, line in enumerate(lines):
        click.echo(" " * (rest if number else indent) + line.plain.rstrip())


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Bytes in the unit that reads best."""
    if count < 10_000:
        return f"{count:,} bytes"
    for unit in ("kB", "MB", "GB"):
        count = (count + 500) // 1_000
        if count < 10_000:
            return f"{count:,} {unit}"
    return f"{count:,} GB"


# ---- Time ----------------------------------------------------------------------------------------


def now_ms() -> int:
    from tocsin.actors.clock import SystemClock

    return SystemClock().now_ms()


def span(ms: int) -> str:
    """A duration in at most two units: `0s`, `850ms`, `4m 10s`, `3d 2h`."""
    if 0 < ms < 1_000:
        return f"{ms}ms"
    seconds = ms // 1_000
    for unit, size, next_unit, next_size in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // next_size
            return f"{seconds // size}{unit}" + (f" {rest}{next_unit}" if rest else "")
    return f"{seconds}s"


def relative(instant: int, now: int) -> str:
    """`in 5m`, `now`, or `3s ago`."""
    if abs(instant - now) < 1_000:
        return "now"
    if instant > now:
        return f"in {span(instant - now + 999)}"  # rounded up: what was asked for reads as it was asked for
    return f"{span(now - instant)} ago"


def instant(ms: int) -> str:
    """ISO 8601 in UTC, to the millisecond; the plain number beyond the calendar."""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(ms: int | None, now: int) -> str | None:
    return None if ms is None else f"{instant(ms)} ({relative(ms, now)})"


# ---- Records -------------------------------------------------------------------------------------


def target(record: Mapping[str, Any]) -> str:
    return printable(record.get("functionPath") or record.get("workflow") or "")


def print_jobs(records: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    """A page of live jobs as a table with fixed columns, so that pages line up."""
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
    _print_rows(("ID", "STATE", "NEXT", "TRIES", "POOL", "PATH"), (26, 7, 11, 5, 8), rows, header=header)


def print_dead(records: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    """A page of dead jobs; the words of the last error come from `dead show`."""
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
    _print_rows(("ID", "PARKED", "TRIES", "REASON", "PATH"), (26, 11, 5, 12), rows, header=header)


def _print_rows(names: Sequence[str], widths: Sequence[int], rows: Iterable[Sequence[str]], *, header: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=header, header_style="dim", pad_edge=False, padding=(0, 1, 0, 0))
    for name, width in zip(names, (*widths, None), strict=True):
        if width is None:
            width = max(10, console().width - sum(widths) - len(widths))
        table.add_column(name, width=width, overflow="fold" if name == "ID" else "ellipsis", no_wrap=name != "ID")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    show(table)


def print_record(record: Mapping[str, Any]) -> None:
    """All of one job, one member a line."""
    import msgspec

    now = now_ms()
    error, lease = record.get("lastError") or {}, record.get("lease") or {}
    key_values(
        [
            ("id", record["id"]),
            ("path", record.get("functionPath")),
            ("workflow", record.get("workflow")),
            ("state", record["state"]),
            ("due", when(record["scheduledFor"], now)),
            ("next attempt", when(record.get("nextAttemptAt"), now) if record["state"] != "dead" else None),
            ("dispatched", record.get("attempt")),
            ("charged tries", record.get("attempts")),
            ("losses", record.get("losses") or None),
            ("pool", record.get("pool") or None),
            ("priority", record.get("priority") or None),
            ("labels", ", ".join(record.get("labels") or ()) or None),
            ("shard key", record.get("shardKey")),
            ("retry", _compact(record.get("retry"))),
            ("timeout", span(record["timeoutMs"]) if record.get("timeoutMs") else None),
            ("enqueued", when(record.get("enqueuedAt"), now)),
            ("expires", when(record.get("expiresAt"), now)),
            ("lease until", when(lease.get("until"), now)),
            ("parked", when(record.get("parkedAt"), now)),
            ("reason", record.get("reason")),
            ("last error", _error(error, now)),
            ("last answer", record.get("lastResponse") or None),
            ("args", msgspec.json.encode(record.get("args")).decode()),
        ]
    )


def _compact(value: Mapping[str, Any] | None) -> str | None:
    return ", ".join(f"{name} {each}" for name, each in value.items()) if value else None


def _error(error: Mapping[str, Any], now: int) -> str | None:
    if not error:
        return None
    status = f"status {error['status']}, " if error.get("status") else ""
    return f"{status}{error.get('message', '')}" + (f" ({relative(error['at'], now)})" if "at" in error else "")
