"""What a scheduler did in the last hour: each minute tells what was done in it, and nothing is counted that was not."""

from __future__ import annotations

from random import Random

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin import Job, Retry
from tocsin.actors.runtime.loop_lag import MOST_TIMERS
from tocsin.actors.scheduler.inflight.activity import (
    CALLBACK,
    EDGES_MS,
    MOST_INSTANCES,
    MOST_NOTED,
    Activities,
    Attempts,
)
from tocsin.actors.scheduler.model.activity import Activity, ActivityMinute
from tocsin.dispatch.pulled import WorkerInfo
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError
from tocsin.storage.combiner import MOST_UNCOUNTED
from tocsin.storage.histogram import Histogram

BROKEN = Answer(500, {}, b"broken")


def counts(one: ActivityMinute) -> tuple[int, int, int, int, int]:
    return one.accepted, one.started, one.done, one.failed, one.died


@on_simulated_host()
async def test_each_minute_tells_what_was_done_in_it(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(0.2, OK)
    await sim.sleep(60 - sim.now / 1000 % 60)
    await sim.jobs.submit_many([Job(path="work:run", after=n) for n in (0, 1, 90)])
    await sim.jobs.run_after("1h", "work:run")
    await sim.sleep(150)
    found = await sim.jobs.activity(3)
    assert [counts(one) for one in found.minutes] == [(4, 2, 2, 0, 0), (0, 1, 1, 0, 0), (0, 0, 0, 0, 0)]
    assert [one.backlog for one in found.minutes] == [2, 1, 1]
    assert [one.at % 60_000 for one in found.minutes] == [0, 0, 0]
    took = found.minutes[1].took_p50_ms
    assert took is not None and 170 <= took <= 200
    assert found.minutes[0].late_max_ms == 0 and found.minutes[2].late_p50_ms is None
    assert found.now == sim.now and found.since <= found.minutes[0].at
    assert (await sim.jobs.activity(1)).minutes == found.minutes[-1:]


@on_simulated_host()
async def test_equal_names_of_jobs_in_two_schedulers_count_apart(sim: SimulatedHost) -> None:
    other = sim.host.scheduler("other")
    await sim.jobs.run_after(0, "work:run", id="one")
    await other.run_after("2m", "work:run", id="one")
    await sim.sleep(1)
    assert counts((await sim.jobs.activity()).minutes[-1]) == (1, 1, 1, 0, 0)
    assert counts((await other.activity()).minutes[-1]) == (1, 0, 0, 0, 0)
    assert (await other.activity()).minutes[-1].backlog == 1
    assert (await sim.host.scheduler("nobody").activity()).minutes[-1].backlog == 0


@on_simulated_host()
async def test_failures_and_deaths_and_what_was_returned_are_told_apart(sim: SimulatedHost) -> None:
    sim.reply = lambda one: (
        Answer(503, {"retry-after": "600"}, b"") if one.body["functionPath"] == "work:busy" else BROKEN
    )
    await sim.jobs.run_after(0, "work:busy")
    await sim.jobs.run_after(0, "work:fails", retry=Retry(max_retries=1, base_ms=1_000))
    await sim.sleep(10)
    (now,) = (await sim.jobs.activity(1)).minutes
    assert (now.started, now.done, now.failed, now.returned, now.died) == (3, 0, 2, 1, 1)


@on_simulated_host()
async def test_lateness_counts_from_when_an_attempt_was_due(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("slow", max_concurrency=1)
    sim.reply = lambda one: after(4.0, OK)
    await sim.jobs.submit_many([Job(path="work:run", after=0, options={"pool": "slow"}) for _ in range(3)])
    await sim.sleep(13)
    minutes = (await sim.jobs.activity(2)).minutes
    assert max(one.late_max_ms or 0 for one in minutes) == 8_000


@on_simulated_host()
async def test_jobs_of_workers_count_when_they_are_given_and_when_they_are_settled(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", queue="mail", id="one")
    await sim.sleep(5)
    (job,) = await sim.jobs.claim("mail", worker=WorkerInfo(id="w"))
    await sim.sleep(2)
    await sim.jobs.complete(job.id, job.lease)
    minutes = (await sim.jobs.activity()).minutes
    assert sum(one.started for one in minutes) == sum(one.done for one in minutes) == 1
    assert max(one.late_max_ms or 0 for one in minutes) == 5_000
    took = max(one.took_p95_ms or 0 for one in minutes)
    assert 1_700 <= took <= 2_000


@on_simulated_host()
async def test_a_restart_begins_anew_and_says_so(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "work:run")
    before = (await sim.jobs.activity()).since
    await sim.sleep(600)
    await sim.crash()
    await sim.open()
    found = await sim.jobs.activity()
    assert found.since == sim.now > before
    assert [counts(one) for one in found.minutes] == [(0, 0, 0, 0, 0)]
    assert found.minutes[0].backlog == 1, "nothing was done since, so it is as the store says"


@on_simulated_host()
async def test_a_removed_instance_is_forgotten(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "work:run")
    await sim.jobs.remove()
    assert (await sim.jobs.activity()).minutes[-1].accepted == 0


@on_simulated_host()
async def test_minutes_are_one_to_sixty(sim: SimulatedHost) -> None:
    for wrong in (0, 61, True, "5"):
        with pytest.raises(InvalidInputError, match="minutes"):
            await sim.jobs.activity(wrong)  # type: ignore[arg-type]
    await sim.sleep(2 * 3_600)
    found = await sim.jobs.activity()
    assert len(found.minutes) == 60 and found.minutes[-1].at // 60_000 == sim.now // 60_000


@on_simulated_host()
async def test_a_test_clock_moves_no_minute_and_is_not_counted_for_the_host(sim: SimulatedHost) -> None:
    jobs, real = sim.host.scheduler("test"), sim.jobs
    await jobs.clock.create(sim.now)
    await jobs.run_after("30d", "work:run")
    await jobs.clock.advance("31d")
    await real.run_after(0, "work:run")
    await sim.sleep(1)
    found = await jobs.activity()
    assert sum(one.done for one in found.minutes) == 1 and found.now == sim.now
    assert max(one.late_max_ms or 0 for one in found.minutes) == 0, "it was in time by its own clock"
    totals = sim.host._service.activities.totals
    assert totals.started["callback"] == totals.late.count == totals.grown[0] == 1


@on_simulated_host()
async def test_what_nobody_asks_for_is_counted_now_and_then(sim: SimulatedHost) -> None:
    runtime, found = sim.host.runtime, sim.host._service.activities
    combiner, lag = runtime.provider.combiner, runtime.alarms.lag  # type: ignore[attr-defined]
    for n in range(MOST_NOTED + 50):
        await sim.jobs.run_after("1h", "work:run", n)
        assert len(found.noted) <= MOST_NOTED and len(combiner._uncounted) < MOST_UNCOUNTED
    for _ in range(MOST_TIMERS + 50):
        runtime.alarms._timed()
        assert len(lag.timers) < MOST_TIMERS
    assert found.totals.grown[0] == MOST_NOTED + 50 and lag.seen.count >= MOST_TIMERS + 50
    stats = runtime.provider.stats()
    assert stats.commit_s is not None and stats.batches_each is not None
    assert stats.commit_s.count == stats.batches_each.count == stats.commits
    assert stats.batches_each.total == stats.batches
    assert not found.noted and not lag.timers and not combiner._uncounted


# ---- The counting itself -------------------------------------------------------------------------


class Time:
    def __init__(self) -> None:
        self.now, self.passed = 1_000_000_000_000 // 60_000 * 60_000, 0.0

    def go(self, seconds: float) -> None:
        self.now += int(seconds * 1000)
        self.passed += seconds


def activities(time: Time) -> Activities:
    return Activities(lambda: time.now, lambda: time.passed, ())


def start(found: Activities, name: str) -> None:
    """One attempt starts in time."""
    found.note((name, found._monotonic(), Attempts(CALLBACK, late=[0])))


def of(found: Activities, name: str) -> Activity:
    return found.of(name, 60, 0)


def test_schedulers_that_were_active_last_are_remembered() -> None:
    time = Time()
    found = activities(time)
    for n in range(MOST_INSTANCES):
        start(found, f"i{n}")
    time.go(60)
    start(found, "i0")
    start(found, "one more")
    assert sum(one.started for one in of(found, "i0").minutes) == 2
    assert sum(one.started for one in of(found, "i1").minutes) == 0
    assert of(found, "i1").since == time.now, "whatever it did before is not known"
    assert len(found._followed) == MOST_INSTANCES


def test_a_clock_that_is_set_back_begins_the_hour_anew() -> None:
    time = Time()
    found = activities(time)
    start(found, "a")
    time.go(61)
    time.now -= 3_600_000
    start(found, "a")
    assert [(one.at, one.started) for one in of(found, "a").minutes] == [(time.now // 60_000 * 60_000, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_quantiles_are_right_in_the_right_bucket(seed: int) -> None:
    random = Random(seed)
    values = [
        random.lognormvariate(random.uniform(0, 8), random.uniform(0.1, 2)) for _ in range(random.randint(1, 500))
    ]
    found = Histogram(EDGES_MS)
    found.observe(*values[:100])
    found.observe(*values[100:])
    ordered = sorted(values)
    for share in (0.5, 0.95, 1.0):
        estimate, exact = found.quantile(share), ordered[max(round(share * len(values) + 0.499999) - 1, 0)]
        assert estimate is not None
        if exact < EDGES_MS[-1] and exact >= 2:
            assert estimate == pytest.approx(exact, rel=0.29), "both are in one bucket"
    edges = (5.0, 100.0, 10_000.0)
    assert found.up_to(edges) == [sum(value <= edge for value in values) for edge in edges]
    assert found.count == len(values) and found.total == pytest.approx(sum(values))


def test_what_seems_to_be_early_counts_as_in_time() -> None:
    found = Histogram((1.0, 2.0))
    found.observe(-5.0)
    found.observe(1.0)
    assert found.counts == [2, 0, 0] and found.total == 1.0 and found.quantile(1.0) == 1.0


def test_the_hour_is_bounded_however_long_a_host_runs() -> None:
    time = Time()
    found = activities(time)
    for _ in range(200):
        start(found, "a")
        time.go(60)
    minutes = of(found, "a").minutes
    assert len(minutes) == 60 and sum(one.started for one in minutes) == 59
