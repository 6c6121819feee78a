"""Samples of one run, and what becomes of them: medians with their spread, beside what they must reach."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One line of the results: a figure, what it must reach, and what bounds it, measured in the same run."""

    name: str
    title: str
    unit: str = "/s"
    least: float | None = None
    """What it must reach at least."""
    most: float | None = None
    """What it may reach at most."""
    limits: tuple[str, ...] = ()
    """The names of the figures that bound it."""

    def reached(self, figure: float) -> bool | None:
        """Whether the figure is as good as it must be; None if nothing is asked of it."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or figure >= self.least) and (self.most is None or figure <= self.most)


@dataclass(frozen=True)
class Sample:
    """One measurement: the figure, and CPU microseconds per job by kind of thread where they are known."""

    value: float
    cpu_us: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """The median of the samples of one name, and from where to where they went."""

    median: float
    low: float
    high: float
    samples: int
    cpu_us: Mapping[str, float]


class Book:
    """All samples of a run by name, and the curves that are drawn."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = defaultdict(list)
        self.curves: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(dict)
        """By plot, then by line: points."""
        self.late: dict[str, list[float]] = defaultdict(list)
        """By line of the plot of lateness: every callback's, ms."""
        self.remarks: list[str] = []

    def note(self, name: str, value: float, cpu_us: Mapping[str, float] | None = None) -> None:
        """Keep a sample, and print it: whoever waits for the end sees how far things are."""
        self.samples[name].append(Sample(value, cpu_us or {}))
        cpu = f"   {in_words(cpu_us)}" if cpu_us else ""
        print(f"  {name:<44} {shown(value):>12}{cpu}", flush=True)

    def remark(self, words: str) -> None:
        """Keep something that readers of the results must know."""
        self.remarks.append(words)
        print(f"  {words}", flush=True)

    def summary(self, name: str) -> Summary | None:
        found = self.samples.get(name)
        if not found:
            return None
        values = [one.value for one in found]
        kinds = [kind for kind in found[0].cpu_us if all(kind in one.cpu_us for one in found)]
        cpu = {kind: statistics.median(one.cpu_us[kind] for one in found) for kind in kinds}
        return Summary(statistics.median(values), min(values), max(values), len(values), cpu)


def shown(figure: float) -> str:
    """A figure with as many digits as it deserves."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if abs(figure) >= 10 else f"{figure:.2f}"


def in_words(cpu_us: Mapping[str, float]) -> str:
    """`87 µs (loop 60, store 27)`."""
    parts = ", ".join(f"{kind} {shown(us)}" for kind, us in cpu_us.items() if kind != "all")
    return f"{shown(cpu_us['all'])} µs" + (f" ({parts})" if parts else "")
