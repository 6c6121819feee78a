"""The page of `tocsin top`: lines for a screen of any size. What is said by a colour is also said by a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from tocsin.cli.output import clock_time, span
from tocsin.cli.top_look import InstanceLine, Look
from tocsin.cli.words import printable

if TYPE_CHECKING:
    from tocsin.actors.scheduler.model.records import PoolStatus, Queue, Record, WorkerRecord

MARKS: Final = {"green": ("●", "bright_blue"), "amber": ("▲", "yellow"), "red": ("■", "bright_red"), "": ("·", "dim")}
"""By health: a mark of its own shape, and a colour that people who confuse red and green tell apart."""
LEAST_WIDTH, LEAST_HEIGHT = 64, 10
REASONS: Final = 3
BAR: Final = 20
Section = tuple[str, list[Text]]


def page(look: Look, url: str, width: int, height: int | None, *, lost: str = "", keys: bool = True) -> list[Text]:
    """Return the lines of a screen; `height` None: as many as there are. `lost`: why this is an old look."""
    width = max(width, LEAST_WIDTH)
    head = [_title(look, url, width, keys), *_head(look, width)]
    if lost:
        head.insert(1, _fitted(f" {printable(lost)}", width, "black on yellow"))
    sections = [one for one in _sections(look, width) if one[1]]
    if not sections:
        sections = [("", [_fitted(" nothing waits, nothing runs, nothing died in the last hour", width, "dim")])]
    if height is None:
        return [*head, *(line for title, lines in sections for line in (_rule(title, width), *lines))]
    room = max(height, LEAST_HEIGHT) - len(head)
    return [*head, *_shared(sections, room, width)][: max(height, 1)]


# ---- The head ------------------------------------------------------------------------------------


def _title(look: Look, url: str, width: int, keys: bool) -> Text:
    right = f"{clock_time(look.at, seconds=True)} UTC"
    right += "  tab: next  q: quit" if keys else ""
    left = f"tocsin top  {printable(url)}"
    room = max(width - cell_len(right) - 3, 1)
    return Text(f" {set_cell_size(_short(left, room), room)} {right} ", style="reverse", no_wrap=True, end="")


def _head(look: Look, width: int) -> list[Text]:
    status = look.status
    mark, colour = MARKS.get(status.health, MARKS[""])
    state = Text(" ", no_wrap=True)
    state.append(f"{mark} {status.health.upper()}", f"bold {colour}")
    state.append(f"  {_short(printable(look.name), max(width - 30, 10))}", "bold")
    if status.moved_to or status.moving_to:
        state.append("  MOVED" if status.moved_to else "  MOVING", "bold yellow")
    if status.paused:
        state.append("  PAUSED", "bold yellow")
    reasons = [f"   {printable(one.message)} (for {_ago(look, one.since)})" for one in status.reasons[:REASONS]]
    lines = [_cut(state, width), *(_fitted(reason, width) for reason in reasons)]
    if len(status.reasons) > REASONS:
        lines.append(_fitted(f"   and {len(status.reasons) - REASONS} more reasons: tocsin status", width, "dim"))
    return [*lines, *(_fitted(line, width) for line in _counts(look)), _lanes(look, width)]


def _counts(look: Look) -> list[str]:
    status, rates = look.status, look.rates
    quantiles = (("late 95%", rates.late_p95_ms), ("took 95%", rates.took_p95_ms))
    said = [f"{name} {_rate(getattr(rates, name))}" for name in ("done", "failed", "died", "accepted")]
    said += [f"{name} {span(ms)}" for name, ms in quantiles if ms is not None]
    oldest = "" if status.oldest_due_ms is None else f" (oldest {span(status.oldest_due_ms)})"
    due = f"due {status.due:,}" + ("+" if status.due >= 10_000 else "") + oldest
    held = [f"backlog {status.backlog:,}", due, f"in flight {status.in_flight:,}", f"dead {status.dead:,}"]
    return [" " + "   ".join(said), " " + "   ".join(held)]


def _lanes(look: Look, width: int) -> Text:
    lanes = look.status.lanes
    used = Text.assemble(" lanes ", _bar(lanes.in_flight, lanes.limit), f" {lanes.in_flight} of {lanes.limit}")
    return _cut(used, width)


def _rate(per_second: float) -> str:
    if 0 < per_second < 0.05:
        return "<0.1/s"
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"


def _ago(look: Look, instant: int) -> str:
    return span(max(look.at - instant, 0))


# ---- Sections ------------------------------------------------------------------------------------


def _sections(look: Look, width: int) -> list[Section]:
    several = look.instances if len(look.instances) > 1 else ()
    return [
        ("INSTANCES" + _columns("BACKLOG", "IN FLIGHT", "DEAD"), [_instance(one, look, width) for one in several]),
        ("POOLS", [_pool(one, width) for one in _pools(look)]),
        ("QUEUES" + _columns("WAITING", "DUE", "IN FLIGHT"), [_queue(one, width) for one in look.queues]),
        (_workers_title(look), [_worker(one, look, width) for one in look.workers]),
        ("LATEST DEATHS", [_death(one, look, width) for one in look.deaths]),
    ]


CELL: Final = 11


def _columns(*names: str) -> str:
    """Return the heads of columns of numbers, at the right of a line of which a title takes the left."""
    return "\0" + "".join(f"{name:>{CELL}}" for name in (*names, "OLDEST DUE"))


def _row(name: str, cells: Sequence[str], width: int, style: str = "") -> Text:
    room = max(width - CELL * len(cells) - 2, 8)
    numbers = "".join(f"{_short(cell, CELL - 1):>{CELL}}" for cell in cells)
    return _fitted(f" {set_cell_size(_short(name, room), room)} {numbers}", width, style)


def _instance(one: InstanceLine, look: Look, width: int) -> Text:
    mark, colour = MARKS.get(one.health, MARKS[""])
    late = one.status.oldest_due_ms if one.status is not None else None
    cells = [f"{one.backlog:,}", f"{one.in_flight:,}", f"{one.dead:,}", "" if late is None else span(late)]
    said = f"{mark} {printable(one.name)}" + (" (paused)" if one.paused else "")
    if one.status is not None and one.status.moved_to:
        said += " (moved)"
    return _row(said, cells, width, f"bold {colour}" if one.name == look.name else colour)


def _pools(look: Look) -> list[PoolStatus]:
    return sorted(look.status.pools, key=lambda one: (-one.queued, -one.in_flight, one.name))


def _pool(one: PoolStatus, width: int) -> Text:
    room = max(width - BAR - 32, 8)
    name = set_cell_size(_short(printable(one.name), room), room)
    held = "PAUSED" if one.paused else f"{one.in_flight} of {one.max_concurrency}"
    bar = _bar(one.in_flight, one.max_concurrency)
    return _cut(Text.assemble(f" {name} ", bar, f" {held:>12} {one.queued:>10,} wait"), width)


def _bar(used: int, limit: int) -> tuple[str, str]:
    """Return a bar: full where slots are used. It has at least one cell if one is."""
    filled = BAR if limit <= 0 and used else min(BAR, -(-used * BAR // limit)) if limit > 0 else 0
    return "█" * filled + "░" * (BAR - filled), "yellow" if used >= limit > 0 else "bright_blue"


def _queue(one: Queue, width: int) -> Text:
    late = "" if one.oldest_due_ms is None else span(one.oldest_due_ms)
    return _row(printable(one.name), [f"{one.waiting:,}", f"{one.due:,}", f"{one.in_flight:,}", late], width)


def _workers_title(look: Look) -> str:
    lost = sum(one.lost for one in look.workers)
    busy = sum(one.status == "busy" and not one.lost for one in look.workers)
    return f"WORKERS {len(look.workers)}: {busy} busy, {lost} lost"


def _worker(one: WorkerRecord, look: Look, width: int) -> Text:
    cells = ["LOST" if one.lost else one.status, f"{len(one.jobs)} of {one.concurrency}", _ago(look, one.heartbeat_at)]
    return _row(printable(one.name or one.id), cells, width, "bold yellow" if one.lost else "")


def _death(one: Record, look: Look, width: int) -> Text:
    ago = _ago(look, look.at if one.parked_at is None else one.parked_at)
    error = "" if one.last_error is None else f"  {one.last_error.message}"
    return _fitted(
        printable(f" {ago:>7} ago  {one.reason}  {one.function_path or one.workflow}  {one.id}{error}"), width
    )


# ---- Lines that fit ------------------------------------------------------------------------------


def _shared(sections: Sequence[Section], room: int, width: int) -> list[Text]:
    """Share the lines of a screen: each section gets a line more in turn, until all is shown or none is left."""
    wanted = [len(lines) for _, lines in sections]
    given = [0] * len(sections)
    left = room - len(sections)
    while left > 0 and any(given[n] < wanted[n] for n in range(len(sections))):
        for n in range(len(sections)):
            if given[n] < wanted[n] and left > 0:
                given[n] += 1
                left -= 1
    shown: list[Text] = []
    for (title, lines), count in zip(sections, given, strict=True):
        more = len(lines) - count
        shown.append(_rule(title, width, f"+{more:,} more" if more else ""))
        shown += lines[:count]
    return shown


def _rule(title: str, width: int, more: str = "") -> Text:
    name, _, columns = title.partition("\0")
    left = f" {name}" + (f"  {more}" if more else "")
    return Text(set_cell_size(left, max(width - cell_len(columns), 0)) + columns, style="dim", no_wrap=True, end="")


def _fitted(text: str, width: int, style: str = "") -> Text:
    """Return a line of just this width."""
    return Text(set_cell_size(_short(text, width), width), style=style, no_wrap=True, end="")


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis", pad=True)
    text.end = ""
    return text


def _short(text: str, width: int) -> str:
    """Cut the end of a text that is too wide."""
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)) + "…"
