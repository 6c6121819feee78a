"""Permits by themselves: who gets one, who stands in line, and who is woken."""

from __future__ import annotations

import asyncio

from tocsin.actors.scheduler.inflight.circuit import OPENS_AFTER, PROBE_EVERY_S, Circuit
from tocsin.actors.scheduler.inflight.permits import CIRCUIT_OPEN, HOST_FULL, HOST_HELD, Company, Permits
from tocsin.actors.scheduler.model.health import ORIGIN_COOLING
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


def test_permits_of_one_origin_are_not_those_of_another() -> None:
    async def run() -> None:
        hand, company = Hand(), Company(lambda: hand.at)
        own, other = (Permits(4, Circuit(lambda: hand.at, lambda: 0), lambda: hand.at, company) for _ in range(2))
        first, second = Waiter(), Waiter()
        assert own.take(first, 8) == 4 and other.take(second, 8) == 4
        for _ in range(OPENS_AFTER):
            own.ended(UNREACHABLE, 0)
            own.free -= 1
        assert own.hindrance() == CIRCUIT_OPEN and other.hindrance() == HOST_FULL
        other.ended(DONE, 0)
        assert other.take(second, 1) == 1

    asyncio.run(run())


def test_who_runs_alone_waits_for_all_origins_and_holds_all_of_them_and_each_has_its_turn() -> None:
    async def run() -> None:
        hand = Hand()
        company = Company(lambda: hand.at)
        own, other = (Permits(4, Circuit(lambda: hand.at, lambda: 0), lambda: hand.at, company) for _ in range(2))
        plain, bad, worse = Waiter(), Waiter(), Waiter()
        assert own.take(plain, 1) == 1
        assert other.take(bad, 1, ALONE) == 0 and own.take(worse, 1, ALONE) == 0
        assert own.take(plain, 1) == other.take(plain, 1) == 0 and own.hindrance() == HOST_HELD
        own.ended(DONE, 0)
        assert bad.woken.is_set() and worse.woken.is_set()
        assert other.take(bad, 1, ALONE) == 1 and own.take(worse, 1, ALONE) == 0
        assert own.take(plain, 1) == 0
        plain.woken.clear()
        hand.at = 1.0
        other.ended(DONE, ALONE)
        assert plain.woken.is_set() and own.take(plain, 1) == 1, "others have their turn after it"
        assert company.all == [own, other]
        own.ended(DONE, 0)
        hand.at = 9.0
        assert own.take(worse, 1, ALONE) == 1 and other.take(plain, 1) == 0

    asyncio.run(run())


def test_an_origin_cools_for_an_hour_at_most_and_no_probe_goes_meanwhile() -> None:
    async def run() -> None:
        hand = Hand()
        permits = Permits(4, Circuit(lambda: hand.at, lambda: int(hand.at * 1000)), lambda: hand.at)
        waiter = Waiter()
        permits.cool(90_000_000)
        assert permits.take(waiter, 1) == 0 and permits.hindrance() == ORIGIN_COOLING
        assert permits.cools_until == 3_600_000
        for _ in range(OPENS_AFTER):
            permits.ended(UNREACHABLE, 0)
            permits.free -= 1
        hand.at = 3_599.0
        assert permits.take(waiter, 1) == 0
        hand.at = 3_600.0
        assert permits.hindrance() == CIRCUIT_OPEN and permits.take(waiter, 1) == 1, "a probe"

    asyncio.run(run())
