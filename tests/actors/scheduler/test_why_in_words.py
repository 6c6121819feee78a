"""`why` says who and since when: what a person on call asks next, in words and as data."""

from __future__ import annotations

from typing import Any

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.records import Reason
from tocsin.dispatch.pulled import WorkerInfo
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer


async def why(sim: SimulatedHost, id: str, code: str) -> Reason:
    (found,) = [one for one in await sim.jobs.why(id) if one.code == code]
    return found


@on_simulated_host()
async def test_a_pause_says_since_when_and_by_whom(sim: SimulatedHost) -> None:
    began = sim.now
    await sim.host.scheduler("t", by="ada").set_pool("p", paused=True)
    await sim.jobs.run_after(0, "work:run", id="x", pool="p")
    await sim.sleep(7_500)
    await sim.host.scheduler("t", by="eve").pause()
    await sim.sleep(20)
    pool, instance = await why(sim, "x", "POOL_PAUSED"), await why(sim, "x", "INSTANCE_PAUSED")
    assert pool.message == "pool p has been paused for 2h 5m, by ada"
    assert (pool.since, pool.by and pool.by.user, pool.pool) == (began, "ada", "p")
    assert instance.message == "this instance has been paused for 20s, by eve"
    assert (instance.since, instance.by and instance.by.user) == (began + 7_500_000, "eve")


@on_simulated_host()
async def test_a_full_pool_says_whose_lease_ends_first_and_how_many_go_before(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", max_concurrency=2)
    options: dict[str, Any] = {"pool": "p", "queue": "q"}
    for id, lease_ms in (("long", 90_000), ("short", 60_000)):
        await sim.jobs.run_after(0, "work:run", id=id, **options)
        assert len(await sim.jobs.claim("q", lease_ms=lease_ms, wait=0)) == 1
    for id, priority, delay in (("b", 0, 0), ("a", 0, 0), ("urgent", 1, 5), ("later", 9, 100), ("low", -1, 0)):
        await sim.jobs.run_after(delay, "work:run", id=id, priority=priority, **options)
    await sim.jobs.run_after(0, "work:run", id="elsewhere", queue="q")
    await sim.sleep(10)
    said = {id: await why(sim, id, "POOL_FULL") for id in ("urgent", "a", "b", "low")}
    assert {id: one.behind for id, one in said.items()} == {"urgent": 0, "a": 1, "b": 2, "low": 3}
    full = "pool p is full: 2 of 2 slots are held; the lease of short ends first, in 50s"
    assert said["urgent"].message == f"{full}; it is the first in its line"
    assert said["a"].message == f"{full}; 1 job of its line goes before it"
    assert said["b"].message == f"{full}; 2 jobs of its line go before it"
    assert (said["b"].holders, said["b"].at) == (["long", "short"], sim.now + 50_000)
    later = [one for one in await sim.jobs.why("later") if one.code == "POOL_FULL"]
    assert [one.behind for one in later] == [None], "it is in no line yet"


@on_simulated_host()
async def test_a_line_is_counted_to_a_bound(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", max_concurrency=1)
    await sim.jobs.run_after(0, "work:run", pool="p", queue="q")
    await sim.jobs.claim("q", wait=0)
    for _ in range(2):
        await sim.jobs.submit_many(
            [Job(path="work:run", after=0, options={"pool": "p", "queue": "q"}) for _ in range(600)]
        )
    await sim.jobs.run_after(1, "work:run", id="last", pool="p", queue="q")
    await sim.sleep(2)
    said = await why(sim, "last", "POOL_FULL")
    assert said.behind == 1_000 and said.message.endswith("; 1,000 jobs or more of its line go before it")


@on_simulated_host(lanes=2, max_in_flight=3)
async def test_full_lanes_say_who_has_them(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(50)
    for id in ("first", "second", "third"):
        await sim.jobs.run_after(0, "work:run", id=id)
        await sim.sleep(2)
    said = await why(sim, "third", "LANES_FULL")
    assert said.holders == ["first", "second"] and said.behind == 0
    assert said.message == (
        "all 2 lanes of this scheduler are in use, the longest by first for 6s; it is the first in its line"
    )
    other = sim.host.scheduler("other")
    for id in ("theirs", "waits"):
        await other.run_after(0, "work:run", id=id)
    await sim.sleep(1)
    (full,) = [one for one in await other.why("waits") if one.code == "HOST_FULL"]
    assert full.message.startswith("all 3 callbacks this host may have in flight are: 1 of this scheduler, 2 of others")


@on_simulated_host()
async def test_a_job_that_runs_says_for_how_long_and_until_when(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="pulled", queue="q")
    await sim.jobs.claim("q", worker=WorkerInfo(id="mailer-1"), lease_ms=60_000, wait=0)
    await sim.sleep(12)
    said = await why(sim, "pulled", "RUNNING")
    assert said.message == "it is running: worker mailer-1 has it, for 12s now; its lease ends in 48s"
    assert (said.since, said.at) == (sim.now - 12_000, sim.now + 48_000)
    sim.reply = lambda one: Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": "90000"}, b"")
    await sim.jobs.run_after(0, "work:run", id="taken")
    await sim.sleep(30)
    said = await why(sim, "taken", "RUNNING")
    assert "the receiver accepted it 30s ago and has not completed it yet; its lease ends in 1m" in said.message


@on_simulated_host()
async def test_an_open_circuit_says_for_how_long(sim: SimulatedHost) -> None:
    sim.down = True
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(50)])
    await sim.sleep(125)
    waiting = (await sim.jobs.list(state="waiting", limit=1)).records[0]
    said = await why(sim, waiting.id, "CIRCUIT_OPEN")
    assert said.message.endswith("; one callback every 5 s is tried, for 2m 4s now") or said.message.endswith(
        "; one callback every 5 s is tried, for 2m 5s now"
    )
    assert said.since is not None and sim.now - 126_000 <= said.since <= sim.now - 124_000


@on_simulated_host()
async def test_a_dead_job_that_a_bulk_retry_comes_to_says_at_which_pace(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"")
    for n in range(30):
        await sim.jobs.run_after(0, "work:run", id=f"x-{n:02}", retry=Retry(max_retries=0))
        await sim.sleep(1)
    assert (await why(sim, "x-29", "DEAD")).message.endswith("; retry or cancel the dead letter")
    redrive = await sim.jobs.dead_retry_all(path="work:run", rate_per_second=1)
    sim.reply = lambda one: Answer(200, {}, b"")
    await sim.sleep(10)
    said = (await why(sim, "x-29", "DEAD")).message
    assert f"the bulk retry {redrive.redrive_id} comes to it: 1 a second, " in said and "of 30 so far" in said
    await sim.sleep(60)


@on_simulated_host()
async def test_a_dead_job_that_a_bulk_retry_has_passed_is_not_promised_another(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"")
    for n in range(30):
        await sim.jobs.run_after(0, "work:run", id=f"x-{n:02}", retry=Retry(max_retries=0))
        await sim.sleep(1)
    await sim.jobs.dead_retry_all(path="work:run", rate_per_second=1)
    await sim.sleep(10)
    assert (await why(sim, "x-00", "DEAD")).message.endswith("; retry or cancel the dead letter"), "it died again"
    await sim.sleep(60)


@on_simulated_host()
async def test_a_test_clock_says_where_it_stands_as_people_write_it(sim: SimulatedHost) -> None:
    tested = sim.host.scheduler("tested")
    await tested.clock.create(1_800_000_000_000)
    await tested.run_after(7_500, "work:run", id="x", queue="q")
    due, clock = await tested.why("x")
    assert due.message == "it is due in 2h 5m"
    assert clock.message == ("this instance has a test clock, which stands at 2027-01-15T08:00:00.000Z and is frozen")
