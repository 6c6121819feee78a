"""Alarms while the wall clock is wrong for a moment: forward and back again before anybody looks."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tocsin.actors.runtime.alarms import AlarmHeap
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.testing import VirtualClock, simulate

ONE = ActorId("A", "one")
HOUR = 3_600_000


class Bell:
    """A heap whose rings are counted; each sets its alarm again, as one that has more to do."""

    def __init__(self, random: Random) -> None:
        self.clock = VirtualClock(look_again_s=60.0)
        self.rung = 0
        self.fail = 0
        self.then: int | None = None
        self.heap = AlarmHeap(self.clock, random, self.ring, lambda _: 5_000)

    def ring(self, actor: ActorId) -> asyncio.Future[None]:
        self.rung += 1
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.fail:
            self.fail -= 1
            answer.set_exception(OSError("as asked"))
            return answer
        if self.then is not None:
            self.heap.set(actor, self.then)
            self.then = None
        answer.set_result(None)
        return answer


@pytest.mark.parametrize("fail", [False, True])
def test_an_alarm_that_rang_while_the_clock_was_ahead_rings_on_when_it_is_right_again(fail: bool) -> None:
    """Found by the simulation, storm 881: the clock was an hour ahead for 22 s, and the scheduler slept for an hour."""

    async def main(random: Random) -> None:
        bell = Bell(random)
        now = bell.clock.now_ms()
        bell.heap.start()
        bell.heap.set(ONE, now + 50)
        bell.clock.step(HOUR)
        if fail:
            bell.fail = 1
        else:
            bell.then = now + 60
        await asyncio.sleep(0.055)
        assert bell.rung
        bell.clock.step(-HOUR)
        await asyncio.sleep(62)
        bell.heap.stop()

        assert bell.rung == 2

    simulate(3, main)


def test_a_failing_alarm_still_backs_off() -> None:
    async def main(random: Random) -> None:
        bell = Bell(random)
        bell.fail = 3
        bell.heap.start()
        bell.heap.set(ONE, bell.clock.now_ms())
        await asyncio.sleep(1.9)
        assert bell.rung == 1
        await asyncio.sleep(60)
        bell.heap.stop()

        assert bell.rung == 4

    simulate(3, main)


def test_an_alarm_set_by_a_turn_that_worked_does_not_wait_for_the_end_of_a_backoff() -> None:
    async def main(random: Random) -> None:
        bell = Bell(random)
        bell.fail = 3
        bell.heap.start()
        bell.heap.set(ONE, bell.clock.now_ms())
        await asyncio.sleep(8)
        assert (bell.rung, bell.heap.failures(ONE)) == (3, 3)
        bell.heap.set(ONE, bell.clock.now_ms() + 50)
        bell.heap.worked(ONE)
        await asyncio.sleep(0.1)
        bell.heap.stop()

        assert bell.rung == 4

    simulate(3, main)
