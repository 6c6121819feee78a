"""An HTTP client for each storage engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.http_client import HttpClient, open_host, open_http_client
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http import operations_queues


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that does not say how long to wait does not: requests that say nothing are sent to every route."""
    monkeypatch.setattr(operations_queues, "CLAIM_WAIT_S", 0.0)


@pytest.fixture
async def http_client() -> AsyncIterator[HttpClient]:
    """On the memory engine."""
    async with open_http_client() as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite"])
async def http_client_per_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HttpClient]:
    """On each engine in turn."""
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    async with open_http_client(url) as opened:
        yield opened


@pytest.fixture
async def host() -> AsyncIterator[ActorHost]:
    async with open_host() as (opened, _):
        yield opened
