"""How handlers are run, and what their ends mean for the job."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.dispatch.worker.fake_queue import WorkerFixture, on_fake_queue, on_fake_queue_with_threads
from tocsin import Context, Handlers, RemoteScheduler, RetryLater, TerminalError
from tocsin.dispatch import values
from tocsin.dispatch.pulled import Parent
from tocsin.dispatch.retry import Retry
from tocsin.errors import InvalidInputError, SettingsError

FAILED = {"ok": False, "retryable": True, "delay": None, "charge": True}


@on_fake_queue
async def test_a_handler_gets_args_and_context_and_its_return_is_the_result(workers: WorkerFixture) -> None:
    when = datetime(2027, 1, 1, tzinfo=UTC)
    seen: list[Any] = []

    async def work(args: Any, context: Context) -> Any:
        seen.append((args, context.id, context.attempt, context.webhook_id, context.fence, context.parent))
        return {"at": when}

    async with workers.worker({"work": work}):
        workers.queue.put("work", {"at": when})
        [settled] = await workers.queue.all_settled()

    assert seen == [({"at": when}, "job-1", 1, "job-1:1-1", (1, 1), None)]
    assert settled.said == {"ok": True, "result": {"at": when}}


@on_fake_queue
async def test_the_parent_s_result_comes_with_a_job_of_a_chain(workers: WorkerFixture) -> None:
    seen: list[Any] = []

    async def work(args: Any, context: Context) -> None:
        assert context.parent is not None
        seen.append((context.parent.id, context.parent.result))

    async with workers.worker({"work": work}):
        workers.queue.put(
            "work", parent=Parent(id="before", raw_result=msgspec.Raw(b'{"$tocsin":"decimal","v":"1.5"}'))
        )
        await workers.queue.all_settled()

    assert [(id, str(result)) for id, result in seen] == [("before", "1.5")]


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("no such invoice"), {**FAILED, "error": "ValueError: no such invoice"}),
        (TerminalError("never"), {**FAILED, "error": "never", "retryable": False}),
        (RetryLater("5m", "closed"), {**FAILED, "error": "closed", "delay": 300, "charge": False}),
        (RetryLater("3d", "shut"), {**FAILED, "error": "shut", "delay": 3 * 86_400, "charge": False}),
        (RetryLater(0, "now"), {**FAILED, "error": "now", "delay": 1, "charge": False}),
        (RetryLater(10**5000, "ever"), {**FAILED, "error": "ever", "delay": 36_600 * 86_400, "charge": False}),
        (SystemExit(3), {**FAILED, "error": "SystemExit: 3"}),
        (ExceptionGroup("two", [ValueError("a")]), {**FAILED, "error": "ExceptionGroup: two (1 sub-exception)"}),
        (asyncio.CancelledError(), {**FAILED, "error": "the handler was cancelled, and not by its worker"}),
        (
            ValueError("half \ud800 and " + "x" * 9_000),
            {**FAILED, "error": ("ValueError: half ? and " + "x" * 9_000)[:2_000]},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("in_thread", [False, True])
def test_what_a_handler_raises_decides_what_becomes_of_the_job(
    raised: BaseException, said: dict[str, Any], in_thread: bool
) -> None:
    def plain(args: Any) -> None:
        raise raised

    async def coroutine(args: Any) -> None:
        raise raised

    @(on_fake_queue_with_threads if in_thread else on_fake_queue)
    async def test(workers: WorkerFixture) -> None:
        async with workers.worker({"work": plain if in_thread else coroutine}):
            workers.queue.put("work")
            [settled] = await workers.queue.all_settled()
            assert settled.said == said

    test()


def test_what_asks_to_come_later_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def work(args: Any) -> None:
        raise RetryLater("5m", "closed")

    @on_fake_queue
    async def test(workers: WorkerFixture) -> None:
        async with workers.worker({"work": work}):
            workers.queue.put("work")
            await workers.queue.all_settled()

    with caplog.at_level("INFO", "tocsin.worker"):
        test()
    [line] = [one for one in caplog.records if one.name == "tocsin.worker"]
    assert (line.levelname, line.exc_info) == ("INFO", None)
    assert line.getMessage() == "job job-1: work asks to be called again in 300 s: closed"


@on_fake_queue
async def test_what_returns_within_its_clean_up_is_done(workers: WorkerFixture) -> None:
    async def work(args: Any) -> str:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            await asyncio.sleep(args)
        return "through"

    handlers = Handlers()
    handlers.register("test", {"work": work}, timeout=10)
    async with workers.worker(handlers):
        workers.queue.put("work", 4)
        [settled] = await workers.queue.all_settled()
        assert settled.said == {"ok": True, "result": "through"}
        workers.queue.put("work", 6)
        [_, failed] = await workers.queue.all_settled(2)
        assert failed.said["error"].startswith("timed out after 10 s; it did not stop")


@on_fake_queue
async def test_a_result_that_cannot_be_kept_ends_the_job_once_and_says_where(workers: WorkerFixture) -> None:
    ran: list[str] = []

    async def odd(args: Any) -> Any:
        ran.append("odd")
        return {"answer": [object()]}

    async def large(args: Any) -> Any:
        ran.append("large")
        return "x" * 70_000

    async with workers.worker({"odd": odd, "large": large}):
        workers.queue.put("odd")
        [first] = await workers.queue.all_settled()
        workers.queue.put("large")
        [_, second] = await workers.queue.all_settled(2)

    assert ran == ["odd", "large"]
    assert not first.said["retryable"] and "result.answer[0] is an object" in first.said["error"]
    assert not second.said["retryable"] and "65536 bytes" in second.said["error"]
    assert first.said["error"].startswith("the handler succeeded, but what it returned cannot be kept: ")


@on_fake_queue
async def test_a_path_nobody_handles_goes_back_uncharged_for_a_worker_that_knows_it(workers: WorkerFixture) -> None:
    async with workers.worker({"work": _slow}):
        workers.queue.put("other")
        workers.queue.put(None, workflow="onboarding")
        first, second = sorted(await workers.queue.all_settled(2), key=lambda one: str(one.said["error"]))

    assert first.said == {
        "ok": False, "error": "this worker has no handler for the function path 'other'", "retryable": True,
        "delay": 30, "charge": False,
    }  # fmt: skip
    assert "the workflow 'onboarding'" in second.said["error"]


def test_a_path_nobody_handles_is_told_once_a_minute_with_its_queue(caplog: pytest.LogCaptureFixture) -> None:
    @on_fake_queue
    async def claimed(workers: WorkerFixture) -> None:
        async with workers.worker({}):
            for wait, path in ((0, "other"), (1, "other"), (1, "another"), (60, "other")):
                await asyncio.sleep(wait)
                workers.queue.put(path)
            await workers.queue.all_settled(4)

    claimed()
    said = [one.getMessage() for one in caplog.records if one.name == "tocsin.worker"]
    assert said[0].startswith("this worker has no handlers yet")
    assert ["'other'" in line for line in said[1:]] == [True, False, True]
    assert all("goes back to queue" in line and "no handler for the function path" in line for line in said[1:])


@on_fake_queue
async def test_a_coroutine_that_takes_too_long_is_cancelled_and_has_failed(workers: WorkerFixture) -> None:
    handlers = Handlers()
    ended: list[str] = []

    async def slow(args: Any, context: Context) -> None:
        assert context.remaining_s() == context.timeout_s
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cleaned up")
            raise

    handlers.register("slow ones", {"work": slow, "short": slow}, timeout="5s")
    async with workers.worker(handlers) as worker:
        workers.queue.put("work")
        [settled] = await workers.queue.all_settled()
        workers.queue.put("work", timeout_ms=1_000)
        handlers.register("shorter", {"job's own": _slow})
        workers.queue.put("job's own", timeout_ms=2_000)
        others = (await workers.queue.all_settled(3))[1:]

    assert settled.said == {**FAILED, "error": "timed out after 5 s"}
    assert settled.at == pytest.approx(5, abs=0.1)
    assert [one.said["error"] for one in others] == ["timed out after 1 s", "timed out after 2 s"]
    assert ended == ["cleaned up"] * 2
    assert worker.tally.retrying == 3


async def _slow(args: Any) -> None:
    await asyncio.sleep(60)


@on_fake_queue
async def test_a_coroutine_that_does_not_stop_is_said_to_go_on_and_keeps_its_place(workers: WorkerFixture) -> None:
    let_go = asyncio.Event()

    async def stubborn(args: Any) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async with workers.worker({"work": stubborn}, concurrency=1) as worker:
        workers.queue.put("work", timeout_ms=1_000)
        [settled] = await workers.queue.all_settled()
        assert settled.said["error"] == "timed out after 1 s; it did not stop and is still running"
        assert settled.at == pytest.approx(6, abs=0.1)
        workers.queue.put("work")
        await asyncio.sleep(30)
        assert len(worker.snapshot().jobs) == 1 and len(workers.queue.waiting) == 1
        let_go.set()
        await workers.queue.all_settled(2)


@on_fake_queue
async def test_a_group_s_wrapper_stands_around_every_execution_of_it(workers: WorkerFixture) -> None:
    steps: list[str] = []

    async def wrapper(run: Any, context: Context) -> Any:
        steps.append(f"before {context.function_path}")
        try:
            return await run()
        finally:
            steps.append("after")

    async def work(args: Any) -> int:
        steps.append("work")
        return 5

    async def other(args: Any) -> None:
        steps.append("other")

    handlers = Handlers()
    handlers.register("billing", {"work": work}, wrapper=wrapper)
    handlers.register("others", {"other": other})
    async with workers.worker(handlers):
        workers.queue.put("work")
        [settled] = await workers.queue.all_settled()
        workers.queue.put("other")
        await workers.queue.all_settled(2)

    assert steps == ["before work", "work", "after", "other"]
    assert settled.said["result"] == 5


@on_fake_queue_with_threads
async def test_a_clean_up_takes_out_its_own_group_once_and_nothing_registered_since(workers: WorkerFixture) -> None:
    handlers = Handlers()
    clean_up = handlers.register("plugin", {"work": lambda args: 1})
    with pytest.raises(SettingsError, match="'work' has a handler of 'plugin' already"):
        handlers.register("other", {"fine": lambda args: 1, "work": lambda args: 2})
    assert len(handlers) == 1, "all or none"

    clean_up()
    handlers.register("other", {"work": lambda args: 2})
    clean_up()

    async with workers.worker(handlers):
        workers.queue.put("work")
        [settled] = await workers.queue.all_settled()
    assert settled.said["result"] == 2


@pytest.mark.parametrize(
    ("register", "why"),
    [
        (lambda handlers: handlers.register("", {}), "owner"),
        (lambda handlers: handlers.register("o", {"": print}), "named by a text"),
        (lambda handlers: handlers.register("o", {"p": 5}), "must be a function"),
        (lambda handlers: handlers.register("o", {"p": lambda a, b, c: None}), "needs 3 arguments"),
        (lambda handlers: handlers.register("o", {}, wrapper=lambda run, context: run()), "async def"),
        (lambda handlers: handlers.register("o", {}, timeout="soon"), "timeout of 'o'"),
        (lambda handlers: handlers.register("o", {}, timeout=0), "longer than nothing"),
        (lambda handlers: handlers.handler(print), "name the function"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_registered(register: Any, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        register(Handlers())


@on_fake_queue
async def test_will_retry_knows_the_ladder_the_expiry_and_the_kind_of_error(workers: WorkerFixture) -> None:
    answers: list[bool] = []

    async def work(args: Any, context: Context) -> None:
        answers.extend(context.will_retry(error) for error in (ValueError(), TerminalError("x"), RetryLater(5)))

    now = workers.queue.clock.now_ms()
    async with workers.worker({"work": work}, concurrency=1):
        workers.queue.put("work")
        workers.queue.put("work", attempts=5)
        workers.queue.put("work", attempts=1, retry=Retry(max_retries=1))
        workers.queue.put("work", expires_at=now + 20_000)
        await workers.queue.all_settled(4)

    yes, no = True, False
    assert answers == [yes, no, yes, no, no, yes, no, no, yes, no, no, yes]


@on_fake_queue
async def test_args_that_cannot_be_read_are_a_failure_of_the_job(workers: WorkerFixture) -> None:
    async with workers.worker({"work": _slow}):
        workers.queue.put("work")
        bad = msgspec.structs.replace(workers.queue.waiting[0], raw_args=msgspec.Raw(b'{"$tocsin":"date","v":"x"}'))
        workers.queue.waiting[0] = bad
        [settled] = await workers.queue.all_settled()

    assert settled.said["error"].startswith("InvalidInputError: args has the key")
    assert settled.said["retryable"] and settled.said["charge"]


# ---- Words ---------------------------------------------------------------------------------------


def test_words_are_those_of_whoever_reads_them() -> None:
    handlers = Handlers()
    with pytest.raises(SettingsError, match=r"must take \(args\) or \(args, context\)"):
        handlers.register("test", {"mail:send": lambda: None})
    handlers.register("test", {"mail:send": lambda args: None}, workflows={"bill": lambda args: None})
    with pytest.raises(SettingsError, match="url must be a URL"):
        RemoteScheduler("ftp://x")
    with pytest.raises(InvalidInputError, match="which result cannot hold"):
        values.encode([object()], "result")

    assert repr(handlers) == "Handlers('mail:send', 'bill')"
    assert repr(Parent(id="a", raw_result=msgspec.Raw(b'"secret"'))) == "Parent('a')"
