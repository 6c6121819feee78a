"""The same worker on a real host, in its process and over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.dispatch.worker.claim_sources import each_source, host_and_source, until
from tocsin import ActorHost, Context, Job, Retry, TerminalError, Worker
from tocsin.errors import JobFailedError

pytestmark = pytest.mark.anyio


@each_source
async def test_a_chain_is_run_link_by_link_and_each_has_the_result_of_the_one_before(kind: str) -> None:
    when = datetime(2027, 1, 1, tzinfo=UTC)

    async def first(args: Any) -> Any:
        return {"n": args["n"] + 1, "when": when}

    def second(args: Any, context: Context) -> Any:
        assert context.parent is not None
        return [context.parent.id, context.parent.result, args]

    async with host_and_source(kind) as w:
        id = await w.jobs.run_after(
            0, "first", {"n": 1}, queue="mail",
            then=[Job(path="second", args=Decimal("0.1"), options={"queue": "mail", "keep_result": "1h"})],
        )  # fmt: skip
        async with Worker(w.source, {"first": first, "second": second}) as worker:
            await until(lambda: worker.tally.done == 2)
        history = await w.jobs.history(id)

    assert [one.outcome for one in history] == ["done"]
    assert worker.tally.claimed == worker.tally.done == 2


@each_source
async def test_failures_climb_the_ladder_die_and_are_told_to_hooks(kind: str) -> None:
    heard: list[Any] = []

    def on_retry(job: Any, error: BaseException, at: int | None) -> None:
        heard.append((job.id, type(error), at is not None))

    def on_final_failure(job: Any, error: BaseException, reason: str | None) -> None:
        heard.append((job.id, type(error), reason))

    async def fails(args: Any) -> None:
        raise args_error[args]("no")

    args_error: dict[str, type[Exception]] = {"later": ValueError, "never": TerminalError}
    async with host_and_source(kind) as w:
        await w.jobs.run_after(0, "work", "later", id="a", queue="q", retry=Retry(max_retries=1, base_ms=0))
        await w.jobs.run_after(0, "work", "never", id="b", queue="q", keep_result="1h")
        async with Worker(w.source, {"work": fails}, on_retry=on_retry, on_final_failure=on_final_failure):
            await until(lambda: len(heard) == 3)
        [a, b] = sorted((await w.jobs.dead()).records, key=lambda one: one.id)
        with pytest.raises(JobFailedError, match="dead"):
            await w.source.result("b", 1)

    assert sorted(heard, key=str) == [
        ("a", ValueError, "exhausted"),
        ("a", ValueError, True),
        ("b", TerminalError, "refused"),
    ]
    assert (a.attempts, a.attempt) == (2, 2)
    assert a.last_error is not None and a.last_error.message == "ValueError: no"
    assert b.reason == "refused"


@each_source
async def test_a_cancelled_job_s_handler_is_cancelled_and_its_slot_is_free(kind: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(args: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(100)
        finally:
            ended.set()

    async with host_and_source(kind) as w, Worker(w.source, {"work": work}, lease_ms=1_000) as worker:
        await w.jobs.run_after(0, "work", id="a", queue="q", pool="p")
        await begun.wait()
        assert (await w.source.cancel("a")).was_running
        await ended.wait()
        await until(lambda: worker.tally.cancelled)
        assert (await w.jobs.pool("p")).in_flight == 0


@each_source
async def test_a_drain_that_is_over_gives_jobs_back_uncharged_at_once(kind: str) -> None:
    begun = asyncio.Event()

    async def work(args: Any) -> None:
        begun.set()
        await asyncio.sleep(100)

    async with host_and_source(kind) as w:
        worker = Worker(w.source, {"work": work})
        worker.start()
        await w.jobs.run_after(0, "work", id="a", queue="q")
        await begun.wait()
        assert await worker.stop_and_drain(0) == 1
        record = await w.jobs.get("a")
        assert record is not None
        assert (record.state, record.attempts) == ("waiting", 0)
        assert record.last_error is not None and record.last_error.message == "interrupted by shutdown"
        [again] = await w.source.claim("q", wait=5)
        assert again.attempt == 2


@each_source
async def test_workers_are_shown_by_the_host(kind: str) -> None:
    async with host_and_source(kind) as w:
        heard: list[Any] = []
        async with Worker(w.source, {}, queues=["mail"], name="mailer", on_heartbeat=heard.append) as worker:
            await until(lambda: heard)
            page = await w.jobs.workers()
        [shown] = page.workers
        [after] = (await w.jobs.workers()).workers

    assert (shown.id, shown.name, shown.queues, shown.status) == (worker.info.id, "mailer", ["mail"], "idle")
    assert (after.status, after.lost) == ("stopped", False)


@each_source
async def test_claims_stop_within_an_instant_though_they_wait(kind: str) -> None:
    async with host_and_source(kind) as w:
        worker = Worker(w.source, {"work": lambda args: None}, wait="5m")
        worker.start()
        await asyncio.sleep(0.05)
        await asyncio.wait_for(worker.stop_and_drain(), 5)
        await w.jobs.run_after(0, "work", id="a", queue="q")
        [job] = await w.jobs.claim("q", wait=1)
        assert job.attempt == 1, "nobody else was given it"


async def test_a_worker_of_a_process_that_was_told_to_stop_before_its_host_opened_ends_without_an_error() -> None:
    host = ActorHost.open("memory:", insecure=True)
    host.runtime.told_to_stop()  # as its lifespan does where another process has the store
    worker = Worker(host.scheduler("t"), {}, queues="q")
    async with worker:
        await until(lambda: worker.status == "stopped")
    assert worker.refused is None
