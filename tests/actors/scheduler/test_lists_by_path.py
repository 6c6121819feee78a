"""Lists by function path: no index holds them, so they walk, and end where all of that path were found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tests.actors.scheduler.test_lists_by_index import GONE, fill
from tests.actors.scheduler.test_lists_by_index import loaded as loaded
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.records import Page
from tocsin.actors.scheduler.queries import listing
from tocsin.storage.api import StoreView


@pytest.mark.parametrize("order", ["id", "due"])
def test_a_list_by_path_ends_where_its_count_is_reached(order: str, loaded: list[int]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        for n in range(3):
            await sim.jobs.run_after(60 + n, "mine:run", id=f"0-{n}")
        await fill(sim, 6_000)
        page = await sim.jobs.list(path="mine:run", order=order)
        assert ([one.id for one in page.records], page.truncated) == (["0-0", "0-1", "0-2"], False)
        assert sum(loaded) <= 200
        loaded.clear()
        assert await sim.jobs.list(path="mine:run", order=order, limit=2, state="waiting") == Page([], False)
        assert await sim.jobs.list(path="none:run", order=order) == Page([], False)
        loaded.clear()
        page = await sim.jobs.list(path="mine:run", order=order, limit=2)
        assert (len(page.records), page.truncated) == (2, True)
        rest = await sim.jobs.list(path="mine:run", order=order, limit=2, cursor=page.cursor)
        assert [one.id for one in rest.records] == ["0-2"]

    run()


def test_a_list_by_path_that_changes_meanwhile_misses_nothing_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a new job it has as many as there were when it began, and not yet the last one."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.submit_many([Job(path="work:run", after=60, options={"id": f"z-{n:03}"}) for n in range(300)])
        await sim.jobs.run_after(60, "mine:run", id="0-first")
        await sim.jobs.run_after(60, "mine:run", id="z-last")
        original, came, cancels = listing.load, False, False

        async def load(view: StoreView, ids: Sequence[str]) -> Any:
            nonlocal came
            found = await original(view, ids)
            if not came:
                came = True
                if cancels:
                    await sim.jobs.cancel("0-first")
                await sim.jobs.run_after(60, "mine:run", id="z-150-new")
            return found

        for again in (False, True):
            came, cancels = False, again
            monkeypatch.setattr(listing, "load", load)
            page = await sim.jobs.list(path="mine:run", order="id")
            assert ([one.id for one in page.records], page.truncated) == (["0-first", "z-150-new", "z-last"], False)
            await sim.jobs.cancel("z-150-new")

    run()


def test_dead_jobs_are_found_by_path_without_loading_the_others(loaded: list[int]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        sim.reply = lambda one: GONE
        await sim.jobs.submit_many([Job(path="w:other", after=0) for _ in range(300)])
        await sim.jobs.submit_many([Job(workflow="w:mine", after=0) for _ in range(5)])
        await sim.sleep(20)
        loaded.clear()
        page = await sim.jobs.dead(path="w:mine")
        assert (len(page.records), page.truncated, sum(loaded)) == (5, False, 5)
        assert (await sim.jobs.dead(path="w:none")).records == []

    run()


@on_simulated_host()
async def test_a_path_that_nothing_runs_is_known_without_a_walk(sim: SimulatedHost) -> None:
    await fill(sim, 100)
    assert (await sim.jobs.cancel_all(path="other:run")).matched == 0
    assert (await sim.jobs.cancel_all(path="work:run")).cancelled == 100
