"""Whole hosts under many seeds. `--seeds N` says how many; a failing one is reproduced by its number."""

from __future__ import annotations

import functools

import pytest

from tests.simulation.acts import UNDO_MS
from tests.simulation.world import run
from tocsin.actors.scheduler.actor import pull
from tocsin.actors.scheduler.client import bulk
from tocsin.actors.scheduler.model import suspects
from tocsin.actors.scheduler.schedules import allowance
from tocsin.actors.scheduler.transitions import acts, undo
from tocsin.actors.testing import simulate


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", range(first, first + count))


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backlogs take many turns, so that everything comes in between."""
    monkeypatch.setattr(allowance, "STEPS", 60)
    monkeypatch.setattr(allowance, "LEAST_STEPS", 5)
    monkeypatch.setattr(pull, "JOBS_PER_TURN", 2)
    monkeypatch.setattr(pull, "ROUNDS", 2)
    monkeypatch.setattr(undo, "PAGE", 3)
    monkeypatch.setattr(acts, "PAGE", 3)
    monkeypatch.setattr(bulk, "PAGE", 3)
    monkeypatch.setattr(acts, "UNDO_MS", UNDO_MS)
    monkeypatch.setattr(undo, "UNDO_MS", UNDO_MS)
    monkeypatch.setattr(suspects, "LOSSES_TOGETHER", 1)  # few jobs lose more hosts and workers than two or three


def test_promises_hold_in_a_storm(seed: int) -> None:
    simulate(seed, functools.partial(run, storm=True))


def test_promises_hold_in_good_weather(seed: int) -> None:
    simulate(seed, functools.partial(run, storm=False))


def test_a_run_is_a_function_of_its_seed() -> None:
    storm = functools.partial(run, storm=True)

    assert simulate(7, storm) == simulate(7, storm)
    assert simulate(7, storm) != simulate(8, storm)
