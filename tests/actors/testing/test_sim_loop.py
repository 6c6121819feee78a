"""The simulated loop: virtual time, seeded and reproducible order, deadlocks and threads refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random

import anyio
import pytest

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.testing import SimLoop, Stuck, VirtualClock, simulate

ROOT = Path(__file__).parents[3]


async def race(random: Random) -> list[str]:
    """Tasks, sets of tasks, groups, timeouts and cancelled tasks, noting who came when."""
    trace: list[str] = []

    async def runner(name: str) -> str:
        try:
            for _ in range(4):
                await asyncio.sleep(random.choice((0, 0, 0.01, 0.5)))
                trace.append(f"{asyncio.get_running_loop().time():g} {name}")
        except asyncio.CancelledError:
            trace.append(f"{name} cancelled")
            raise
        return name

    await asyncio.gather(*(runner(f"gather{n}") for n in range(5)))
    done, _ = await asyncio.wait({asyncio.ensure_future(runner(f"set{n}")) for n in range(9)})
    trace.extend(task.result() for task in done)
    async with asyncio.TaskGroup() as group:
        for n in range(5):
            group.create_task(runner(f"group{n}"))
    with anyio.move_on_after(0.3):
        async with anyio.create_task_group() as tasks:
            for n in range(9):
                tasks.start_soon(runner, f"anyio{n}")
    return trace


# ---- Order ---------------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_run_and_another_is_another() -> None:
    assert simulate(7, race) == simulate(7, race)
    assert simulate(7, race) != simulate(8, race)


def test_in_order_tasks_run_as_they_become_ready() -> None:
    async def steps(_: Random) -> list[int]:
        trace: list[int] = []

        async def step(n: int) -> None:
            await asyncio.sleep(0)
            trace.append(n)

        await asyncio.gather(*(step(n) for n in range(20)))
        return trace

    assert simulate(7, steps, in_order=True) == list(range(20))
    assert simulate(7, steps) != list(range(20))


def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    """Nor on addresses: each process lays its memory out anew."""
    code = "from tests.actors.testing.test_sim_loop import race, simulate; print(simulate(3, race))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "random")
    }

    assert len(runs) == 1


def test_tasks_that_are_ready_together_run_in_every_order() -> None:
    async def main(random: Random) -> str:
        order: list[str] = []

        async def step(name: str) -> None:
            order.append(name)

        await asyncio.gather(*(step(name) for name in "abc"))
        return "".join(order)

    assert {simulate(seed, main) for seed in range(60)} == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_callbacks_keep_the_order_of_their_registration() -> None:
    async def main(random: Random) -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        for n in range(20):
            loop.call_soon(order.append, n)
        await asyncio.sleep(0.001)
        return order

    assert all(simulate(seed, main) == list(range(20)) for seed in range(20))


def test_tasks_are_named_alike_in_every_run() -> None:
    async def main(random: Random) -> list[str]:
        named = asyncio.create_task(asyncio.sleep(0), name="mine")
        return [task.get_name() for task in (named, asyncio.create_task(asyncio.sleep(0)))]

    assert simulate(1, main) == simulate(1, main) == ["mine", "task-2"]


# ---- Time ----------------------------------------------------------------------------------------


def test_a_day_passes_at_once() -> None:
    async def main(random: Random) -> int:
        clock: Clock = VirtualClock(start_ms=5)
        await clock.sleep(86_400)
        return clock.now_ms()

    assert simulate(1, main) == 86_400_005


def test_every_millisecond_is_told_as_it_is() -> None:
    async def main(random: Random) -> list[int]:
        clock = VirtualClock(start_ms=0)
        told = []
        for _ in range(2_000):
            await clock.sleep(0.001)
            told.append(clock.now_ms())
        return told

    assert simulate(1, main) == list(range(1, 2_001))


def test_a_wall_clock_step_leaves_monotonic_time_alone() -> None:
    async def main(random: Random) -> tuple[int, float]:
        clock = VirtualClock(start_ms=0)
        clock.step(-3_600_000)
        return clock.now_ms(), clock.monotonic()

    assert simulate(1, main) == (-3_600_000, 0.0)


def test_timeouts_timers_and_futures_run_in_virtual_time() -> None:
    async def main(random: Random) -> tuple[float, str, float]:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3_600):
                await asyncio.sleep(86_400)
        timed_out = loop.time()
        answer: asyncio.Future[str] = loop.create_future()
        loop.call_later(10, answer.set_exception, AssertionError("this timer was cancelled")).cancel()
        loop.call_later(20, answer.set_result, "rung")
        return timed_out, await answer, loop.time()

    assert simulate(1, main) == (3_600, "rung", 3_620)


# ---- What is refused -----------------------------------------------------------------------------


def test_a_deadlock_is_reported_with_who_waits_where() -> None:
    async def main(random: Random) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match=r"cannot come: task-0 at Event\.wait:\d+"):
        simulate(1, main)


def test_executors_are_refused() -> None:
    async def main(random: Random) -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads"):
        simulate(1, main)


def test_other_threads_are_refused() -> None:
    refusals: list[str] = []

    async def main(random: Random) -> None:
        loop = asyncio.get_running_loop()

        def call_in() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except RuntimeError as error:
                refusals.append(str(error))

        thread = threading.Thread(target=call_in)
        thread.start()
        thread.join()

    simulate(1, main)

    assert "no threads" in refusals[0]


def test_sockets_are_refused() -> None:
    async def main(random: Random) -> None:
        await asyncio.open_connection("localhost", 80)

    with pytest.raises(RuntimeError, match="no sockets"):
        simulate(1, main)


def test_a_forgotten_generator_is_closed() -> None:
    """asyncio closes it by a thread-safe call from this thread, which is allowed."""
    closed: list[bool] = []

    async def numbers() -> AsyncGenerator[int]:
        try:
            yield 1
        finally:
            closed.append(True)

    async def main(random: Random) -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1)

    simulate(1, main)

    assert closed == [True]


# ---- anyio ---------------------------------------------------------------------------------------


def test_anyio_runs_on_it() -> None:
    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3_600)
            with anyio.move_on_after(5):
                await anyio.sleep_forever()
        return anyio.current_time()

    assert anyio.run(main, backend_options={"loop_factory": lambda: SimLoop(3)}) == 3_600


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": SimLoop})])
async def test_a_test_may_run_on_it() -> None:
    await anyio.sleep(86_400)

    assert isinstance(asyncio.get_running_loop(), SimLoop)
