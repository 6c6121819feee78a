"""A busy receiver that says until when cools its pool: the other jobs of it do not each have to learn it."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.simulated_host import OK, SECRET, SimulatedHost, on_simulated_host
from tocsin import ActorHost, Origin
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError

BUSY = Answer(429, {"retry-after": "120"}, b"slow down")


def pooled(count: int, pool: str = "p", **options: object) -> list[Job]:
    return [Job(path="work:run", after=0, options={"pool": pool, **options}) for _ in range(count)]


def starts(sim: SimulatedHost) -> list[int]:
    return [at for at, _ in sim.arrivals]


@on_simulated_host()
async def test_one_busy_answer_holds_back_the_whole_pool_and_no_other(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", max_concurrency=1, cool_on_retry_after="pool")
    sim.reply = lambda one: BUSY
    await sim.jobs.submit_many(pooled(20))
    await sim.sleep(1)
    assert starts(sim) == [0]
    pool = await sim.jobs.pool("p")
    assert pool.cooling_until == sim.now + 119_000
    [status] = (await sim.jobs.status()).pools
    assert status.cooling_until == pool.cooling_until

    sim.reply = lambda one: OK
    await sim.jobs.submit_many(pooled(1, "other"))
    await sim.sleep(1)
    assert starts(sim) == [0, 1_000]
    await sim.sleep(117)
    assert len(starts(sim)) == 2
    await sim.sleep(5)
    assert len(starts(sim)) == 22 and starts(sim)[2] == 120_000
    assert (await sim.jobs.pool("p")).cooling_until is None


@on_simulated_host()
async def test_a_pool_that_is_not_to_cool_tries_each_of_its_jobs(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", max_concurrency=1)
    sim.reply = lambda one: BUSY
    await sim.jobs.submit_many(pooled(20))
    await sim.sleep(1)
    assert len(starts(sim)) == 20


@on_simulated_host()
async def test_an_operator_ends_the_cooling_and_that_is_noted(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    await ops.set_pool("p", max_concurrency=1, cool_on_retry_after="pool")
    sim.reply = lambda one: BUSY
    await sim.jobs.submit_many(pooled(3))
    await sim.sleep(1)
    sim.reply = lambda one: OK
    warmed = await ops.set_pool("p", cooling=False)
    assert warmed.cooling_until is None
    await sim.sleep(1)
    assert len(starts(sim)) == 3  # the first one waits by itself, as it was told
    assert (await ops.audit()).actions[0].given == {"cooling": False}
    before = len((await ops.audit()).actions)
    await ops.set_pool("p", cooling=False)
    assert len((await ops.audit()).actions) == before  # it did not cool: nothing was changed


@on_simulated_host()
async def test_a_pool_cools_on_over_a_crash_and_a_shorter_answer_makes_it_no_shorter(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", max_concurrency=2, cool_on_retry_after="pool")
    answers = iter([BUSY, Answer(503, {"retry-after": "5"}, b"")])
    sim.reply = lambda one: next(answers, OK)
    await sim.jobs.submit_many(pooled(4))
    await sim.sleep(1)
    assert starts(sim) == [0, 0]
    await sim.crash()
    await sim.open()
    await sim.sleep(100)
    assert starts(sim) == [0, 0]
    await sim.sleep(60)
    assert len(starts(sim)) == 6 and min(starts(sim)[2:]) == 120_000


@on_simulated_host(look_again_s=1.0)
async def test_a_pool_cools_no_longer_where_the_clock_was_set_back_while_no_host_ran(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", max_concurrency=1, cool_on_retry_after="pool")
    answers = iter([BUSY])
    sim.reply = lambda one: next(answers, OK)
    long_due = sim.now - 7_200_000  # they are due after the step, too
    await sim.jobs.submit_many([Job("work:run", at=long_due, options={"pool": "p"}) for _ in range(3)])
    await sim.sleep(1)
    await sim.crash()
    sim.clock.step(-1_800_000)
    await sim.open()
    await sim.sleep(10)
    assert len(sim.arrivals) == 1
    assert (await sim.jobs.pool("p")).cooling_until == sim.now + 110_000
    await sim.sleep(111)
    assert len(sim.arrivals) == 3


@on_simulated_host()
async def test_why_says_until_when_a_pool_cools_and_when_the_turn_of_a_job_comes(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(6, "1m"), cool_on_retry_after="pool")
    await sim.jobs.submit_many([*pooled(1), *pooled(5)])
    await sim.sleep(4)
    waiting = [record async for record in sim.jobs.list_all()]
    [reason] = await sim.jobs.why(waiting[0].id)
    assert (reason.code, reason.at) == ("POOL_RATE", sim.now + 6_000)
    assert reason.message == ("pool p starts 6 per 1m: its next one may start in 6.0s; it is the first in its line")
    [last] = await sim.jobs.why(waiting[4].id)
    assert (last.code, last.behind, last.at) == ("POOL_RATE", 4, sim.now + 46_000)
    assert last.message.endswith("4 jobs of its line go before it, so its turn comes in 46s at the earliest")

    sim.reply = lambda one: BUSY
    await sim.sleep(7)
    waiting = [record async for record in sim.jobs.list_all() if record.state == "waiting"]
    [cools] = await sim.jobs.why(waiting[0].id)
    assert (cools.code, cools.at) == ("POOL_COOLING", sim.now + 119_000)
    assert cools.message == "pool p cools: a receiver was busy and asked to wait, for another 1m 59s"
    assert (await sim.jobs.status()).health == "green"


@on_simulated_host()
async def test_a_test_clock_goes_from_token_to_token(sim: SimulatedHost) -> None:
    jobs = sim.host.scheduler("test")
    await jobs.clock.create(sim.now)
    began = sim.now
    await jobs.set_pool("p", rate=Rate(1, "1h"))
    await jobs.submit_many(pooled(5))
    await sim.sleep(1)
    assert len(starts(sim)) == 1
    await jobs.clock.advance("150m")
    history = [one async for one in jobs.list_all()]
    assert (len(starts(sim)), len(history)) == (3, 2)
    assert (await jobs.pool("p")).next_token_at == began + 3 * 3_600_000


@on_simulated_host(dispatch=False)
async def test_a_run_of_what_is_due_leaves_what_has_no_token_and_says_why(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(2, "1h", burst=2))
    await sim.jobs.submit_many(pooled(5))
    run = await sim.host.run_due()
    assert len(starts(sim)) == 2
    [left] = run.because
    assert (left.code, left.jobs, run.left, run.trouble) == ("POOL_RATE", 3, 3, False)


ORIGINS = {"billing": Origin(url="https://billing.example", secrets=[SECRET])}


@on_simulated_host(origins=ORIGINS, cool_on_retry_after="origin")
async def test_a_host_may_let_an_origin_cool_for_jobs_without_a_pool_and_no_other_origin(sim: SimulatedHost) -> None:
    sim.reply = lambda one: BUSY if one.path == "slow" else OK
    await sim.jobs.run_after(0, "slow")
    await sim.sleep(1)
    await sim.jobs.run_after(0, "a:b", id="held")
    await sim.host.scheduler("other").run_after(0, "a:b", id="held-too")
    await sim.jobs.run_after(0, "a:b", origin="billing", id="not-held")
    await sim.sleep(1)
    assert [job for _, job in sim.arrivals][1:] == ["not-held"]
    assert [one.code for one in await sim.jobs.why("held")] == ["ORIGIN_COOLING"]
    await sim.sleep(130)
    assert {job for _, job in sim.arrivals} >= {"held", "held-too"}


@on_simulated_host(origins=ORIGINS)
async def test_a_pool_may_let_the_origin_cool_that_its_jobs_go_to(sim: SimulatedHost) -> None:
    sim.reply = lambda one: BUSY if one.path == "slow" else OK
    await sim.jobs.set_pool("p", cool_on_retry_after="origin")
    await sim.jobs.run_after(0, "slow", pool="p", origin="billing")
    await sim.sleep(1)
    await sim.jobs.run_after(0, "a:b", origin="billing", id="held")
    await sim.jobs.run_after(0, "a:b", id="not-held", pool="p")
    await sim.sleep(1)
    assert [job for _, job in sim.arrivals][1:] == ["not-held"]


@on_simulated_host()
async def test_without_the_option_one_busy_answer_holds_its_own_job_only(sim: SimulatedHost) -> None:
    sim.reply = lambda one: BUSY if one.path == "slow" else OK
    await sim.jobs.run_after(0, "slow")
    await sim.sleep(1)
    await sim.jobs.run_after(0, "a:b", id="free")
    await sim.sleep(1)
    assert [job for _, job in sim.arrivals][1:] == ["free"]


def test_a_host_lets_nothing_cool_that_it_has_not() -> None:
    with pytest.raises(SettingsError, match="cool_on_retry_after must be none or origin, not 'pool'"):
        ActorHost.open("memory:", cool_on_retry_after="pool")
