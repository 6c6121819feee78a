"""`FakeScheduler`: the handle's checks and answers in memory, for unit tests."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin import Job, Retry
from tocsin.errors import DuplicateScheduleIdError, InvalidInputError, OverloadedError
from tocsin.testing import Call, FakeScheduler, attempts_at, lab

START = datetime(2027, 1, 1, tzinfo=UTC)
pytestmark = pytest.mark.anyio


async def test_calls_are_noted_and_jobs_are_there_and_never_run() -> None:
    jobs = FakeScheduler(now=START)
    id = await jobs.run_after("5m", "a:b", {"n": 1}, pool="p")
    await jobs.run_at(START - timedelta(days=1), "a:late", id="late")
    await jobs.schedules.put("daily", cron="0 8 * * *", path="a:c")
    await jobs.submit_many([Job("a:d", after="1h")])
    async with jobs.deferred() as later:
        later.run_after("2h", "a:e")

    assert jobs.calls == [
        Call("run_after", ("5m", "a:b", {"n": 1}), {"pool": "p"}),
        Call("run_at", (START - timedelta(days=1), "a:late"), {"id": "late"}),
        Call("schedules.put", ("daily",), {"cron": "0 8 * * *", "path": "a:c"}),
        Call("submit_many", ([Job("a:d", after="1h")],), {}),
    ]
    await jobs.pause()
    await jobs.pause(False)
    assert jobs.calls[4:] == [Call("pause", (), {}), Call("pause", (False,), {})]
    jobs.advance("3d")
    assert [job.function_path for job in await jobs.scheduled()] == ["a:late", "a:b", "a:d", "a:e"]
    assert {(job.state, job.attempt) for job in await jobs.scheduled()} == {("waiting", 0)}
    [job] = await jobs.assert_scheduled("a:b", at=START + timedelta(minutes=5))
    assert (job.id, job.state, job.pool) == (id, "waiting", "p")
    await jobs.refute_scheduled("a:x")
    with pytest.raises(AssertionError, match=r"no job with path='a:x' is scheduled. At 2027-01-04 00:00:00Z there is:"):
        await jobs.assert_scheduled("a:x")


async def test_checks_and_errors_are_those_of_the_real_one() -> None:
    jobs = FakeScheduler(now=START, catalog={"a:b": {"type": "object", "required": ["n"]}})
    with pytest.raises(InvalidInputError, match="delay"):
        await jobs.run_after(-1, "a:b", {"n": 1})
    with pytest.raises(InvalidInputError, match="n"):
        await jobs.run_after(1, "a:b", {})
    await jobs.run_after(1, "a:b", {"n": 1}, id="x")
    with pytest.raises(DuplicateScheduleIdError):
        await jobs.run_after(1, "a:b", {"n": 1}, id="x")
    assert (await jobs.cancel("x")).cancelled
    await jobs.run_after(1, "a:b", {"n": 1}, id="x")


async def test_failures_are_raised_as_often_as_was_said() -> None:
    jobs = FakeScheduler()
    jobs.fail(OverloadedError("busy"), times=2)
    for _ in range(2):
        with pytest.raises(OverloadedError, match="busy"):
            await jobs.run_after(1, "a:b")
    await jobs.run_after(1, "a:b")
    await jobs.assert_scheduled("a:b", count=1)


def test_one_fake_serves_several_event_loops() -> None:
    jobs = FakeScheduler(now=START)
    for number in range(3):
        asyncio.run(jobs.run_after(number, "a:b"))

    async def count() -> int:
        return len(await jobs.scheduled())

    assert asyncio.run(count()) == 3


async def test_readings_of_a_fake_must_be_awaited() -> None:
    jobs = FakeScheduler()
    with pytest.raises(TypeError, match="scheduled must be awaited"):
        assert jobs.scheduled("a:b")
    with pytest.warns(RuntimeWarning, match=r"assert_scheduled at .* was not awaited, so it checked nothing"):
        jobs.assert_scheduled("a:b")


RETRIES = st.builds(
    Retry,
    max_retries=st.integers(0, 6),
    backoff=st.sampled_from(["exponential", "linear"]),
    base_ms=st.integers(0, 100_000),
    max_ms=st.integers(0, 300_000),
)


@settings(max_examples=25, deadline=None)
@given(RETRIES)
def test_the_instants_of_attempts_are_those_of_a_host(retry: Retry) -> None:
    async def run() -> list[int]:
        async with lab({"a:fails": fails}, start=START) as t:
            await t.scheduler().run_after("1m", "a:fails", retry=retry)
            await t.advance("2h")
            assert len(await t.dead()) == 1
            return [one.at for one in t.deliveries]

    async def fails(args: object) -> None:
        raise ValueError("as tested")

    async def said() -> list[datetime]:
        jobs = FakeScheduler(now=START)
        return await jobs.attempts_at(await jobs.run_after("1m", "a:fails", retry=retry))

    expected = attempts_at(retry, START + timedelta(minutes=1))
    assert asyncio.run(said()) == expected
    assert asyncio.run(run()) == [int(each.timestamp() * 1000) for each in expected]
