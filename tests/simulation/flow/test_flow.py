"""Whole hosts whose users ask for the flow of work, under many seeds. `--seeds N` says how many."""

from __future__ import annotations

import functools

import pytest

from tests.simulation.flow.backfills import Backfills
from tests.simulation.flow.deaths import Deaths
from tests.simulation.flow.groups import Groups
from tests.simulation.flow.paced import Cooled, Paced
from tests.simulation.flow.put_off import PutOff, Throttled
from tests.simulation.flow.world import Player, run
from tocsin.actors.testing import simulate

PLAYERS = (PutOff, Throttled, Deaths, Paced, Cooled)


def players(seed: int) -> tuple[type[Player], ...]:
    """Return who plays: some in every fourth run only, whose work takes long."""
    return PLAYERS if seed % 4 else (*PLAYERS, Groups, Backfills)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", range(first, first + count))


def test_the_flow_of_work_holds_in_a_storm(seed: int) -> None:
    simulate(seed, functools.partial(run, storm=True, kinds=players(seed)))


def test_the_flow_of_work_holds_in_good_weather(seed: int) -> None:
    simulate(seed, functools.partial(run, storm=False, kinds=players(seed)))
