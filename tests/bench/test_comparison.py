"""The comparison with other schedulers: tocsin's own phases for real, at a tiny size, and the page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import compare, contenders
from bench.__main__ import main
from bench.comparison import PHASES, as_markdown
from bench.contenders import CONTENDERS, OURS
from bench.figures import Book
from bench.peers.callbacks.posting import SIZE, body
from bench.receiver import JOB

HUEY = next(one for one in CONTENDERS if one.module == "huey_sqlite")
JOBS = 40


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A python that has no peer."""
    monkeypatch.setattr(contenders, "ENVIRONMENT", tmp_path / "none")
    without = tmp_path / "python"
    without.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without.chmod(0o755)
    return str(without)


def test_all_phases_run_and_a_peer_that_is_not_installed_is_told(nothing_installed: str, tmp_path: Path) -> None:
    words = [
        "--jobs",
        str(JOBS),
        "--rounds",
        "1",
        "--patience",
        "0.1",
        "--pending",
        "50",
        "--python",
        nothing_installed,
    ]
    ran = CliRunner().invoke(main, ["compare", "Huey", *words, "--out", str(tmp_path)])

    assert ran.exit_code == 0, f"{ran.output}\n{ran.exception!r}"
    told: Any = json.loads((tmp_path / "COMPARISON.json").read_text())
    ours = told["peers"][OURS.name]["samples"]
    assert set(ours) == set(PHASES)
    assert ours["killed/lost"][0] < JOBS
    assert told["peers"][HUEY.name]["samples"] == {}
    assert told["machine"]["size"] == "1 rounds of 40 jobs beside 50 pending; after SIGKILL 0.1 s of patience"
    [remark] = told["remarks"]
    assert remark.startswith("Huey, SQLite: not measured: No module named 'huey': pip install huey")
    assert "not measured: No module named 'huey'" in (tmp_path / "COMPARISON.md").read_text()


def test_every_peer_has_its_module_and_says_what_to_install() -> None:
    folder = Path(compare.__file__).parent / "peers"

    assert all((folder / "callbacks" / f"{one.module}.py").exists() for one in CONTENDERS)
    assert all((folder / f"{one.queue}.py").exists() for one in CONTENDERS if one.queue)
    assert all(one.packages or one.npm for one in CONTENDERS if one is not OURS)


def test_the_page_compares_with_the_best_of_the_others() -> None:
    book = Book()
    measured = (
        ("tocsin_sqlite", 6_000.0, 2.0, 0.0),
        ("huey_sqlite", 1_500.0, 500.0, 15.0),
        ("arq_redis", 500.0, 1_000.0, 0.0),
    )
    for module, rate, late, lost in measured:
        book.note(f"{module}/drain", rate)
        book.note(f"{module}/late/p50", late)
        book.note(f"{module}/killed/lost", lost)

    page = as_markdown(book, CONTENDERS, {})

    assert "| tocsin, SQLite | – | – | – | 6,000 (6,000 – 6,000) | – |" in page
    assert "| *tocsin to the best of the others* | – | – | – | 4.00 × | – |" in page
    assert "| *tocsin to the best of the others* | 0.00 × | – |  |" in page
    assert "| Huey, SQLite | 15 | – |" in page
    assert "SAQ" not in page.partition("## Rates")[2]


def test_a_peer_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    with pytest.raises(SystemExit, match="no such peer: rq; there are tocsin, SQLite, Huey, SQLite,"):
        compare.chosen(["rq"])


def test_tocsin_is_always_compared() -> None:
    assert compare.chosen(["huey"]) == [OURS, HUEY]


def test_the_job_of_all_peers_is_as_long_and_tells_the_receiver_its_id_and_instant() -> None:
    said = body("job12", 1_790_000_000_000)

    assert len(said) == SIZE
    assert JOB.search(said)
    assert json.loads(said)["id"] == "job12"
