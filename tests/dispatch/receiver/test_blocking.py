"""Callers that block: what they share, how they end, and what they are told where they cannot be served."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from tests.dispatch.receiver.signed_callbacks import ReceiverFixture, error
from tocsin import Accepted
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError

DEADLINE_S = 10.0
user: ContextVar[str] = ContextVar("user")


def nothing(args: Any) -> None: ...


@contextmanager
def receiving(**options: Any) -> Iterator[ReceiverFixture]:
    """A receiver that ends with its test, with the thread of its loop."""
    fixture, before = ReceiverFixture(**options), set(threading.enumerate())
    with fixture.receiver:
        yield fixture
    assert not [thread for thread in {*threading.enumerate()} - before if thread.name == "tocsin-receiver"]


def send(fixture: ReceiverFixture, path: str = "invoices:send", number: int = 1) -> Answer:
    """A new attempt, or another job with another number."""
    return fixture.receiver.handle_sync(
        *fixture.scheduler.request(number, function_path=path, incarnation=f"i{number}")
    )


def until_stopping(fixture: ReceiverFixture) -> None:
    while fixture.receiver.handle_sync({}, b"").status != 503:
        time.sleep(0)


@contextmanager
def beginning(work: Callable[[], Any]) -> Iterator[Any]:
    """Work on another thread, ended at the end."""
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit(work)


def test_handlers_run_in_the_context_of_their_caller_and_coroutines_in_one_loop() -> None:
    seen: list[str] = []
    loops: set[Any] = set()

    async def coroutine(args: Any) -> None:
        await asyncio.sleep(0)
        seen.append(user.get())
        loops.add(asyncio.get_running_loop())

    with receiving() as fixture:
        fixture.receiver.register({"invoices:send": coroutine, "invoices:check": lambda args: seen.append(user.get())})
        token = user.set("ada")
        for number in range(2):
            assert send(fixture, number=number).status == 200
        assert send(fixture, "invoices:check", 2).status == 200
        user.reset(token)

    assert seen == ["ada"] * 3
    assert len(loops) == 1


def test_a_task_that_a_coroutine_begins_lives_on_after_its_request() -> None:
    go, ended = threading.Event(), threading.Event()
    tasks = []

    async def transfer() -> None:
        await asyncio.to_thread(go.wait, DEADLINE_S)
        ended.set()

    async def accept(args: Any) -> Accepted:
        tasks.append(asyncio.create_task(transfer()))
        return Accepted()

    with receiving() as fixture:
        fixture.receiver.register({"invoices:send": accept})
        assert send(fixture).status == 202
        go.set()
        assert ended.wait(DEADLINE_S)


def test_several_callers_work_at_once_and_a_job_at_work_is_declined() -> None:
    both = threading.Barrier(3)

    with receiving() as fixture:
        fixture.receiver.register({"invoices:send": lambda args: both.wait(DEADLINE_S)})
        with beginning(lambda: send(fixture, number=1)) as first, beginning(lambda: send(fixture, number=2)) as second:
            while len(fixture.receiver.dedup) < 2:  # type: ignore[arg-type]
                assert not first.done() and not second.done()
            assert send(fixture, number=1).headers["tocsin-declined"] == "1"
            both.wait(DEADLINE_S)
        assert [first.result().status, second.result().status] == [200, 200]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_close_waits_for_handlers_and_takes_no_more(is_async: bool) -> None:
    begun, go = threading.Event(), threading.Event()
    fixture = ReceiverFixture()

    def plain(args: Any) -> None:
        begun.set()
        assert go.wait(DEADLINE_S)

    async def coroutine(args: Any) -> None:
        begun.set()
        await asyncio.to_thread(go.wait, DEADLINE_S)

    fixture.receiver.register({"invoices:send": coroutine if is_async else plain})
    with beginning(lambda: send(fixture)) as answer:
        assert begun.wait(DEADLINE_S)
        with beginning(fixture.receiver.close) as closing:
            until_stopping(fixture)
            assert error(send(fixture, number=2))["message"] == "the receiver is stopping"
            assert not closing.done()
            go.set()

    assert answer.result().status == 200
    closing.result()
    fixture.receiver.close()  # once more is no error
    fixture.receiver.open()
    begun.clear()
    assert send(fixture, number=3).status == 200
    fixture.receiver.close()


def test_a_coroutine_that_does_not_end_is_cancelled_and_its_job_comes_again() -> None:
    begun, runs = threading.Event(), list[int]()
    fixture = ReceiverFixture()

    async def endless(args: Any) -> None:
        runs.append(args)
        begun.set()
        if len(runs) == 1:
            await asyncio.Event().wait()

    fixture.receiver.register({"invoices:send": endless})
    with beginning(lambda: send(fixture)) as answer:
        assert begun.wait(DEADLINE_S)
        fixture.receiver.close(drain_s=0)

    assert (answer.result().status, answer.result().headers["retry-after"]) == (503, "5")
    with fixture.receiver:
        assert send(fixture).status == 200


def test_an_app_that_awaits_closes_what_blocks_too() -> None:
    begun, go = threading.Event(), threading.Event()
    fixture = ReceiverFixture()

    def plain(args: Any) -> None:
        begun.set()
        assert go.wait(DEADLINE_S)

    fixture.receiver.register({"invoices:send": plain})

    async def app() -> None:
        closing = asyncio.create_task(fixture.receiver.aclose())
        await asyncio.sleep(0.01)
        assert not closing.done()
        go.set()
        await closing

    with beginning(lambda: send(fixture)) as answer:
        assert begun.wait(DEADLINE_S)
        asyncio.run(app())

    assert answer.result().status == 200
    assert send(fixture).status == 503


def test_where_an_event_loop_runs_nothing_blocks() -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": nothing})

    async def view() -> None:
        with pytest.raises(RuntimeError, match=r"await handle\(\)"):
            send(fixture)
        with pytest.raises(RuntimeError, match=r"await aclose\(\)"):
            fixture.receiver.close()

    asyncio.run(view())


def test_ctrl_c_ends_the_caller_and_gives_the_job_back() -> None:
    runs: list[int] = []

    def interrupted(args: Any) -> None:
        runs.append(args)
        if len(runs) == 1:
            raise KeyboardInterrupt

    with receiving() as fixture:
        fixture.receiver.register({"invoices:send": interrupted})
        with pytest.raises(KeyboardInterrupt):
            send(fixture)
        assert send(fixture).status == 200, "the loop goes on, and the claim was given up"


def test_a_caller_that_is_ended_while_it_waits_gives_the_job_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server's own time limit does, which raises SystemExit in the thread of the request."""
    released = threading.Event()
    runs: list[int] = []

    async def endless(args: Any) -> None:
        runs.append(args)
        if len(runs) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                released.set()

    def ended(self: Any) -> Any:
        while not runs:
            pass
        raise SystemExit(1)

    with receiving() as fixture:
        fixture.receiver.register({"invoices:send": endless})
        with monkeypatch.context() as patched:
            patched.setattr("tocsin.dispatch.receiver.blocking.SimpleQueue", type("Ended", (), {"get": ended}))
            with pytest.raises(SystemExit):
                send(fixture)
        assert released.wait(DEADLINE_S)
        while (answer := send(fixture)).status == 409:  # its claim goes a moment later
            pass
        assert answer.status == 200


def test_a_receiver_that_is_forgotten_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": nothing})
    send(fixture)
    (thread,) = {*threading.enumerate()} - before
    del fixture
    gc.collect()
    thread.join(DEADLINE_S)

    assert not thread.is_alive()


def test_a_forked_process_has_a_loop_of_its_own() -> None:
    async def coroutine(args: Any) -> None:
        await asyncio.sleep(0)

    with receiving() as fixture:
        fixture.receiver.register({"invoices:send": coroutine})
        assert send(fixture).status == 200
        if (child := os.fork()) == 0:
            signal.alarm(int(DEADLINE_S))
            try:
                os._exit(0 if send(fixture, number=2).status == 200 else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_without_a_thread_the_job_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": nothing})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        answer = send(fixture)

    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    with fixture.receiver:
        assert send(fixture).status == 200


def test_a_receiver_that_is_being_closed_is_not_opened() -> None:
    begun, go = threading.Event(), threading.Event()
    fixture = ReceiverFixture()

    def plain(args: Any) -> None:
        begun.set()
        assert go.wait(DEADLINE_S)

    fixture.receiver.register({"invoices:send": plain})
    with beginning(lambda: send(fixture)):
        assert begun.wait(DEADLINE_S)
        with beginning(fixture.receiver.close):
            until_stopping(fixture)
            with pytest.raises(SettingsError, match="still being closed"):
                fixture.receiver.open()
            go.set()
