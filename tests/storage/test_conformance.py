"""Every engine keeps every line of the contract of the seam."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.postgres import Postgres
from tests.storage.engines import ENGINES, postgres_store
from tocsin.storage.conformance import CHECKS, Check, Place


@pytest.mark.anyio
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.__name__)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_contract(check: Check, engine: Callable[[Path], Place], tmp_path: Path) -> None:
    await check(engine(tmp_path))


@pytest.mark.anyio
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_contract_in_postgresql(check: Check, postgres: Postgres) -> None:
    await check(postgres_store(postgres))
