"""Hosts agree on what time it is, also when some of their signs of life take long on their way."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from tocsin.storage.ownership.engine import Beat, HostState
from tocsin.storage.ownership.membership import Membership
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.shared import SharedCounts
from tocsin.testing import simulate

AHEAD_S = 1_000.0


async def beat(member: Membership, there_s: float, back_s: float, ahead_s: float = AHEAD_S) -> float:
    """Give one sign of life that takes so long; return by how much the host is wrong then, in s."""
    now = asyncio.get_running_loop().time
    sent = now()
    await asyncio.sleep(there_s)
    answer = Beat(HostState.UP, round((now() + ahead_s) * 1000))
    await asyncio.sleep(back_s)
    member._accepted(sent, answer)
    assert member.store_ms is not None
    return member.store_ms / 1000 - (now() + ahead_s)


def test_a_sign_of_life_that_took_long_does_not_change_what_time_it_is() -> None:
    async def main(random: Random) -> None:
        engine: Any = SimpleNamespace(place="a store")
        member = Membership(
            engine, Timing(), random, SharedCounts(), died=lambda host: None, changed=lambda: None
        )  # fmt: skip
        assert abs(await beat(member, 0.8, 0.0) - 0.4) < 0.01  # nothing better is known
        assert abs(await beat(member, 0.001, 0.001)) < 0.01
        for there_s, back_s in ((0.9, 0.0), (0.0, 0.7), (0.3, 0.1)):
            await asyncio.sleep(3)
            assert abs(await beat(member, there_s, back_s)) < 0.01
        assert abs(await beat(member, 0.1, 0.1, AHEAD_S + 2)) < 0.11  # the clock of the store has jumped

    simulate(1, main)
