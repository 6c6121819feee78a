"""Permits by themselves: who gets one, who stands in line, and who is woken."""

from __future__ import annotations

import asyncio

from tocsin.actors.scheduler.inflight.circuit import OPENS_AFTER, PROBE_EVERY_S, Circuit
from tocsin.actors.scheduler.inflight.permits import Permits
from tocsin.actors.scheduler.model.suspects import ALONE, FEW, SOME
from tocsin.dispatch.callback import AttemptOutcome, Verdict

DONE = AttemptOutcome(Verdict.DONE)
UNREACHABLE = AttemptOutcome(Verdict.UNREACHABLE)


class Waiter:
    """One scheduler, as permits see it."""

    def __init__(self) -> None:
        self.places = 0
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()


class Hand:
    """A clock that is set by hand, in seconds."""

    def __init__(self) -> None:
        self.at = 0.0

    def permits(self, limit: int) -> Permits:
        return Permits(limit, Circuit(lambda: self.at, lambda: 0), lambda: self.at)


def test_a_taker_knows_in_how_many_lines_it_stands() -> None:
    async def run() -> None:
        permits, first, second = Hand().permits(8), Waiter(), Waiter()
        assert permits.take(first, 8) == 8
        for level in (0, SOME, FEW, ALONE):
            assert permits.take(second, 1, level) == 0
        assert (first.places, second.places) == (0, 3)  # suspects of the first two levels share a line
        permits.leave(second, FEW)
        permits.leave(second, ALONE)
        assert second.places == 1 and permits.waits(second) and not second.woken.is_set()
        permits.ended(DONE, 0)
        assert second.woken.is_set()
        assert permits.take(second, 1) == 1
        assert second.places == 0

    asyncio.run(run())


def test_answers_between_failures_keep_the_circuit_closed() -> None:
    permits = Hand().permits(8)
    for outcome in [*[UNREACHABLE] * (OPENS_AFTER - 1), DONE, *[UNREACHABLE] * (OPENS_AFTER - 1)]:
        permits.ended(outcome, 0)
    assert permits.circuit.broken is None
    permits.ended(UNREACHABLE, 0)
    assert permits.circuit.broken is not None


def test_a_probe_is_sent_in_a_later_event_loop_though_an_earlier_one_had_a_timer_for_it() -> None:
    """A host may be opened again, in another loop: a timer of the first one never rings."""
    hand = Hand()
    permits = hand.permits(8)
    for _ in range(OPENS_AFTER):
        permits.ended(UNREACHABLE, 0)

    async def first_run() -> None:
        waiter = Waiter()
        assert permits.take(waiter, 1) == 0
        permits.leave(waiter)

    async def second_run() -> None:
        waiter = Waiter()
        assert permits.take(waiter, 1) == 0
        hand.at = PROBE_EVERY_S
        async with asyncio.timeout(10):
            await waiter.woken.wait()
        assert permits.take(waiter, 1) == 1

    asyncio.run(first_run())
    hand.at = PROBE_EVERY_S - 0.01
    asyncio.run(second_run())
