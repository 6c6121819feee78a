"""Print data on stdout and messages on stderr, without control characters that could drive the terminal.
Tables fit the terminal, or 80 columns where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tocsin.cli.streams import writing
from tocsin.cli.words import lines_of, printable, write
from tocsin.dispatch.durations import span as span

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


def emit(value: Any) -> None:
    """Print one JSON value on one line of stdout."""
    import msgspec

    text = msgspec.json.encode(value).decode()
    with writing():
        write(sys.stdout, text if text.isprintable() and _encodable(text) else _spelt_out(text))


def _encodable(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _spelt_out(text: str) -> str:
    """Return the same JSON in ASCII only: control characters occur only in strings, where they can be escaped."""
    import json

    return "".join(c if " " <= c <= "~" else json.dumps(c)[1:-1] if c != "\x7f" else "\\u007f" for c in text)


def put(text: str = "") -> None:
    """Print lines of data on stdout, for people and pipes."""
    with writing():
        write(sys.stdout, lines_of(text))


def console() -> Console:
    """Return a console on the current stdout; colours only on a terminal."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, markup=False, emoji=False)


def show(what: RenderableType) -> None:
    """Print a rich renderable; off a terminal, without trailing spaces."""
    out = console()
    if out.is_terminal:
        with writing():
            out.print(what)
        return
    with out.capture() as captured:
        out.print(what)
    for line in captured.get().splitlines():
        put(line.rstrip())


def key_values(*pairs: tuple[str, object]) -> None:
    """Print an aligned list of names and values; values that are None are left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            grid.add_row(Text(name), Text("\n".join(printable(line) for line in str(value).splitlines())))
    show(grid)


BELOW: Final = 2
"""How far lines below a row are indented."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `width` in cells; 0 takes the rest of the line (last column only). `whole`: wrap long cells
    instead of shortening them. `below`: not beside the others but in lines of its own below them, whole; these columns
    are the last ones."""

    name: str
    width: int = 0
    right: bool = False
    whole: bool = False
    below: bool = False


def print_rows(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, header: bool = True) -> None:
    """Print a table with fixed columns, so that pages line up. The first column is the name: one that is too long for
    it gets a line of its own, so that it can be copied; other cells are shortened."""
    from rich.cells import cell_len
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    columns = [column for column in columns if not column.below]
    widths = [column.width for column in columns]
    if not widths[-1]:
        widths[-1] = max(10, width() - sum(widths) - len(widths) + 1)
    table = _grid(columns, widths)
    parts: list[RenderableType] = [table]
    if header:
        table.add_row(*(column.name for column in columns), style="dim")
    for row in rows:
        cells = [printable(cell) for cell in row]
        if cell_len(cells[0]) > widths[0]:
            table = _grid(columns, widths)
            parts += [Text(cells[0], overflow="fold"), table]
            cells[0] = ""
        table.add_row(
            *(
                Text(cell if column.whole else _shortened(cell, wide))
                for cell, column, wide in zip(cells, columns, widths, strict=False)
            )
        )
        if below := [cell for cell in cells[len(columns) :] if cell]:
            table = _grid(columns, widths)
            parts += [*(Padding(Text(cell, overflow="fold"), (0, 0, 0, BELOW)) for cell in below), table]
    show(Group(*parts))


def _grid(columns: Sequence[Column], widths: Sequence[int]) -> Table:
    """Make an empty table with these columns, a space between them."""
    from rich.table import Table

    table = Table.grid(padding=(0, 1, 0, 0))
    for column, wide in zip(columns, widths, strict=True):
        table.add_column(width=wide, justify="right" if column.right else "left", overflow="fold")
    return table


def _shortened(text: str, wide: int) -> str:
    """Cut the middle out of a text that is too wide: the ends of a name identify it best."""
    from rich.cells import cell_len, chop_cells, set_cell_size

    if cell_len(text) <= wide:
        return text
    head = (wide - 1) // 2
    tail = chop_cells(text[::-1], wide - 1 - head)[0][::-1]
    return set_cell_size(text, head) + "…" + tail


def width() -> int:
    """Return the columns of the terminal, or 80 without one."""
    return console().width


def wrapped(text: str, *, indent: int, rest: int) -> None:
    """Wrap a text over as many lines as needed; `rest` indents all lines but the first."""
    from rich.text import Text

    lines = Text(text).wrap(console(), max(width() - rest, 20), overflow="fold")
    for number, line in enumerate(lines):
        put(" " * (rest if number else indent) + line.plain.rstrip())


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """Format a number of bytes in the most readable unit."""
    if count < 10_000:
        return f"{count:,} bytes"
    for unit in ("kB", "MB", "GB"):
        count = (count + 500) // 1_000
        if count < 10_000:
            return f"{count:,} {unit}"
    return f"{count:,} GB"


# ---- Time ----------------------------------------------------------------------------------------

SOON_MS: Final = 100
"""Instants closer than this are shown as `now`; one second is shown as `in 1s`."""


def now_ms() -> int:
    from tocsin.actors.runtime.clock import SystemClock

    return SystemClock().now_ms()


def relative(instant: int, now: int) -> str:
    """Format an instant relative to now: `in 5m`, `now`, or `3s ago`."""
    if -1_000 < instant - now <= SOON_MS:
        return "now"
    if instant > now:
        return f"in {span(instant - now + 999)}"  # rounded up: what was asked for reads as it was asked for
    return f"{span(now - instant)} ago"


def clock_time(ms: int, *, seconds: bool = False) -> str:
    """Format hours and minutes of an instant, and seconds if they are wanted, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S" if seconds else "%H:%M")


def instant(ms: int) -> str:
    """Format an instant as ISO 8601 in UTC, to the millisecond; as a plain number beyond the calendar."""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(ms: int | None, now: int) -> str | None:
    return None if ms is None else f"{instant(ms)} ({relative(ms, now)})"
