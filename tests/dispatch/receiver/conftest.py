"""The stores that a receiver's promises are tested with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tocsin import MemoryDedup, SQLiteDedup
from tocsin.dispatch.receiver.dedup import Dedup


@pytest.fixture(params=["memory", "file"])
async def dedup(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Dedup]:
    dedup: Dedup = MemoryDedup() if request.param == "memory" else SQLiteDedup(tmp_path / "dedup.db")
    yield dedup
    await dedup.aclose()
