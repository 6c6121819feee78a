"""Whole clusters under some seeds: fewer than those of one host, since each run has several of them."""

from __future__ import annotations

import pytest

from tests.simulation.cluster.world import run
from tests.simulation.hosts_loop import simulate_hosts
from tests.simulation.owners.world import few_slots

SHARE = 8
"""One run for so many of `--seeds`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", range(first, first + max(count // SHARE, 1)))


@pytest.fixture(autouse=True)
def less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    few_slots(monkeypatch)


def test_promises_hold_among_several_hosts(seed: int) -> None:
    simulate_hosts(seed, run)


def test_a_run_is_a_function_of_its_seed() -> None:
    assert simulate_hosts(7, run) == simulate_hosts(7, run)
