"""Several bulk retries at once: no letter is matched twice, and no pool is retried faster than was asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError

GONE = Answer(410, {}, b"")


async def bury(sim: SimulatedHost, count: int, path: str = "a:b", **options: object) -> None:
    """So many dead letters; from then on the receiver takes everything."""
    sim.reply = lambda one: GONE
    if "pool" in options:
        await sim.jobs.set_pool(str(options["pool"]), max_concurrency=1_000)
    await sim.jobs.submit_many([Job(path=path, after=0, options=options) for _ in range(count)])
    await sim.sleep(2)
    sim.reply = lambda one: OK
    sim.arrivals.clear()


def most_in_a_second(sim: SimulatedHost) -> int:
    return max(Counter(at // 1000 for at, _ in sim.arrivals).values())


async def refused(sim: SimulatedHost, **filters: Any) -> str:
    """The id of the bulk retry that has all of these."""
    with pytest.raises(ConflictError) as caught:
        await sim.jobs.dead_retry_all(**filters)
    assert caught.value.details["redriveId"] in caught.value.message
    return str(caught.value.details["redriveId"])


@on_simulated_host()
async def test_the_same_call_again_is_told_which_one_goes_on_and_starts_nothing(sim: SimulatedHost) -> None:
    await bury(sim, 100, pool="p")
    first = await sim.jobs.dead_retry_all(all=True, rate_per_second=10)
    for filters in ({"all": True}, {"pool": "p"}, {"path": "a:b"}, {"all": True, "dry_run": True}):
        assert await refused(sim, **filters) == first.redrive_id
    await sim.sleep(20)

    assert len(sim.arrivals) == 100
    assert most_in_a_second(sim) <= 10
    assert (await sim.jobs.dead_retry_all(all=True)).matched == 0


@on_simulated_host()
async def test_two_calls_at_the_same_time_make_one(sim: SimulatedHost) -> None:
    await bury(sim, 100)
    calls = [sim.jobs.dead_retry_all(all=True, rate_per_second=10) for _ in range(5)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    [made] = [one for one in answers if not isinstance(one, BaseException)]
    assert {one.details["redriveId"] for one in answers if isinstance(one, ConflictError)} == {made.redrive_id}
    await sim.sleep(20)

    assert made.matched == 100
    assert len(sim.arrivals) == 100
    assert most_in_a_second(sim) <= 10


@on_simulated_host()
async def test_filters_that_overlap_match_each_letter_once_and_share_the_pace(sim: SimulatedHost) -> None:
    await bury(sim, 40, "a:b", pool="p")
    await bury(sim, 60, "c:d", pool="p")
    await bury(sim, 20, "c:d")
    first = await sim.jobs.dead_retry_all(pool="p", rate_per_second=10)
    second = await sim.jobs.dead_retry_all(path="c:d", rate_per_second=10)
    assert (first.matched, second.matched, second.waits_for) == (100, 20, first.redrive_id)
    assert await refused(sim, all=True) == first.redrive_id
    await sim.sleep(5)
    waiting = await sim.jobs.redrive(second.redrive_id)
    assert waiting is not None and (waiting.retried, waiting.running) == (0, True)
    assert waiting.waits_for == first.redrive_id
    await sim.sleep(30)
    done = await sim.jobs.redrive(second.redrive_id)

    assert done is not None and (done.matched, done.retried, done.running, done.waits_for) == (20, 20, False, None)
    assert len(sim.arrivals) == 120
    assert most_in_a_second(sim) <= 10


@on_simulated_host()
async def test_different_reasons_of_one_pool_come_one_after_the_other(sim: SimulatedHost) -> None:
    """No letter is in both, but it is the pool's receiver that would get the sum of their rates."""
    await bury(sim, 30, "a:b", pool="p")
    await bury(sim, 30, "c:d", pool="p")
    first = await sim.jobs.dead_retry_all(path="a:b", pool="p", rate_per_second=10)
    second = await sim.jobs.dead_retry_all(path="c:d", pool="p", rate_per_second=10)
    assert (first.matched, second.matched) == (30, 30)
    await sim.sleep(10)

    assert len(sim.arrivals) == 60
    assert most_in_a_second(sim) <= 10


@on_simulated_host()
async def test_different_pools_are_retried_side_by_side(sim: SimulatedHost) -> None:
    for pool in ("p", "q"):
        await bury(sim, 30, pool=pool)
    for pool in ("p", "q"):
        assert (await sim.jobs.dead_retry_all(pool=pool, rate_per_second=10)).waits_for is None
    await sim.sleep(4)

    assert len(sim.arrivals) == 60


@on_simulated_host()
async def test_letters_parked_later_are_matched_by_another_one(sim: SimulatedHost) -> None:
    await bury(sim, 50)
    await sim.jobs.dead_retry_all(all=True, rate_per_second=1)
    sim.reply = lambda one: GONE if one.body["functionPath"] == "new:one" else OK
    await sim.jobs.run_after(0, "new:one")
    await sim.sleep(3)
    sim.reply = lambda one: OK
    assert (await sim.jobs.dead_retry_all(all=True)).matched == 1
    await sim.sleep(60)

    assert (await sim.jobs.status()).dead == 0


@on_simulated_host()
async def test_after_a_stop_another_one_may_begin_and_takes_what_is_left(sim: SimulatedHost) -> None:
    await bury(sim, 50)
    first = await sim.jobs.dead_retry_all(all=True, rate_per_second=10)
    await sim.sleep(1.5)
    assert await sim.jobs.redrive_stop(first.redrive_id)
    again = await sim.jobs.dead_retry_all(all=True, rate_per_second=10)
    assert (again.matched, again.waits_for) == (30, None)
    await sim.sleep(10)

    assert len(sim.arrivals) == 50


@on_simulated_host()
async def test_one_that_waited_takes_over_when_the_one_before_it_is_stopped(sim: SimulatedHost) -> None:
    await bury(sim, 50, "a:b")
    await bury(sim, 10, "c:d", pool="p")
    first = await sim.jobs.dead_retry_all(path="a:b", rate_per_second=10)
    second = await sim.jobs.dead_retry_all(all=True, rate_per_second=10)
    assert (first.matched, second.matched) == (50, 10)
    await sim.sleep(1.5)
    await sim.jobs.redrive_stop(first.redrive_id)
    await sim.sleep(20)
    done = await sim.jobs.redrive(second.redrive_id)

    assert done is not None and (done.running, done.matched, done.retried) == (False, 40, 40)
    assert len(sim.arrivals) == 60


@on_simulated_host()
async def test_a_crash_in_between_changes_nothing_of_that(sim: SimulatedHost) -> None:
    await bury(sim, 100)
    await bury(sim, 20, pool="p")
    await bury(sim, 10, "c:d")
    first = await sim.jobs.dead_retry_all(path="a:b", rate_per_second=10)
    second = await sim.jobs.dead_retry_all(all=True, rate_per_second=10)
    await sim.sleep(1.5)
    await sim.crash()
    await sim.open()
    assert await refused(sim, path="a:b") == first.redrive_id
    assert await refused(sim, path="c:d") == second.redrive_id
    await sim.sleep(40)

    assert most_in_a_second(sim) <= 20  # with what the crash gave back, which is no retry
    ends = [await sim.jobs.redrive(one.redrive_id) for one in (first, second)]
    assert [(one.running, one.retried) for one in ends if one is not None] == [(False, 120), (False, 10)]
    assert (await sim.jobs.status()).dead == 0
