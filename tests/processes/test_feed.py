"""The feed of a real server: watchers of every kind converge, over a kill too, and cost little. The long versions are
`python -m tests.processes.feed`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.feed import converge, cost

pytestmark = pytest.mark.anyio


async def test_watchers_that_stall_come_back_and_lag_know_in_the_end_what_the_lists_say(tmp_path: Path) -> None:
    assert "all know" in await converge(tmp_path, 120, seconds=60, stall_s=0.5)


async def test_watchers_cost_little_time_and_no_memory(tmp_path: Path) -> None:
    said, share, grown = await cost(tmp_path, clients=20, backlog=1_000, per_second=50, seconds=1.0)
    assert share < 1 / 2 and grown < 8, said
