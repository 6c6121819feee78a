"""The hook after passes: told what is covered, after passes without failures only, and in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.actors.scheduler.recurring.slots import occurrences
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.schedules import slots
from tocsin.errors import SettingsError, StoreUnavailable


class Hook:
    """Notes its calls; fails as often as it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, str]] = []
        self.fails = 0

    async def __call__(self, covered_until: int, lateness: int, *, instance: str) -> None:
        self.calls.append((covered_until, lateness, instance))
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the monitor is away")


def hooked(hook: Any) -> Callable[[Callable[[SimulatedHost], Coroutine[Any, Any, None]]], Callable[[], None]]:
    return on_simulated_host(on_tick=hook)


def test_each_pass_tells_what_is_covered_and_how_late() -> None:
    hook = Hook()

    @hooked(hook)
    async def run(sim: SimulatedHost) -> None:
        put = await sim.jobs.schedules.put("x", "work:run", every=60)
        await sim.jobs.schedules.put("y", "work:run", every=60)
        await sim.host.scheduler("other").schedules.put("z", "work:run", every=90)
        await sim.sleep(185)
        first = put.preview[0]
        assert sorted((at - first, late, name) for at, late, name in hook.calls) == [
            (0, 0, "t"), (30_000, 0, "other"), (60_000, 0, "t"), (120_000, 0, "other"), (120_000, 0, "t"),
        ]  # fmt: skip

    run()


def test_after_a_stop_the_hook_hears_how_late_it_all_was_once_all_is_decided() -> None:
    hook = Hook()

    @hooked(hook)
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.register(
            "o", [(f"s{n}", {"path": "w", "cron": "* * * * *", "overlap": "allow"}) for n in range(30)]
        )
        await sim.close()
        await sim.sleep(86_400)
        opened = sim.now
        await sim.open(on_tick=hook)
        await sim.sleep(30)
        [(covered, late, _)] = hook.calls
        assert covered == opened and 86_339_000 <= late <= 86_400_000
        for name in ("o:s0", "o:s29"):
            assert (await occurrences(sim, name))[-1].slot > opened - 60_000

    run()


def test_a_hook_that_fails_is_told_again_after_a_second_and_holds_up_nothing() -> None:
    hook = Hook()

    @hooked(hook)
    async def run(sim: SimulatedHost) -> None:
        hook.fails = 3
        await sim.jobs.schedules.put("x", "work:run", every=2, overlap="allow")
        await sim.sleep(7.5)
        seconds = [(at - 1_800_000_000_000) // 1000 for at, _, _ in hook.calls]
        assert seconds == [2, 2, 2, 4, 6], "told until it has heard, once a second"
        assert len(sim.deliveries) == 3

    run()


def test_a_hook_that_never_returns_holds_up_neither_slots_nor_the_stop() -> None:
    calls: list[int] = []

    async def stuck(covered_until: int, lateness: int) -> None:
        calls.append(covered_until)
        await asyncio.get_running_loop().create_future()

    @hooked(stuck)
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.put("x", "work:run", every=10)
        await sim.sleep(35)
        assert len(sim.deliveries) == 3 and len(calls) == 1
        before = sim.now
        await sim.close()
        assert sim.now - before < 100
        await sim.open()

    run()


def test_a_pass_in_which_a_schedule_stops_is_not_covered() -> None:
    hook = Hook()

    @hooked(hook)
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.put("bad", "work:run", every=60)
        await sim.jobs.schedules.put("good", "work:run", every=60)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slots, "owed", broken_once(slots.owed))
            await sim.sleep(61)
        assert hook.calls == [] and len(sim.deliveries) == 1
        await sim.sleep(60)
        assert len(hook.calls) == 1

    run()


def broken_once(owed: Any) -> Any:
    left = [1]

    def failing(*args: Any) -> Any:
        if left.pop() if left else 0:
            raise ZeroDivisionError("as the test wanted")
        return owed(*args)

    return failing


def test_a_pass_whose_commit_is_lost_is_not_covered() -> None:
    hook = Hook()

    @hooked(hook)
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.put("x", "work:run", every=60)
        provider: Any = sim.host.runtime.provider
        await sim.sleep(59)
        write, lost = provider.combiner._write, []

        async def refuse(writes: Any) -> None:
            lost.append(writes)
            raise StoreUnavailable("as the test wanted")

        provider.combiner._write = refuse
        await sim.sleep(3)
        assert lost and hook.calls == []
        provider.combiner._write = write
        await sim.sleep(10)
        assert len(hook.calls) == 1 and hook.calls[0][1] > 1_000

    run()


def test_what_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(SettingsError, match="on_tick must be a function, not int"):
        ActorHost.open("memory:", on_tick=3)
    for wrong in (0, True, 2_000_000):
        with pytest.raises(SettingsError, match="occurrences_kept must be"):
            ActorHost.open("memory:", occurrences_kept=wrong)


def test_a_plain_function_of_two_is_enough() -> None:
    calls: list[tuple[int, int]] = []

    @hooked(lambda covered_until, lateness: calls.append((covered_until, lateness)))
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.put("x", "work:run", every=10)
        await sim.sleep(25)
        assert len(calls) == 2

    run()
