"""The end of a run waits for a long backlog, and for nothing that does not go on."""

from __future__ import annotations

import asyncio
from random import Random

from tests.simulation.backlog import JOB_S, LOOK_S, ROUNDS, until_worked_off
from tocsin.actors.testing import simulate

JOBS = 2 * ROUNDS * LOOK_S // JOB_S


def test_a_backlog_that_one_lane_works_off_is_waited_for() -> None:
    async def run(_: Random) -> list[int]:
        left = list(range(JOBS))

        async def lane() -> None:
            while left:
                await asyncio.sleep(JOB_S)
                left.pop()

        working = asyncio.ensure_future(lane())
        await until_worked_off(lambda: left)
        assert working.done()
        return left

    assert simulate(1, run) == []


def test_a_backlog_that_stands_still_is_given_up() -> None:
    async def run(_: Random) -> float:
        began = asyncio.get_running_loop().time()
        await until_worked_off(lambda: range(JOBS))
        return asyncio.get_running_loop().time() - began

    assert simulate(1, run) <= ROUNDS * LOOK_S + JOBS * JOB_S


def test_an_end_with_nothing_left_is_short() -> None:
    async def run(_: Random) -> float:
        began = asyncio.get_running_loop().time()
        await until_worked_off(list)
        return asyncio.get_running_loop().time() - began

    assert simulate(1, run) == LOOK_S
