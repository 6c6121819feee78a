"""Fixtures and options every test may use."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """asyncio only: the runtime is built on it."""
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=40, help="how many seeds the simulation runs")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them")
