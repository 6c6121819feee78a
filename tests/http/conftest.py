"""A face for each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.face import Face, open_face
from tocsin.actors.http import operations_queues


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that does not say how long to wait does not: requests that say nothing are sent to every route."""
    monkeypatch.setattr(operations_queues, "CLAIM_WAIT_S", 0.0)


@pytest.fixture
async def face() -> AsyncIterator[Face]:
    """On the memory engine."""
    async with open_face() as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite"])
async def stored(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Face]:
    """On each engine in turn."""
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    async with open_face(url) as opened:
        yield opened
