"""A model check in small: every state that two jobs, one slot, a reused id and a crash can reach keeps the promises."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.small_scope import Bounds, Explorer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("bounds", "at_least"),
    [
        (Bounds(schedules=2, crashes=1), 10_000),  # two jobs, or one id used again, and a crash anywhere
        (Bounds(schedules=2, crashes=2, ids=("a",)), 2_000),  # one id used again, two crashes
    ],
    ids=["two jobs, one crash", "one id, two crashes"],
)
async def test_every_interleaving_keeps_the_promises(bounds: Bounds, at_least: int) -> None:
    explorer = Explorer(bounds)
    await explorer.explore()

    assert explorer.states >= at_least
    assert explorer.ended >= 1
