"""A drain that dies at every one of its steps: each committed row is one job, a rolled-back one is none."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.actors.outbox.app import App, Steps, until_crash
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host

HOUR_S = 3_600


def fill(app: App) -> None:
    for n in range(4):
        app.write(n)
        app.write(100 + n, roll_back=True)
    app.write(4, id="chosen")


def crash_at(fatal: int, after_s: float, folder: Path, *, twice: bool = False) -> list[str]:
    """The steps of a drain that died at that one; another took over so much later."""
    folder.mkdir()
    steps = Steps(fatal)

    @on_simulated_host(look_again_s=6_000)
    async def run(sim: SimulatedHost) -> None:
        app = App(sim, folder)
        fill(app)
        if await until_crash(app.drain(steps).run_once()):
            await sim.sleep(after_s)  # what was submitted has been run meanwhile, so its ids are free again
            if twice:
                await until_crash(app.drain(Steps(fatal)).run_once())
                await sim.sleep(after_s)
            app.write(5)
            await app.run_until_empty()
        await sim.sleep(1)

        assert app.fired() == Counter(app.committed)

    run()
    return steps.names


@pytest.mark.parametrize("after_s", [20, 26 * HOUR_S], ids=["soon", "when-the-answer-is-forgotten"])
def test_one_job_per_row_whatever_step_is_the_last(tmp_path: Path, after_s: float) -> None:
    died = []
    for fatal in range(1, 100):
        names = crash_at(fatal, after_s, tmp_path / str(fatal))
        if len(names) < fatal:
            break
        died.append(names[-1])

    assert {"before the submission", "after the submission", "after UPDATE", "after DELETE", "after a commit"} <= {
        *died
    }
    assert len(died) > 12


def test_one_job_per_row_though_who_takes_over_dies_too(tmp_path: Path) -> None:
    for fatal in range(1, 16):
        crash_at(fatal, 20, tmp_path / str(fatal), twice=True)


def test_one_job_per_row_though_the_host_dies_too(tmp_path: Path) -> None:
    """The scheduler's answer is committed with its effect, so it knows the batch when it is back."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        app = App(sim, tmp_path)
        fill(app)
        assert await until_crash(app.drain(Steps("after the submission")).run_once())
        await sim.crash()
        await sim.open()
        await app.run_until_empty()
        await sim.sleep(120)  # attempts that died with the host are made again when their leases end

        assert app.fired() == Counter(app.committed)

    run()


@pytest.mark.parametrize("seed", range(12))
def test_drains_that_overtake_each_other_make_one_job_per_row(tmp_path: Path, seed: int) -> None:
    """Each step takes so long that holds end while their drains are still at work."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        app = App(sim, tmp_path)
        sim.random.seed(seed)
        await sim.jobs.run_after("1h", "other:run", id="taken")
        app.write(50, id="taken")  # refused until that job is gone
        fill(app)
        cancelled = sim.random.randint(10, 19)

        def slow() -> float:
            return sim.random.choice([0.0, 0.0, 1.0, 20.0])

        async def work() -> None:
            drain = app.drain(Steps(slow=slow), timeout=60)
            for _ in range(6):
                await drain.run_once()
                await sim.sleep(sim.random.choice([0.0, 5.0]))

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(work())
            for n in range(10, 20):
                await sim.sleep(sim.random.choice([0.0, 3.0, 10.0]))
                app.write(n)
                if n == cancelled:
                    await sim.jobs.cancel("taken")
        await app.run_until_empty(400)
        await sim.sleep(1)

        assert app.fired() == Counter(app.committed)

    run()


def test_what_a_slow_drain_says_of_a_row_that_is_elsewhere_by_now_changes_nothing(tmp_path: Path) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        app = App(sim, tmp_path)
        await sim.jobs.run_after("1h", "other:run", id="taken")
        app.write(1, id="taken")
        slow, quick = Steps(), Steps()
        slow.gates["after the submission"] = refused = asyncio.Event()
        quick.gates["after the submission"] = accepted = asyncio.Event()
        first = asyncio.create_task(app.drain(slow).run_once())
        await sim.sleep(16)  # the hold of the first is over
        other = app.drain()
        await other.run_once()
        assert app.rows("batch, tries") == [(None, 1)]
        await sim.sleep(6)
        await sim.jobs.cancel("taken")
        second = asyncio.create_task(app.drain(quick).run_once())
        await sim.sleep(1)  # it has run: its id is free again

        refused.set()
        await first
        accepted.set()
        await second
        await app.run_until_empty()
        await sim.sleep(1)

        assert app.fired() == {1: 1}

    run()
