"""`python -m bench run`: the parts in turn, round after round, then those that need a large store; then the results."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import machine
from bench.figures import Book
from bench.lease import receiver_process
from bench.loops import loop_factory
from bench.parts import cluster, draining, growth, lateness, limits, over_http, queueing, restarts, scheduling
from bench.report import write
from bench.setting import Part, Setting

PARTS = (
    scheduling.PART,
    draining.DRAINING,
    draining.HANDING_OVER,
    queueing.QUEUE,
    queueing.QUEUE_HTTP,
    over_http.PART,
    lateness.PART,
    limits.PART,
    growth.PENDING,
    growth.LATE,
    restarts.STARTING,
    growth.OTHERS,
    restarts.KILLING,
    cluster.PART,
)
NAMES = tuple(part.name for part in PARTS)
RESULTS = Path(__file__).parent
ROUNDS = 5
MINUTES = 4.5
"""What rounds may take together, so that all takes less than ten."""


def chosen(names: Sequence[str]) -> list[Part]:
    """The parts of these names, all without any; what bounds them is always there."""
    if unknown := sorted(set(names) - set(NAMES)):
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return [part for part in PARTS if not names or part.name in names or part is limits.PART]


def run(
    names: Sequence[str],
    *,
    rounds: int,
    minutes: float = MINUTES,
    scale: float,
    most_pending: int,
    loop: str,
    folder: str | None,
    out: Path,
) -> list[Path]:
    """Measure, and write the results; the files that were written."""
    parts = chosen(names)
    facts = machine.facts(folder, loop)
    facts["size"] = f"{rounds} rounds, scale {scale:g}, {most_pending:,} pending at most"
    began = time.monotonic()
    book = Book()
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as made, receiver_process() as receiver:
        bench = Setting(Path(made), receiver.url, book, scale, most_pending, repeats=min(rounds, 3))

        def step(part: Part, when: str) -> None:
            print(f"{time.monotonic() - began:5.0f} s  {part.name}, {when}", flush=True)
            gc.collect()
            with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
                runner.run(part.measure(bench))

        for number in range(1, rounds + 1):
            for part in turn(parts, number):
                step(part, f"round {number} of {rounds}")
            if number < rounds and (time.monotonic() - began) * (number + 1) / number > minutes * 60:
                book.remark(
                    f"Stopped after {number} rounds of {rounds}: one more would take longer than {minutes:g} min."
                )
                break
        for part in parts:
            if part.once:
                step(part, "once")
    facts |= {"load at the end": machine.load(), "took": f"{time.monotonic() - began:,.0f} s"}
    return write(out, book, parts, {name: words for name, words in facts.items() if words})


def turn(parts: Sequence[Part], number: int) -> list[Part]:
    """A round's parts, each second round backwards: nothing always runs after the same thing."""
    each = [part for part in parts if not part.once]
    return each if number % 2 else each[::-1]
