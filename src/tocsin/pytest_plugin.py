"""The pytest plugin, there with the package: `tocsin_lab` and `tocsin_scheduler`. Unused, it imports nothing.

The fixtures are plain functions, so they go with pytest-asyncio, with anyio's plugin and with tests that are not async.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tocsin.testing import FakeScheduler, Lab, SyncLab

MARK = "tocsin(**options): options of every lab that the test opens, such as start=..., store='sqlite'"


class Labs:
    """Opens labs for one test: `async with tocsin_lab() as t`, or `with tocsin_lab.sync() as t`."""

    def __init__(self, app: Any, options: dict[str, Any]) -> None:
        self._app, self._options = app, options
        self._made: list[Lab] = []

    def __call__(self, app: Any = None, **options: Any) -> Lab:
        """Make a lab of this app, or of what the fixture `tocsin_app` returns; `options` as for `lab`."""
        from tocsin.testing import lab

        made = lab(self._app if app is None else app, **{**self._options, **options})
        self._made.append(made)
        return made

    def sync(self, app: Any = None, **options: Any) -> SyncLab:
        """Make a lab for a test that is a plain function."""
        from tocsin.testing import SyncLab

        made = SyncLab(self._app if app is None else app, **{**self._options, **options})
        self._made.append(made.lab)
        return made

    def unclosed(self) -> int:
        """Count the labs that were opened and not closed."""
        return sum(one.is_open for one in self._made)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture
def tocsin_app() -> Any:
    """Return the app that `tocsin_lab()` opens: override this in your conftest.py, and return it or what makes it."""
    return None


@pytest.fixture
def tocsin_lab(request: pytest.FixtureRequest, tocsin_app: Any) -> Iterator[Labs]:
    """Open the app in virtual time: `async with tocsin_lab() as t`. A lab that the test leaves open fails it."""
    mark = request.node.get_closest_marker("tocsin")
    labs = Labs(tocsin_app, dict(mark.kwargs) if mark is not None else {})
    yield labs
    if open_ones := labs.unclosed():
        pytest.fail(f"{open_ones} lab(s) were not closed: use async with tocsin_lab() as t", pytrace=False)


@pytest.fixture
def tocsin_scheduler() -> FakeScheduler:
    """Return a `FakeScheduler`, for code that is given a scheduler."""
    from tocsin.testing import FakeScheduler

    return FakeScheduler()
