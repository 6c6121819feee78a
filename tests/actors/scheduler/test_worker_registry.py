"""Presence of workers on the host: what is kept, for how long, and what is refused. All in virtual time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.runtime.clock import SystemClock
from tocsin.actors.scheduler.inflight.worker_registry import WorkerRegistry
from tocsin.dispatch.pulled import WorkerJob, WorkerSnapshot
from tocsin.errors import InvalidInputError

SNAPSHOT = WorkerSnapshot(id="1-a", queues="*", concurrency=8, status="idle", started_at=5, heartbeat_at=6)


def changed(**members: Any) -> WorkerSnapshot:
    return msgspec.structs.replace(SNAPSHOT, **members)


@on_simulated_host()
async def test_a_silent_worker_is_lost_after_thirty_seconds_and_forgotten_after_five_minutes(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.announce(SNAPSHOT)
    await sim.jobs.announce(changed(id="1-b", status="stopped"))
    [first, stopped] = (await sim.jobs.workers()).workers
    assert first.heartbeat_at == sim.now, "by the host's clock, whatever the worker's says"

    await sim.sleep(30.5)
    [lost, stopped] = (await sim.jobs.workers()).workers
    assert (lost.lost, stopped.lost) == (True, False)

    await sim.jobs.announce(changed(status="busy", jobs=[WorkerJob(id="j", attempt=1, started_at=7)]))
    await sim.sleep(280)
    [alone] = (await sim.jobs.workers()).workers
    assert (alone.id, alone.lost, [job.id for job in alone.jobs]) == ("1-a", True, ["j"])

    await sim.sleep(30)
    assert (await sim.jobs.workers()).workers == []


@on_simulated_host()
async def test_workers_of_other_instances_are_not_shown_and_a_step_of_the_clock_loses_nobody(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.announce(SNAPSHOT)
    sim.clock.step(3_600_000)

    assert (await sim.host.scheduler("other").workers()).workers == []
    assert [one.lost for one in (await sim.jobs.workers()).workers] == [False]


@on_simulated_host()
async def test_pages_of_workers_are_by_id(sim: SimulatedHost) -> None:
    for n in range(5):
        await sim.jobs.announce(changed(id=f"w{n}"))
    first = await sim.jobs.workers(limit=2)
    second = await sim.jobs.workers(limit=3, cursor=first.cursor)

    assert [one.id for one in [*first.workers, *second.workers]] == ["w0", "w1", "w2", "w3", "w4"]
    assert (first.truncated, second.truncated, second.cursor) == (True, False, None)
    with pytest.raises(InvalidInputError, match="cursor"):
        await sim.jobs.workers(cursor="not / a name")


def test_of_too_many_workers_those_silent_for_the_longest_time_are_forgotten() -> None:
    registry = WorkerRegistry(SystemClock(), limit=2)
    for id in ("a", "b", "a", "c"):
        registry.note("t", changed(id=id))

    assert [one.id for one in registry.page("t", "", 10).workers] == ["a", "c"]


JOB = WorkerJob(id="j", attempt=1, started_at=7)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"id": "a b"}, "id"),
        ({"name": "x" * 257}, "name must be a text of at most 256"),
        ({"pid": -1}, "pid"),
        ({"queues": ["a b"]}, "queues"),
        ({"queues": 5}, "queues"),
        ({"exclude": ["a"] * 2_000}, "exclude"),
        ({"concurrency": 0}, "concurrency"),
        ({"status": "fine"}, "status must be one of idle, busy"),
        ({"started_at": -1}, "started_at"),
        ({"heartbeat_at": "now"}, "heartbeat_at"),
        ({"jobs": [5]}, "jobs must be a list"),
        ({"jobs": [msgspec.structs.replace(JOB, id="")]}, "jobs\\[0\\].id"),
        ({"jobs": [JOB, msgspec.structs.replace(JOB, function_path=5)]}, "jobs\\[1\\].function_path"),
        ({"jobs": [msgspec.structs.replace(JOB, attempt=0)]}, "jobs\\[0\\].attempt"),
    ],
)
def test_a_snapshot_that_cannot_be_is_refused_by_name(members: dict[str, Any], why: str) -> None:
    @on_simulated_host()
    async def test(sim: SimulatedHost) -> None:
        with pytest.raises(InvalidInputError, match=why):
            await sim.jobs.announce(changed(**members))
        with pytest.raises(InvalidInputError, match="must be a WorkerSnapshot"):
            await sim.jobs.announce({})  # type: ignore[arg-type]

    test()
