"""The benchmark as a product: all parts at a tiny size, and what they leave. Figures are not judged."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import suite
from bench.__main__ import main
from bench.figures import Book, Row
from bench.parts import cluster, draining, limits
from bench.report import as_json, as_markdown
from bench.setting import Part, Setting

LONG = {"killed/lost", "killed/doubled"} | {
    row.name for row in cluster.ROWS if row.name.startswith("cluster/gap/") or row.name[-2:] in ("/2", "/4")
}
"""Rows that need more seconds than a test has: leases must end before anything can come twice."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    ran = CliRunner().invoke(main, ["run", "--rounds", "1", "--scale", "0.004", "--pending", "600", "--out", str(out)])
    assert ran.exit_code == 0, f"{ran.output}\n{ran.exception!r}"
    return out


@pytest.fixture(scope="module")
def figures(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "RESULTS.json").read_text())
    return found


def test_every_row_of_every_part_is_measured(figures: dict[str, Any]) -> None:
    rows = [row.name for part in suite.PARTS for row in part.rows]

    assert set(rows) - LONG <= set(figures["figures"])
    assert len(rows) == len(set(rows)), "two rows of one name"
    assert all(one["median"] >= 0 for one in figures["figures"].values())


def test_every_limit_is_a_row_measured_in_the_same_run(figures: dict[str, Any]) -> None:
    named = {limit for part in suite.PARTS for row in part.rows for limit in row.limits}

    assert named <= set(figures["figures"])


def test_cpu_is_told_by_kind_of_thread(figures: dict[str, Any]) -> None:
    cpu = figures["figures"]["schedule/32/minted"]["cpu_us"]

    assert cpu["loop"] > 0
    assert cpu["store"] > 0
    assert cpu["all"] == pytest.approx(cpu["loop"] + cpu["store"])


def test_the_machine_versions_date_and_commit_are_told(figures: dict[str, Any]) -> None:
    told = figures["machine"]

    assert {"date", "commit", "Python", "SQLite", "event loop", "tocsin", "size", "took"} <= set(told)
    assert told["size"] == "1 rounds, scale 0.004, 600 pending at most"


def test_the_page_has_a_table_for_each_part_and_shows_the_plots(results: Path) -> None:
    page = (results / "RESULTS.md").read_text()

    assert all(f"## {part.title}\n" in page for part in suite.PARTS)
    assert "![throughput](throughput.svg)" in page
    assert "![lateness](lateness.svg)" in page


@pytest.mark.parametrize("plot", ["throughput.svg", "lateness.svg"])
def test_plots_are_drawn(results: Path, plot: str) -> None:
    drawn = ElementTree.fromstring((results / plot).read_text())
    lines = drawn.findall("{*}polyline")

    assert len(lines) >= 2
    assert all(len(line.attrib["points"].split()) >= 2 for line in lines)


def test_without_a_command_everything_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, dict[str, Any]]] = []

    def run(parts: Any, **options: Any) -> list[Path]:
        asked.append((parts, options))
        return [Path("RESULTS.md")]

    monkeypatch.setattr(suite, "run", run)
    ran = CliRunner().invoke(main, [])

    assert ran.exit_code == 0, ran.output
    [(parts, options)] = asked
    assert suite.chosen(parts) == list(suite.PARTS)
    assert (options["rounds"], options["scale"], options["most_pending"]) == (suite.ROUNDS, 1.0, 1_000_000)
    assert options["out"] == Path(suite.__file__).parent


def test_a_part_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    with pytest.raises(SystemExit, match=r"no such part: draining; there are schedules, drain,"):
        suite.chosen(["draining"])


def test_a_part_brings_its_limits() -> None:
    assert suite.chosen(["drain"]) == [draining.DRAINING, limits.PART]


def test_each_second_round_is_run_backwards() -> None:
    parts = suite.chosen(["drain", "handover", "start"])

    assert [part.name for part in suite.turn(parts, 1)] == ["drain", "handover", "limits"]
    assert [part.name for part in suite.turn(parts, 2)] == ["limits", "handover", "drain"]


def test_no_further_round_begins_when_it_would_take_too_long(tmp_path: Path) -> None:
    words = ["--rounds", "4", "--minutes", "0.0001", "--scale", "0.004"]
    ran = CliRunner().invoke(main, ["run", "limits", *words, "--out", str(tmp_path)])

    told: Any = json.loads((tmp_path / "RESULTS.json").read_text())
    assert ran.exit_code == 0, ran.output
    assert told["remarks"] == ["Stopped after 1 rounds of 4: one more would take longer than 0.0001 min."]
    assert len(told["figures"]["commit/1"]["samples"]) == 1
    assert not list(tmp_path.glob("*.svg")), "a plot of what was not measured"


async def nothing(bench: Setting) -> None: ...


def test_a_figure_is_the_median_beside_its_limit_and_says_whether_it_reaches_what_is_asked() -> None:
    book = Book()
    for value in (900.0, 1_200.0, 1_000.0):
        book.note("rate", value, {"loop": value / 100, "all": value / 100})
    book.note("bound", 4_000.0)
    book.note("late", 9.5)
    rows = (
        Row("rate", "a rate", least=1_000, limits=("bound",)),
        Row("bound", "its limit"),
        Row("late", "a lateness", "ms", most=8),
        Row("unmeasured", "nobody measured it"),
    )
    part = Part("one", "One", rows, nothing)

    page = as_markdown(book, [part], {"date": "today"}, [])
    told: Any = as_json(book, [part], {"date": "today"})

    expected = (
        "| a rate | 1,000 /s | 900 – 1,200 | 3 | ≥ 1,000 | yes | 25 % of bound (4,000) | 10.0 µs (loop 10.0) |",
        "| its limit | 4,000 /s | 4,000 – 4,000 | 1 |  |  |  |  |",
        "| a lateness | 9.50 ms | 9.50 – 9.50 | 1 | ≤ 8 | **no** |  |  |",
    )
    assert all(line in page for line in expected), page
    assert "nobody measured it" not in page
    assert told["figures"]["rate"]["samples"] == [900.0, 1_200.0, 1_000.0]
    assert told["figures"]["late"]["reached"] is False
    assert "unmeasured" not in told["figures"]
