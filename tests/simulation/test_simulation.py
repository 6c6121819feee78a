"""Whole hosts under many seeds. `--seeds N` says how many; a failing one is reproduced by its number."""

from __future__ import annotations

import functools

import pytest

from tests.simulation.world import run
from tocsin.actors.testing import simulate


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", range(first, first + count))


def test_promises_hold_in_a_storm(seed: int) -> None:
    simulate(seed, functools.partial(run, storm=True))


def test_promises_hold_in_good_weather(seed: int) -> None:
    simulate(seed, functools.partial(run, storm=False))


def test_a_run_is_a_function_of_its_seed() -> None:
    storm = functools.partial(run, storm=True)

    assert simulate(7, storm) == simulate(7, storm)
    assert simulate(7, storm) != simulate(8, storm)
