"""Run a module's tests on both event loops: `tocsin serve` runs on uvloop where it is installed."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}
