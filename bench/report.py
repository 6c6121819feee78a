"""What a run leaves: `RESULTS.md` for people, `RESULTS.json` for programs, and plots beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.figures import Book, Row, Summary, in_words, shown
from bench.plot import line_plot
from bench.setting import Part

PLOTS = {
    "backlog": ("throughput.svg", "Throughput against backlog", "jobs pending", "jobs a second", True),
    "lateness": ("lateness.svg", "Lateness at 100 jobs a second", "percentile", "ms after the due instant", False),
}


def write(folder: Path, book: Book, parts: Sequence[Part], facts: Mapping[str, str]) -> list[Path]:
    """Write all files; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = []
    for name, (file, title, x_title, y_title, log) in PLOTS.items():
        if any(book.curves[name].values()):
            plots.append(folder / file)
            plots[-1].write_text(line_plot(title, x_title, y_title, book.curves[name], log_x=log))
    page, figures = folder / "RESULTS.md", folder / "RESULTS.json"
    page.write_text(as_markdown(book, parts, facts, [path.name for path in plots]))
    figures.write_text(json.dumps(as_json(book, parts, facts), indent=2) + "\n")
    return [page, figures, *plots]


# ---- For people ----------------------------------------------------------------------------------


def as_markdown(book: Book, parts: Sequence[Part], facts: Mapping[str, str], plots: Sequence[str]) -> str:
    """The page: how it was measured, one table a part, the plots."""
    lines = [
        "# Results",
        "",
        "Written by `python -m bench`: medians of interleaved repeats, the least and the most beside them. The limits",
        "were measured in the same rounds. CPU is microseconds per job, by kind of thread. Compare ratios within a run",
        "and not figures between machines. What each row measures: [docs/benchmarks.md](../docs/benchmarks.md).",
        "",
        *_table(("", ""), [(name, words) for name, words in facts.items()]),
    ]
    for part in parts:
        rows = [_line(row, summary, book) for row in part.rows if (summary := book.summary(row.name)) is not None]
        if rows:
            head = ("", "median", "from – to", "repeats", "asked", "reached", "of its limit", "CPU µs per job")
            lines += ["", f"## {part.title}", "", *_table(head, rows)]
    lines += [line for remark in book.remarks for line in ("", remark)]
    lines += [line for name in plots for line in ("", f"![{name.removesuffix('.svg')}]({name})")]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def _line(row: Row, found: Summary, book: Book) -> tuple[str, ...]:
    asked = "" if row.least is None else f"≥ {row.least:,g}"
    asked = asked if row.most is None else f"≤ {row.most:,g}"
    reached = {True: "yes", False: "**no**", None: ""}[row.reached(found.median)]
    spread = f"{shown(found.low)} – {shown(found.high)}"
    cpu = in_words(found.cpu_us) if found.cpu_us else ""
    return (
        row.title, f"{shown(found.median)} {row.unit}", spread, str(found.samples), asked, reached,
        "; ".join(_beside(row, found, book)), cpu,
    )  # fmt: skip


def _beside(row: Row, found: Summary, book: Book) -> list[str]:
    """Each limit and the share of it that was reached; for what should be small, how often the limit fits in."""
    said = []
    for name in row.limits:
        if (limit := book.summary(name)) is None or not limit.median:
            continue
        ratio = found.median / limit.median
        share = f"{ratio * 100:.0f} %" if row.unit == "/s" else f"{ratio:.1f} ×"
        said.append(f"{share} of {name} ({shown(limit.median)})")
    return said


# ---- For programs --------------------------------------------------------------------------------


def as_json(book: Book, parts: Sequence[Part], facts: Mapping[str, str]) -> dict[str, object]:
    """The same figures, and each sample."""
    figures = {}
    for part in parts:
        for row in part.rows:
            if (found := book.summary(row.name)) is not None:
                figures[row.name] = {
                    "part": part.name, "title": row.title, "unit": row.unit, "median": found.median,
                    "low": found.low, "high": found.high, "samples": [one.value for one in book.samples[row.name]],
                    "cpu_us": dict(found.cpu_us), "least": row.least, "most": row.most,
                    "reached": row.reached(found.median), "limits": list(row.limits),
                }  # fmt: skip
    shown_elsewhere = {
        name: [one.value for one in found] for name, found in book.samples.items() if name not in figures
    }
    return {
        "machine": dict(facts),
        "figures": figures,
        "more": shown_elsewhere,
        "curves": book.curves,
        "remarks": book.remarks,
    }
