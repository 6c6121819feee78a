"""`why` of a job with a queue: who has it, who is missing, and nothing of what only callbacks wait for."""

from __future__ import annotations

import asyncio

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host, why_codes
from tocsin.dispatch.pulled import WorkerInfo
from tocsin.dispatch.transport import Answer


@on_simulated_host()
async def test_a_due_job_that_nobody_waits_for_says_so(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(10, "work:run", id="x", queue="q")
    [reason] = await sim.jobs.why("x")
    assert reason.message == "it is due in 10s"
    assert await why_codes(sim, "x") == ["NOT_DUE"]  # whoever waits now may be gone by then
    await sim.sleep(11)
    waiting = asyncio.create_task(sim.jobs.claim("another", wait=100))
    await sim.sleep(1)
    [reason] = await sim.jobs.why("x")

    assert (reason.code, reason.message) == (
        "NO_WORKER",
        "no claim waits for queue q on this host; it is the first in its line",
    )
    waiting.cancel()


@on_simulated_host()
async def test_a_job_that_a_worker_has_names_it(sim: SimulatedHost) -> None:
    for name, said in (("w1", "worker w1 has it"), ("", "a worker has it")):
        await sim.jobs.run_after(0, "work:run", id="x", queue="q")
        [one] = await sim.jobs.claim("q", worker=WorkerInfo(id=name) if name else None)
        [reason] = await sim.jobs.why("x")
        assert (reason.code, reason.at) == ("RUNNING", one.lease_until) and said in reason.message
        await sim.jobs.complete("x", one.lease)


@on_simulated_host()
async def test_what_holds_up_a_job_although_workers_wait_is_told_without_them(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.run_after(0, "work:run", id="x", queue="q", pool="p")
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=100))
    await sim.sleep(1)

    assert await why_codes(sim, "x") == ["POOL_PAUSED"]
    await sim.jobs.set_pool("p", paused=False)
    assert [one.id for one in await waiting] == ["x"]


@on_simulated_host()
async def test_a_job_that_lost_workers_says_how_far_it_is_kept_apart(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    lost = "workers were lost while they had it: it goes to a worker that has"
    said = {
        2: ("APART", "few that are suspect"),
        3: ("APART", "nothing else that is suspect"),
        4: ("ALONE", "nothing else"),
    }
    for n in range(1, 5):
        await sim.jobs.claim("q", lease_ms=1_000, wait=100, worker=WorkerInfo(id=f"w{n}"))
        await sim.sleep(1.5)
        *apart, missing = await sim.jobs.why("x")
        assert missing.code == "NO_WORKER"
        assert [one.code for one in apart] == ([said[n][0]] if n in said else [])
        assert all(one.message == f"{n} {lost} {said[n][1]}" for one in apart)


@on_simulated_host(lanes=1)
async def test_lanes_and_the_circuit_hold_up_callbacks_only(sim: SimulatedHost) -> None:
    never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    sim.reply = lambda delivery: never
    for name in ("called", "next"):
        await sim.jobs.run_after(0, "work:run", id=name)
    await sim.jobs.run_after(0, "work:run", id="pulled", queue="q")
    await sim.sleep(1)

    assert "LANES_FULL" in await why_codes(sim, "next")
    assert await why_codes(sim, "pulled") == ["NO_WORKER"]
    never.set_result(Answer(200, {}, b""))
