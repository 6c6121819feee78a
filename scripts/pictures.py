"""Draw the pictures of docs/concepts.md and docs/states.md: `python -m scripts.pictures`."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from tocsin.actors.scheduler.transitions.states import EVENTS

FOLDER: Final = Path(__file__).parents[1] / "docs" / "pictures"
STYLE: Final = """\
<style>
  .panel { fill: #f6f8fa; } .box { fill: #ffffff; stroke: #57606a; } .soft { fill: #eaeef2; stroke: #8c959f; }
  .good { fill: #dafbe1; stroke: #1a7f37; } .bad { fill: #ffebe9; stroke: #cf222e; }
  .held { fill: #ddf4ff; stroke: #0969da; } .line { stroke: #57606a; fill: none; stroke-width: 1.5; }
  .tip { fill: #57606a; } text { fill: #1f2328; font: 14px system-ui, sans-serif; }
  .small { font-size: 12px; fill: #57606a; } .name { font-weight: 600; } .code { font-family: ui-monospace, monospace; }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #161b22; } .box { fill: #0d1117; stroke: #8b949e; } .soft { fill: #21262d; stroke: #6e7681; }
    .good { fill: #12261e; stroke: #3fb950; } .bad { fill: #25171c; stroke: #f85149; }
    .held { fill: #121d2f; stroke: #58a6ff; } .line { stroke: #8b949e; } .tip { fill: #8b949e; }
    text { fill: #e6edf3; } .small { fill: #9da7b3; }
  }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
  <path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>
"""
"""A panel of its own behind each picture: readable on any page; the colours follow the reader's system."""


class Picture:
    """An SVG that is drawn piece by piece."""

    def __init__(self, width: int, height: int, said: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(said)}">\n{STYLE}<rect class="panel" width="{width}" height="{height}" rx="8"/>'
        ]

    def box(self, x: float, y: float, width: float, height: float, kind: str = "box") -> None:
        self._parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6" stroke-width="1.5"/>'
        )

    def text(self, x: float, y: float, said: str, kind: str = "", anchor: str = "start") -> None:
        self._parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(said)}</text>')

    def named(self, x: float, y: float, width: float, height: float, name: str, *more: str, kind: str = "box") -> None:
        """Draw a box with a name in it and smaller lines below."""
        self.box(x, y, width, height, kind)
        top = y + height / 2 + 5 - 8 * len(more)
        self.text(x + width / 2, top, name, "name", "middle")
        for n, line in enumerate(more, 1):
            self.text(x + width / 2, top + 17 * n, line, "small", "middle")

    def arrow(self, path: str, *, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<path class="line" d="{path}" marker-end="url(#tip)"{dash}/>')

    def line(self, path: str, *, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="3 4"' if dashed else ""
        self._parts.append(f'<path class="line" d="{path}"{dash}/>')

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def calls() -> str:
    """Draw who calls whom."""
    one = Picture(860, 430, "Who calls whom: your app, the host, the store")
    one.box(20, 20, 300, 390, "soft")
    one.text(36, 46, "your app", "name")
    one.named(40, 66, 260, 80, "routes, scripts", "anything that schedules")
    one.named(40, 176, 260, 80, "receiver", "verifies, dedups, runs your handler")
    one.named(40, 306, 260, 80, "worker", "claims and runs jobs of queues")
    one.box(560, 20, 280, 270, "soft")
    one.text(576, 46, "host, in your app or alone", "name")
    one.named(580, 66, 240, 120, "scheduler “tenant-a”", "an actor: one event at a time", "memory of what is due")
    one.named(580, 204, 206, 66, "scheduler “tenant-b”", "waits for no other")
    one.named(560, 330, 280, 80, "one SQLite file", "jobs, leases, schedules, dead jobs")
    one.arrow("M300,92 H576")
    one.text(312, 84, "1  run_after(“5m”, “mail:send”, …)", "small code")
    one.arrow("M806,186 V326")
    one.text(798, 314, "2  commit", "small", "end")
    one.arrow("M580,122 H304")
    one.text(330, 140, "3  the id: the job is on disk", "small")
    one.arrow("M580,172 C540,190 420,200 304,206")
    one.text(330, 178, "4  when due: signed POST", "small")
    one.arrow("M300,232 C440,232 500,206 576,180")
    one.text(330, 250, "5  2xx: done, anything else: again", "small")
    one.arrow("M300,330 C470,330 520,290 600,274")
    one.text(330, 308, "or: claim, under a lease", "small")
    one.arrow("M300,366 C500,366 560,320 640,274")
    one.text(330, 388, "complete, with a result", "small")
    return one.svg()


def lease() -> str:
    """Draw a lease in time: answered, not answered in time, and with a host that dies."""
    one = Picture(860, 430, "A lease in time, in three cases")
    due, claim, deadline, end = 90, 130, 530, 630
    marks = (
        (claim, "claim on disk", "middle"),
        (deadline, "deadline: 60 s", "end"),
        (end, "lease ends: 75 s", "start"),
    )
    for x, said, anchor in marks:
        one.line(f"M{x},44 V400", dashed=True)
        one.text(x, 34, said, "small", anchor)
    one.text(due - 70, 34, "due", "small")
    rows = ((60, "answered in time"), (180, "no answer"), (300, "the host is killed"))
    for y, said in rows:
        one.text(20, y + 12, said, "name")
        one.line(f"M20,{y + 74} H840")
    one.box(claim, 84, 190, 40, "held")
    one.text(claim + 10, 108, "callback under way", "small")
    one.named(320, 84, 120, 40, "200: done", kind="good")
    one.text(452, 108, "settled; the lease is over", "small")
    one.box(claim, 204, deadline - claim, 40, "held")
    one.text(claim + 10, 228, "callback under way: it may run, nobody knows how it ends", "small")
    one.box(deadline, 204, end - deadline, 40, "soft")
    one.text(deadline + 8, 228, "still held", "small")
    one.named(end + 10, 204, 190, 40, "again, charged", kind="held")
    one.box(claim, 324, 150, 40, "held")
    one.text(claim + 10, 348, "callback under way", "small")
    one.box(claim + 150, 324, end - claim - 150, 40, "bad")
    one.text(claim + 162, 348, "no host; the lease on disk still holds the job", "small")
    one.named(end + 10, 324, 190, 40, "again, not charged", kind="held")
    one.text(
        20,
        418,
        "Within a lease no second attempt starts. While a live host waits for an answer, it renews the lease.",
        "small",
    )
    return one.svg()


def processes() -> str:
    """Draw several processes on one store, before and after the one that holds it is killed."""
    one = Picture(860, 330, "Four web workers on one file: one holds the store, and another takes over when it dies")
    for x, said, holder in ((20, "as long as all live", 0), (450, "after SIGKILL of the holder, within 2 s", 1)):
        one.text(x, 36, said, "name")
        for n in range(4):
            left = x + 98 * n
            if n < holder:
                one.named(left, 60, 88, 70, f"worker {n + 1}", "killed", kind="bad")
            elif n == holder:
                one.named(left, 60, 88, 70, f"worker {n + 1}", "holds", kind="good")
                one.arrow(f"M{left + 44},130 V226")
            else:
                one.named(left, 60, 88, 70, f"worker {n + 1}", "follows")
                own, held = left + 44, x + 98 * holder + 66
                one.arrow(f"M{own},130 C{own},{160 + 12 * n} {held + 14},190 {held},134")
        one.named(x, 230, 382, 56, "jobs.db", "one writer at a time, and a lock that says who")
    one.text(
        20, 312, "Followers reach the holder over a Unix socket beside the file. The code is the same in each.", "small"
    )
    return one.svg()


GROUPS: Final = {
    "pending": "pending", "waiting": "waiting", "running": "started", "accepted": "started", "unknown": "started",
    "pulled": "started", "dead": "dead", "gone": "gone",
}  # fmt: skip
"""The states of the table, as the picture joins them."""
ARROWS: Final[dict[tuple[str, str], tuple[str, float, float, str]]] = {
    ("pending", "waiting"): ("M180,112 H296", 238, 104, "due"),
    ("waiting", "pending"): ("M300,148 H184", 238, 166, "moved"),
    ("waiting", "started"): ("M440,112 H556", 498, 104, "claimed"),
    ("started", "waiting"): ("M560,148 H444", 498, 166, "lease ended"),
    ("started", "pending"): ("M660,66 C640,16 140,16 120,66", 390, 22, "failed, declined, busy: retried later"),
    ("started", "dead"): ("M720,216 V296", 728, 250, "no retry left,"),
    ("dead", "waiting"): ("M680,296 C660,250 560,240 436,194", 476, 198, "retried"),
    ("started", "gone"): ("M600,216 C580,262 500,300 444,326", 0, 0, ""),
    ("pending", "gone"): ("M110,190 C110,300 200,345 296,346", 126, 250, "cancelled, expired"),
    ("waiting", "gone"): ("M350,190 V312", 358, 276, "cancelled, expired"),
    ("dead", "gone"): ("M620,352 H444", 532, 370, "removed, too old"),
}
"""Where each arrow runs between two groups, and what is said of it."""


def states() -> str:
    """Draw the states of a job; the arrows are those of the table of events."""
    one = Picture(860, 400, "The states of a job and what moves it from one to another")
    for arrow, x, y, said in (ARROWS[move] for move in sorted(moves())):
        one.arrow(arrow)
        one.text(x, y, said, "small", "middle" if y in {104, 166, 22, 370} else "start")
    one.text(486, 338, "done, cancelled", "small")
    one.text(728, 267, "refused, five losses", "small")
    one.named(40, 70, 140, 120, "pending", "due later")
    one.named(300, 70, 140, 120, "waiting", "due: needs a lane,", "a pool slot, a worker")
    one.box(560, 66, 280, 150, "held")
    one.text(700, 92, "running, under a lease", "name", "middle")
    for n, (name, said) in enumerate((
        ("running", "a callback is under way"), ("accepted", "the receiver completes it later"),
        ("unknown", "no answer; it may still run"), ("pulled", "a worker has it"),
    )):  # fmt: skip
        one.text(574, 118 + 24 * n, name, "code")
        one.text(650, 118 + 24 * n, said, "small")
    one.named(620, 300, 220, 80, "dead", "kept for people, for 30 days", kind="bad")
    one.named(300, 316, 140, 64, "gone", "its id is free", kind="good")
    return one.svg()


def moves() -> set[tuple[str, str]]:
    """Return the moves between groups that the table of events has."""
    found = {(GROUPS[source], GROUPS[target]) for moves in EVENTS.values() for source, target in moves.items()}
    return {(source, target) for source, target in found if source != target}


def pictures() -> Iterator[tuple[Path, str]]:
    """Walk the pictures and where they lie."""
    for draw in (calls, lease, processes, states):
        yield FOLDER / f"{draw.__name__}.svg", draw()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pictures():
        path.write_text(text, "utf-8")
