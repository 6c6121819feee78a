"""Several bulk retries at once: no letter is matched twice, and no pool is retried faster than was asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError

GONE = Answer(410, {}, b"")


async def bury(stage: Stage, count: int, path: str = "a:b", **options: object) -> None:
    """So many dead letters; from then on the receiver takes everything."""
    stage.reply = lambda one: GONE
    if "pool" in options:
        await stage.jobs.set_pool(str(options["pool"]), max_concurrency=1_000)
    await stage.jobs.submit_many([Job(path=path, after=0, options=options) for _ in range(count)])
    await stage.sleep(2)
    stage.reply = lambda one: OK
    stage.arrivals.clear()


def most_in_a_second(stage: Stage) -> int:
    return max(Counter(at // 1000 for at, _ in stage.arrivals).values())


async def refused(stage: Stage, **filters: Any) -> str:
    """The id of the bulk retry that has all of these."""
    with pytest.raises(ConflictError) as caught:
        await stage.jobs.dead_retry_all(**filters)
    assert caught.value.details["redriveId"] in caught.value.message
    return str(caught.value.details["redriveId"])


@staged()
async def test_the_same_call_again_is_told_which_one_goes_on_and_starts_nothing(stage: Stage) -> None:
    await bury(stage, 100, pool="p")
    first = await stage.jobs.dead_retry_all(all=True, rate_per_second=10)
    for filters in ({"all": True}, {"pool": "p"}, {"path": "a:b"}, {"all": True, "dry_run": True}):
        assert await refused(stage, **filters) == first.redrive_id
    await stage.sleep(20)

    assert len(stage.arrivals) == 100
    assert most_in_a_second(stage) <= 10
    assert (await stage.jobs.dead_retry_all(all=True)).matched == 0


@staged()
async def test_two_calls_at_the_same_time_make_one(stage: Stage) -> None:
    await bury(stage, 100)
    calls = [stage.jobs.dead_retry_all(all=True, rate_per_second=10) for _ in range(5)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    [made] = [one for one in answers if not isinstance(one, BaseException)]
    assert {one.details["redriveId"] for one in answers if isinstance(one, ConflictError)} == {made.redrive_id}
    await stage.sleep(20)

    assert made.matched == 100
    assert len(stage.arrivals) == 100
    assert most_in_a_second(stage) <= 10


@staged()
async def test_filters_that_overlap_match_each_letter_once_and_share_the_pace(stage: Stage) -> None:
    await bury(stage, 40, "a:b", pool="p")
    await bury(stage, 60, "c:d", pool="p")
    await bury(stage, 20, "c:d")
    first = await stage.jobs.dead_retry_all(pool="p", rate_per_second=10)
    second = await stage.jobs.dead_retry_all(path="c:d", rate_per_second=10)
    assert (first.matched, second.matched, second.waits_for) == (100, 20, first.redrive_id)
    assert await refused(stage, all=True) == first.redrive_id
    await stage.sleep(5)
    waiting = await stage.jobs.redrive(second.redrive_id)
    assert waiting is not None and (waiting.retried, waiting.running) == (0, True)
    assert waiting.waits_for == first.redrive_id
    await stage.sleep(30)
    done = await stage.jobs.redrive(second.redrive_id)

    assert done is not None and (done.matched, done.retried, done.running, done.waits_for) == (20, 20, False, None)
    assert len(stage.arrivals) == 120
    assert most_in_a_second(stage) <= 10


@staged()
async def test_different_reasons_of_one_pool_come_one_after_the_other(stage: Stage) -> None:
    """No letter is in both, but it is the pool's receiver that would get the sum of their rates."""
    await bury(stage, 30, "a:b", pool="p")
    await bury(stage, 30, "c:d", pool="p")
    first = await stage.jobs.dead_retry_all(path="a:b", pool="p", rate_per_second=10)
    second = await stage.jobs.dead_retry_all(path="c:d", pool="p", rate_per_second=10)
    assert (first.matched, second.matched) == (30, 30)
    await stage.sleep(10)

    assert len(stage.arrivals) == 60
    assert most_in_a_second(stage) <= 10


@staged()
async def test_different_pools_are_retried_side_by_side(stage: Stage) -> None:
    for pool in ("p", "q"):
        await bury(stage, 30, pool=pool)
    for pool in ("p", "q"):
        assert (await stage.jobs.dead_retry_all(pool=pool, rate_per_second=10)).waits_for is None
    await stage.sleep(4)

    assert len(stage.arrivals) == 60


@staged()
async def test_letters_parked_later_are_matched_by_another_one(stage: Stage) -> None:
    await bury(stage, 50)
    await stage.jobs.dead_retry_all(all=True, rate_per_second=1)
    stage.reply = lambda one: GONE if one.body["functionPath"] == "new:one" else OK
    await stage.jobs.run_after(0, "new:one")
    await stage.sleep(3)
    stage.reply = lambda one: OK
    assert (await stage.jobs.dead_retry_all(all=True)).matched == 1
    await stage.sleep(60)

    assert (await stage.jobs.status()).dead == 0


@staged()
async def test_after_a_stop_another_one_may_begin_and_takes_what_is_left(stage: Stage) -> None:
    await bury(stage, 50)
    first = await stage.jobs.dead_retry_all(all=True, rate_per_second=10)
    await stage.sleep(1.5)
    assert await stage.jobs.redrive_stop(first.redrive_id)
    again = await stage.jobs.dead_retry_all(all=True, rate_per_second=10)
    assert (again.matched, again.waits_for) == (30, None)
    await stage.sleep(10)

    assert len(stage.arrivals) == 50


@staged()
async def test_one_that_waited_takes_over_when_the_one_before_it_is_stopped(stage: Stage) -> None:
    await bury(stage, 50, "a:b")
    await bury(stage, 10, "c:d", pool="p")
    first = await stage.jobs.dead_retry_all(path="a:b", rate_per_second=10)
    second = await stage.jobs.dead_retry_all(all=True, rate_per_second=10)
    assert (first.matched, second.matched) == (50, 10)
    await stage.sleep(1.5)
    await stage.jobs.redrive_stop(first.redrive_id)
    await stage.sleep(20)
    done = await stage.jobs.redrive(second.redrive_id)

    assert done is not None and (done.running, done.matched, done.retried) == (False, 40, 40)
    assert len(stage.arrivals) == 60


@staged()
async def test_a_crash_in_between_changes_nothing_of_that(stage: Stage) -> None:
    await bury(stage, 100)
    await bury(stage, 20, pool="p")
    await bury(stage, 10, "c:d")
    first = await stage.jobs.dead_retry_all(path="a:b", rate_per_second=10)
    second = await stage.jobs.dead_retry_all(all=True, rate_per_second=10)
    await stage.sleep(1.5)
    await stage.crash()
    await stage.open()
    assert await refused(stage, path="a:b") == first.redrive_id
    assert await refused(stage, path="c:d") == second.redrive_id
    await stage.sleep(40)

    assert most_in_a_second(stage) <= 20  # with what the crash gave back, which is no retry
    ends = [await stage.jobs.redrive(one.redrive_id) for one in (first, second)]
    assert [(one.running, one.retried) for one in ends if one is not None] == [(False, 120), (False, 10)]
    assert (await stage.jobs.status()).dead == 0
