"""The contract of the storage seam, line by line, for any engine: run every one of `CHECKS` on a fresh place.

@pytest.mark.anyio
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_contract(check, tmp_path):
    await check(lambda: SQLiteProvider(tmp_path / "store.db"))
"""

from __future__ import annotations

from tocsin.storage import checks_of_actors, checks_of_rows
from tocsin.storage.checks import CHECKS, Check, Place

__all__ = ["CHECKS", "PARTS", "Check", "Place"]

PARTS = (checks_of_rows, checks_of_actors)
"""Modules that `CHECKS` are collected from."""
