"""What `python -m bench compare` leaves: `COMPARISON.md`, `COMPARISON.json` and a plot of lateness."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.contenders import OURS, Contender
from bench.figures import Book, Summary, shown

RATES = {
    "one": "submits/s, 1 producer",
    "many": "submits/s, 32 producers",
    "bulk": "submits/s in bulk of 1,000",
    "drain": "callbacks/s, 64 at once, from the worker's begin",
    "queue": "queue jobs/s, 64 workers",
}
COSTS = {"drain/cpu": "the worker", "drain/cpu/server": "the worker and its server"}
LATE = {"late/p50": "late p50, ms", "late/p99": "late p99, ms"}
EARLY = {"late/early": "of 300, early by more than 1 ms"}
KILLED = {"killed/lost": "lost after SIGKILL", "killed/doubled": "came twice after SIGKILL"}
TABLES: tuple[tuple[str, Mapping[str, str], Mapping[str, str]], ...] = (
    ("Rates", RATES, {}),
    ("CPU microseconds per callback", COSTS, {}),
    ("Lateness at 100 jobs a second", LATE, EARLY),
    ("Killed", {}, KILLED),
)
"""Title, figures that are compared, counts that are not."""
PHASES = tuple(phase for _, compared, counted in TABLES for phase in (*compared, *counted))
TEXT = (
    "# Beside other schedulers and queues",
    "",
    "Written by `python -m bench compare`: the same durable one-shot job, a POST of 200 bytes to a bare receiver in",
    "another process, 64 at once. Peers post with a bare client, tocsin with its own and a signature. Medians of",
    "interleaved rounds, the least and the most beside them. Each phase: [docs/benchmarks.md](../docs/benchmarks.md).",
)


def write(folder: Path, book: Book, contenders: Sequence[Contender], facts: Mapping[str, str]) -> list[Path]:
    """Write both files; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    page, figures = folder / "COMPARISON.md", folder / "COMPARISON.json"
    page.write_text(as_markdown(book, contenders, facts))
    figures.write_text(json.dumps(as_json(book, contenders, facts), indent=2) + "\n")
    return [page, figures]


def as_markdown(book: Book, contenders: Sequence[Contender], facts: Mapping[str, str]) -> str:
    found = [one for one in contenders if any(_of(book, one, phase) for phase in PHASES)]
    lines = [*TEXT, "", "| | |", "|---|---|", *(f"| {name} | {words} |" for name, words in facts.items())]
    for title, compared, counted in TABLES:
        phases = {**compared, **counted}
        lines += ["", f"## {title}", "", f"| | {' | '.join(phases.values())} |", "|" + "---|" * (len(phases) + 1)]
        for one in found:
            cells = [_cell(_of(book, one, phase), counted=phase in counted) for phase in phases]
            lines.append(f"| {one.name} | {' | '.join(cells)} |")
        if compared:
            ratios = [_ratio(book, found, phase, most=compared is RATES) for phase in compared]
            lines.append(f"| *tocsin to the best of the others* | {' | '.join([*ratios, *('' for _ in counted)])} |")
    notes = [f"{one.name}: {one.note}." for one in found if one.note]
    return "\n".join([*lines, *(line for words in (*notes, *book.remarks) for line in ("", words))]) + "\n"


def _of(book: Book, contender: Contender, phase: str) -> Summary | None:
    return book.summary(f"{contender.module}/{phase}")


def _cell(found: Summary | None, *, counted: bool) -> str:
    if found is None:
        return "–"
    return f"{found.median:.0f}" if counted else f"{shown(found.median)} ({shown(found.low)} – {shown(found.high)})"


def _ratio(book: Book, found: Sequence[Contender], phase: str, *, most: bool) -> str:
    """Tocsin to the best of the others: above 1 is better for rates, below 1 for times. Who is early is not best."""
    ours = _of(book, OURS, phase)
    others = [one.median for peer in found if peer is not OURS and (one := _of(book, peer, phase)) is not None]
    best = (max if most else min)([one for one in others if one > 0], default=0.0)
    return f"{ours.median / best:.2f} ×" if ours is not None and best else "–"


def as_json(book: Book, contenders: Sequence[Contender], facts: Mapping[str, str]) -> dict[str, object]:
    peers: dict[str, object] = {}
    for one in contenders:
        samples = {
            phase: [sample.value for sample in book.samples[f"{one.module}/{phase}"]]
            for phase in PHASES
            if _of(book, one, phase) is not None
        }
        peers[one.name] = {"note": one.note, "samples": samples}
    return {"machine": dict(facts), "peers": peers, "remarks": book.remarks}
