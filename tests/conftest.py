"""Fixtures every test may use."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """asyncio only: the runtime is built on it."""
    return "asyncio"
