"""Hosts agree on what time it is, also when some of their signs of life take long on their way."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.storage.ownership.members import TIMING, Member, World, in_world
from tocsin.storage.disk_engine import DiskEngine
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
            engine, Timing(), random, SharedCounts(),
            died=lambda host: None, changed=lambda: None, check_again=lambda: asyncio.sleep(0),
        )  # fmt: skip
        assert abs(await beat(member, 0.8, 0.0) - 0.4) < 0.01  # nothing better is known
        assert abs(await beat(member, 0.001, 0.001)) < 0.01
        for there_s, back_s in ((0.9, 0.0), (0.0, 0.7), (0.3, 0.1)):
            await asyncio.sleep(3)
            assert abs(await beat(member, there_s, back_s)) < 0.01
        assert abs(await beat(member, 0.1, 0.1, AHEAD_S + 2)) < 0.11  # the clock of the store has jumped

    simulate(1, main)


def test_hosts_know_the_time_before_they_own_anything_and_are_no_further_apart_than_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first sign of life of each takes the longest that is accepted: of one on its way there, of the other back."""

    async def main(world: World) -> None:
        way_s, ways = 0.99 * TIMING.answer_s, list[tuple[float, float]]()
        beat_at_once = DiskEngine.beat

        async def slowly(engine: DiskEngine, host: str, ttl_s: float) -> Beat | None:
            there_s, back_s = ways.pop() if ways else (0.0, 0.0)
            await asyncio.sleep(there_s)
            answer = await beat_at_once(engine, host, ttl_s)
            await asyncio.sleep(back_s)
            return answer

        monkeypatch.setattr(DiskEngine, "beat", slowly)
        wrong_ms = []
        for way in ((way_s, 0.0), (0.0, way_s)):
            member = Member(world.disk, world.random)
            ways.append(way)
            await member.provider.start()
            assert member.provider.store_ms is not None
            wrong_ms.append(member.provider.store_ms - world.disk.now_ms())
            await member.provider.stop()
        assert abs(abs(wrong_ms[0] - wrong_ms[1]) - way_s * 1000) < 10
        assert abs(wrong_ms[0] - wrong_ms[1]) <= member.provider.clocks_differ_ms

    in_world(main)
