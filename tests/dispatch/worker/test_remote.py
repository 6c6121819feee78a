"""`RemoteScheduler`: the client of apps and workers far from their host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.dispatch.worker.claim_sources import each_remote, each_source, host_and_source, until
from tocsin import Job, RemoteScheduler, Retry, Worker
from tocsin.errors import (
    DuplicateScheduleIdError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    NotYetError,
    SettingsError,
    UnauthenticatedError,
    UnreachableError,
)

pytestmark = pytest.mark.anyio


@each_remote
async def test_an_app_without_a_host_schedules_looks_waits_and_cancels(kind: str) -> None:
    async with host_and_source(kind) as w, w.remote("secret-app") as jobs:
        when = datetime(2030, 1, 1, tzinfo=UTC)
        assert await jobs.run_at(when, "p", {"d": timedelta(1)}, id="a", queue="q", retry=Retry(max_retries=1)) == "a"
        record = await jobs.get("a")
        assert record is not None
        assert record.args == {"d": timedelta(1)}
        assert record.scheduled_for == int(when.timestamp() * 1000)
        assert record.retry == Retry(max_retries=1)
        with pytest.raises(DuplicateScheduleIdError) as refused:
            await jobs.run_after("5m", "p", id="a", queue="q")
        assert refused.value.details["state"] == "pending"
        cancelled = await jobs.cancel("a")
        assert (cancelled.cancelled, cancelled.was_running) == (True, False)
        assert await jobs.get("a") is None

        good, taken, bad = await jobs.submit_many(
            [
                Job(
                    path="p",
                    after=0,
                    options={
                        "id": "b",
                        "queue": "q",
                        "keep_result": "1h",
                        "then": [Job(path="x", options={"queue": "never"})],
                    },
                ),
                Job("p", at=when, options={"id": "b", "queue": "q"}),
                Job(workflow="w", after=5, options={"pool": "a b", "queue": "q"}),
            ]
        )
        assert not isinstance(good, Exception) and good.id == "b" and good.created
        assert isinstance(taken, DuplicateScheduleIdError)
        assert isinstance(bad, InvalidInputError) and "pool" in bad.message

        with pytest.raises(NotYetError, match="waiting"):
            await jobs.result("b", 0.05)
        [job] = await w.jobs.claim("q", wait=5)
        waiting = asyncio.create_task(jobs.result("b", "1m"))
        await asyncio.sleep(0.05)
        await w.jobs.settle(job.id, job.lease, result={"x": Decimal("1.50"), "big": 2**70})
        assert await waiting == {"x": Decimal("1.50"), "big": 2**70}
        with pytest.raises(NotFoundError):
            await jobs.result("nobody", 0)


@each_remote
async def test_refusals_come_back_as_the_errors_they_were_and_tokens_are_never_shown(kind: str) -> None:
    async with host_and_source(kind) as w:
        async with w.remote("secret-app") as app, w.remote("wrong-secret") as wrong, w.remote(None) as none:
            with pytest.raises(ForbiddenError):
                await app.claim()
            for client in (wrong, none):
                with pytest.raises(UnauthenticatedError) as refused:
                    await client.claim("q")
                assert "wrong-secret" not in f"{refused.value!r} {client!r}"
            with pytest.raises(UnauthenticatedError):
                await Worker(wrong, {}).run()
        with pytest.raises(InvalidInputError, match="lease_ms must be"):
            await w.source.claim("q", lease_ms=5)
        with pytest.raises(InvalidInputError, match="no 'initiator' over HTTP"):
            await w.source.run_after(0, "p", initiator="alice")
        with pytest.raises(InvalidInputError, match="time zone"):
            await w.source.run_at(datetime(2027, 1, 1), "p")
        with pytest.raises(InvalidInputError, match=r"args\.x is"):
            await w.source.run_after(0, "p", {"x": object()})
        [refused_job] = await w.source.submit_many([{"path": "p"}])
        assert "must be a Job, not dict" in str(refused_job)
    wrong_options: list[dict[str, Any]] = [
        {"token": "a b"},
        {"instance": "a/b"},
        {"instance": ".."},
        {"url": "ftp://x"},
    ]
    for options in wrong_options:
        with pytest.raises(SettingsError):
            RemoteScheduler(**options)


async def test_what_was_lost_on_its_way_back_is_scheduled_once() -> None:
    """The answer of the first request is lost; the same key makes the second one the same job."""
    async with host_and_source("remote") as w:
        lost = Losing(httpx.ASGITransport(w.app))
        async with RemoteScheduler("http://t", token="secret-app", instance="t", transport=lost) as jobs:
            id = await jobs.run_after("5m", "p", queue="q")
            [record] = (await w.jobs.list()).records
            assert record.id == id
            assert lost.asked == 2
            lost.left = 1
            found = await jobs.get(id)
            assert found is not None and found.function_path == "p" and lost.left == 0
            lost.left = 1
            with pytest.raises(UnreachableError):
                await jobs.cancel(id)


async def test_a_result_is_waited_for_through_a_restart_of_the_server() -> None:
    async with host_and_source("remote") as w:
        lost = Losing(httpx.ASGITransport(w.app))
        async with RemoteScheduler("http://t", token="secret-ops", instance="t", transport=lost) as jobs:
            await w.jobs.run_after(0, "p", id="a", queue="q", keep_result="1h")
            [job] = await w.jobs.claim("q")
            await w.jobs.settle(job.id, job.lease, result=7)
            assert await jobs.result("a", 5) == 7
            assert lost.asked == 2
        async with RemoteScheduler("http://t", token="secret-ops", instance="t", transport=lost, patience_s=0) as jobs:
            lost.left = 1
            with pytest.raises(UnreachableError):
                await jobs.result("a", 5)


@each_source
async def test_a_job_is_written_by_position_and_named_where_it_is_wrong(kind: str) -> None:
    async with host_and_source(kind) as w:
        [right] = await w.source.submit_many([Job("p", {"n": 1}, after=0, options={"queue": "q"})])
        assert not isinstance(right, Exception) and right.created
        wrong = [Job("p", 1, after=0, options={"queue": "q"}), Job("p", object(), after=0, options={"queue": "q"})]
        try:
            [_, refused] = await w.source.submit_many(wrong)
        except InvalidInputError as error:
            refused = error
        assert "jobs[1]: args is an object" in str(refused)


class Losing(httpx.AsyncBaseTransport):
    """Loses as many answers as are `left` to lose."""

    def __init__(self, inner: httpx.ASGITransport) -> None:
        self.inner, self.left, self.asked = inner, 1, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        answer = await self.inner.handle_async_request(request)
        if self.left:
            self.left -= 1
            raise httpx.ReadError("the line is cut")
        return answer


async def test_a_claim_answered_in_the_instant_it_is_cancelled_is_given_back() -> None:
    async with host_and_source("remote") as w:
        await w.jobs.run_after(0, "p", id="a", queue="q")
        held = Holding(httpx.ASGITransport(w.app))
        async with RemoteScheduler("http://t", token="secret-ops", instance="t", transport=held) as jobs:
            claiming = asyncio.create_task(jobs.claim("q"))
            await held.answered.wait()
            held.deaf = True
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            assert claiming.cancelled()
        record = await w.jobs.get("a")
        assert record is not None and (record.state, record.attempts) == ("waiting", 0)


class Holding(httpx.AsyncBaseTransport):
    """Has the answer of a claim, and gives it although it is cancelled: it was read already."""

    def __init__(self, inner: httpx.ASGITransport) -> None:
        self.inner, self.answered, self.deaf = inner, asyncio.Event(), False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self.inner.handle_async_request(request)
        if request.url.path.endswith("/claim"):
            self.answered.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
        return answer


class Garbled(httpx.AsyncBaseTransport):
    """The first settlement is answered otherwise."""

    def __init__(self, app: Any, answer: Callable[[], httpx.Response]) -> None:
        self._app, self._answer, self.garbled = httpx.ASGITransport(app), answer, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/complete") and not self.garbled:
            self.garbled += 1
            return self._answer()
        return await self._app.handle_async_request(request)


def undecodable() -> httpx.Response:
    return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))


def a_fault_of_the_server() -> httpx.Response:
    return httpx.Response(500, json={"error": {"code": "INTERNAL", "message": "something is wrong here"}})


@pytest.mark.parametrize("answer", [undecodable, a_fault_of_the_server])
async def test_an_answer_that_says_nothing_of_a_success_ends_no_job(answer: Callable[[], httpx.Response]) -> None:
    """It is said again, and not taken for a result that cannot be kept."""

    async def handle(args: Any) -> str:
        return "made"

    async with host_and_source("remote") as found:
        transport = Garbled(found.app, answer)
        source = RemoteScheduler("http://tocsin.example", token="secret-ops", instance="t", transport=transport)
        async with source, Worker(source, {"w:r": handle}, drain=5):
            id = await found.jobs.run_after(0, "w:r", queue="q", keep_result="1h")
            assert await found.jobs.result(id, timeout=10) == "made" and transport.garbled == 1


async def test_a_handler_that_raises_generator_exit_has_failed() -> None:
    def in_a_thread(args: Any) -> None:
        raise GeneratorExit

    async def in_the_loop(args: Any) -> None:
        raise GeneratorExit

    async with host_and_source("here") as found:
        handlers = {"w:loop": in_the_loop, "w:thread": in_a_thread}
        async with Worker(found.source, handlers, drain=5) as worker:
            for path in handlers:
                await found.jobs.run_after(0, path, queue="q", retry=Retry(max_retries=0))
            await until(lambda: worker.tally.dead == 2)
