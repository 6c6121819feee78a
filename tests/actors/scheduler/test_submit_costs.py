"""What it costs to submit jobs, as counts, which no busy machine changes: Python calls, encodings, rows, bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.runtime.overlay import ActorStorage
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.state import scheduler_state
from tocsin.actors.scheduler.state.ready_heap import ReadyHeap
from tocsin.dispatch import values

BULK = 1_000
ARGS = {"t": "x" * 160}


ROOT = str(Path(values.__file__).parents[1])


class Calls:
    """Counts calls of tocsin's Python functions in a block, without those of the simulation."""

    def __init__(self) -> None:
        self.made = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and (file := frame.f_code.co_filename).startswith(ROOT) and "/testing/" not in file:
            self.made += 1


def bulk(own: bool) -> list[Job]:
    return [
        Job(path=f"w:{n % 3}", args=ARGS, after=60 + n % 9, options={"id": f"j{n}"} if own else {}) for n in range(BULK)
    ]


@pytest.mark.parametrize("own", [False, True], ids=["minted", "own"])
def test_a_job_of_a_batch_takes_few_python_calls(own: bool) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "w:r")
        jobs = bulk(own)
        with Calls() as calls:
            await sim.jobs.submit_many(jobs)
        assert calls.made <= 20 * BULK

    run()


@pytest.mark.parametrize("own", [False, True], ids=["minted", "own"])
def test_a_job_alone_takes_a_bounded_number_of_python_calls(own: bool) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "w:r")
        at = sim.now + 3_600_000
        with Calls() as calls:
            await sim.jobs.run_at(at, "w:r", ARGS, id="j" if own else None)
        assert calls.made <= 150

    run()


@pytest.mark.parametrize("own", [False, True], ids=["minted", "own"])
def test_a_batch_encodes_and_writes_each_job_once(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: dict[str, int] = {}

    def count(owner: Any, name: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)

        def counting(*args: Any, **named: Any) -> Any:
            counted[name] = counted.get(name, 0) + 1
            return plain(*args, **named)

        monkeypatch.setattr(owner, name, counting)

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "w:r")
        provider = sim.host.runtime.provider
        before = provider.stats()
        for owner, name in (
            (scheduler_state, "encode"), (values, "_encode"), (ActorStorage, "put"), (ActorStorage, "put_many"),
            (ReadyHeap, "enter"),
        ):  # fmt: skip
            count(owner, name)
        await sim.jobs.submit_many(bulk(own))
        after = provider.stats()
        # The rows of the jobs; the counters and the line besides.
        assert counted["encode"] <= BULK + 2
        assert counted["_encode"] == BULK
        assert counted["put_many"] == 1 and counted["put"] <= 5  # counters, the line, one count for each path
        assert counted["enter"] == 1
        assert (after.commits - before.commits, after.batches - before.batches) == (1, 1)
        assert after.rows_put - before.rows_put <= 2 * BULK + 5
        view = provider.view("scheduler/t")
        rows = [
            row for prefix in (b"job/", b"line/") for row in await view.scan(prefix, prefix[:-1] + b"0", limit=4_000)
        ]
        assert len(rows) == 2 * (BULK + 1)
        assert sum(len(key) + len(value) for key, value in rows) <= 380 * BULK

    run()
