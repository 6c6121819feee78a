"""Fixtures and options every test may use."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.engine_below import BELOW
from tests.on_postgresql import why_not
from tests.postgres import KINDS, Postgres, postgres_server

ROOT: Final = Path(__file__).parent
LONG: Final = ("simulation/", "processes/", "actors/outbox/", "examples/", "browser/", "docs/", "cli/", "storage/")


@pytest.fixture
def anyio_backend() -> str:
    """asyncio only: the runtime is built on it."""
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=40, help="how many seeds the simulation runs")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them")

    parser.addoption(
        "--engine", default="memory",
        help="the store below the suites of the product: memory, postgresql, or the URL of a database for them",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Take SIGINT: a shell has its background jobs ignore it, and every process that a test interrupts would, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    BELOW.asked = config.getoption("--engine")


def pytest_unconfigure() -> None:
    BELOW.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where files are shared out over processes, those that take long come first: none begins when the others end. On
    another engine than memory some say nothing."""
    if not BELOW.is_memory:
        for item in items:
            if (why := why_not(item.nodeid)) is not None:
                item.add_marker(pytest.mark.skip(reason=why))
    if hasattr(config, "workerinput"):
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: (_turn(item.path), -tests[item.path], item.path))


def _turn(path: Path) -> int:
    """Which turn a file has: first those whose few tests wait for processes, whole hosts, databases."""
    inside = path.relative_to(ROOT).as_posix()
    return next((turn for turn, start in enumerate(LONG) if inside.startswith(start)), len(LONG))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server for all tests of a process, each in a database of its own: PostgreSQL 18."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def system_postgres() -> Iterator[Postgres]:
    """A server of the system's version, as old as is supported."""
    with postgres_server("system") as server:
        yield server


@pytest.fixture(params=KINDS)
def each_postgres(request: pytest.FixtureRequest) -> Postgres:
    """One server after the other, for what must hold on both."""
    server: Postgres = request.getfixturevalue("postgres" if request.param == "wheel" else "system_postgres")
    return server


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Reports go from one process to another; what a test has logged may hold halves of characters."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(one) for key, one in value.items()}
    return type(value)(map(_sendable, value)) if isinstance(value, (list, tuple)) else value
