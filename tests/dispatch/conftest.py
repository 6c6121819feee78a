"""The transports under test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tocsin.dispatch.transport import Transport
from tocsin.dispatch.transports import NAMES, default_transport


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Of a transport that uses sockets."""
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
async def transport(name: str) -> AsyncIterator[Transport]:
    transport = default_transport(name)
    yield transport
    await transport.aclose()
