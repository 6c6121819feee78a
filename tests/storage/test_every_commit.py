"""A disk that is full at any commit, and at any page of it. All pages: `python -m tests.storage.campaign full`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage import filling
from tests.storage.disks import small_disk

STEP = 9
"""Every so many pages: the run has ten commits of about eight pages each."""


FILLED_AT = (0, 3, 5, 8)
"""Before which transactions of a host; it has about a dozen."""


@pytest.mark.anyio
async def test_whenever_the_disk_of_a_host_is_full_what_it_accepted_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling.hasten(monkeypatch.setattr)
    with small_disk(tmp_path / "small", 32) as disk:
        filled = [await filling.host_with(disk, transaction) for transaction in FILLED_AT]

    assert all(filled)


@pytest.mark.anyio
@pytest.mark.parametrize("reserve", [True, False])
async def test_wherever_the_disk_is_full_nothing_accepted_is_lost(
    reserve: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling.hasten(monkeypatch.setattr)
    with small_disk(tmp_path / "small", 32) as disk:
        refused = [
            await filling.run_with(disk, pages * filling.PAGE, reserve=reserve)
            for pages in range(0, filling.PAGES, STEP)
        ]

    if reserve:
        assert not any(refused), "the reserve takes what is under way"
    else:
        assert refused[0] > 0
        assert refused[-1] == 0, "the run was fullness from its first to its last commit"
        assert len(set(refused)) > 3, "at different commits"
