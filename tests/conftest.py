"""Fixtures and options every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import Postgres, serving


@pytest.fixture
def anyio_backend() -> str:
    """asyncio only: the runtime is built on it."""
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=40, help="how many seeds the simulation runs")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for all tests of a run, each in a database of its own."""
    with serving() as server:
        yield server
