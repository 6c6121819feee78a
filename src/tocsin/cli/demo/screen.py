"""Show the demo while it runs: a live picture on a terminal, one line a second elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tocsin.cli.demo.plan import POOL, POOL_CAP
from tocsin.cli.words import say

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tocsin.cli.demo.receiver import Delivery

RECENT: Final = 9
"""Number of callbacks shown; fewer on a short terminal."""
OTHER_ROWS: Final = 15
"""Lines that the picture takes besides them."""
REFRESH_PER_SECOND: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The demo at one moment. `waiting`, `in_flight` and `dead` are the server's, the rest the receiver's."""

    elapsed_ms: int
    total: int
    waiting: int
    in_flight: int
    pool_in_flight: int
    pool_queued: int
    delivered: int
    retried: int
    dead: int
    slots: int
    """Slots of the schedule delivered so far."""
    pulled: int
    """Jobs done by the worker."""
    recent: Sequence[Delivery]

    @property
    def settled(self) -> bool:
        """Return whether no job waits or runs."""
        return self.waiting == 0 and self.in_flight == 0

    @property
    def done(self) -> int:
        return self.delivered + self.pulled + self.dead


class Screen(Protocol):
    """A place to show pictures."""

    def show(self, picture: Picture) -> None: ...


class PlainScreen:
    """One line on stderr a second, and one at the end."""

    def __init__(self) -> None:
        self._shown_ms = -1_000
        self._over = False

    def show(self, picture: Picture) -> None:
        over = picture.done >= picture.total
        if self._over or (picture.elapsed_ms - self._shown_ms < 1_000 and not over):
            return
        self._over = over
        self._shown_ms = picture.elapsed_ms
        say(
            f"{picture.elapsed_ms / 1000:5.1f} s  waiting {picture.waiting:2}  in flight {picture.in_flight:2}  "
            f"delivered {picture.delivered:2}  pulled {picture.pulled}  dead {picture.dead}  of {picture.total}  "
            f"retried {picture.retried}  slots {picture.slots}"
        )


class LiveScreen:
    """A picture redrawn in place."""

    def __init__(self, console: Console, title: str, lines: Sequence[str]) -> None:
        from rich.live import Live

        self._title, self._lines = title, lines
        self._recent = max(3, min(RECENT, console.height - OTHER_ROWS))
        self.live = Live(console=console, refresh_per_second=REFRESH_PER_SECOND, transient=False)

    def show(self, picture: Picture) -> None:
        self.live.update(_draw(self._title, self._lines, picture, self._recent))


@contextmanager
def screen(console: Console, title: str, lines: Sequence[str]) -> Iterator[Screen]:
    """Yield the right screen for a console, until the block ends."""
    if not console.is_terminal:
        for line in (title, *lines):
            say(line)
        yield PlainScreen()
        return
    shown = LiveScreen(console, title, lines)
    with shown.live:
        yield shown


# ---- Drawing -------------------------------------------------------------------------------------


def _draw(title: str, lines: Sequence[str], picture: Picture, rows: int) -> RenderableType:
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    blank = Text()
    where = Text("\n".join(lines), style="dim")
    return Panel(
        Group(where, blank, _counts(picture), blank, _progress(picture), blank, _recent(picture.recent[-rows:], rows)),
        title=Text(f" {title} ", style="bold"),
        title_align="left",
        border_style="cyan",
        padding=(1, 2),
    )


def _counts(picture: Picture) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    cells = [
        ("waiting", picture.waiting, "yellow", ""),
        ("in flight", picture.in_flight, "cyan", ""),
        ("delivered", picture.delivered, "green", ""),
        ("pulled", picture.pulled, "green", ""),
        ("retried", picture.retried, "magenta", ""),
        ("dead", picture.dead, "red", ""),
        ("slots", picture.slots, "green", ""),
        (f"pool {POOL}", picture.pool_in_flight, "blue", f" of {POOL_CAP}, {picture.pool_queued} queued"),
    ]
    grid = Table.grid(expand=True)
    for _ in cells:
        grid.add_column()
    grid.add_row(*(Text(name, style="dim") for name, *_ in cells))
    grid.add_row(
        *(
            Text.assemble((str(value), f"bold {colour}" if value else "dim"), (more, "dim"))
            for _, value, colour, more in cells
        )
    )
    return grid


def _progress(picture: Picture) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True, width=22)
    grid.add_row(
        ProgressBar(total=picture.total, completed=picture.done, complete_style="green", finished_style="green"),
        Text(f"{picture.done}/{picture.total} settled  {picture.elapsed_ms / 1000:4.1f} s", style="dim"),
    )
    return grid


def _recent(recent: Sequence[Delivery], rows: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, expand=True, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("latest callbacks", ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column("try", justify="right", width=3)
    table.add_column("answer", justify="right", width=6)
    table.add_column("lateness", width=18, no_wrap=True)
    for each in recent:
        table.add_row(
            Text.assemble(each.path, (f"  {each.note}", "dim")),
            str(each.attempt),
            Text(str(each.status), style="green" if each.ok else "red"),
            _lateness(each),
        )
    for _ in range(rows - len(recent)):
        table.add_row("")
    return table


def _lateness(each: Delivery) -> RenderableType:
    from rich.text import Text

    if each.attempt > 1:
        return Text("after backoff", style="dim")
    if each.pool:
        return Text(f"{each.late_ms} ms, its turn", style="dim")
    return Text(f"{each.late_ms} ms")
