"""Handlers: which are taken, how each is called, and the options of a receiver."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from tests.dispatch.receiver.signed_callbacks import NOW_MS, SECRET, ReceiverFixture, error
from tocsin import Accepted, Received, Receiver, RetryLater, TerminalError
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.outcome import classify
from tocsin.errors import SettingsError

pytestmark = pytest.mark.anyio


def no_args() -> None: ...
def three(a: Any, b: Any, c: Any) -> None: ...
def keyword(args: Any, *, db: Any) -> None: ...
def yields(args: Any) -> Any:
    yield 1


async def yields_too(args: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("handler", "why"),
    [(no_args, "needs 0"), (three, "a, b, c"), (keyword, "'db'"), (yields, "yield"), (yields_too, "yield"), (5, "int")],
)
def test_a_handler_that_does_not_fit_is_refused_when_registered(handler: Any, why: str) -> None:
    receiver = Receiver([SECRET])

    with pytest.raises(SettingsError, match=why):
        receiver.register({"good": lambda args: None, "invoices:send": handler})
    receiver.register({"good": lambda args: None})  # it was all or none


def test_a_path_has_one_handler() -> None:
    receiver = Receiver([SECRET])
    receiver.handler("invoices:send")(lambda args: None)

    with pytest.raises(SettingsError, match="has a handler already"):
        receiver.handler("invoices:send")(lambda args: None)
    with pytest.raises(SettingsError, match="name the function"):
        receiver.handler(lambda args: None)  # type: ignore[arg-type]


class Sender:
    """Handlers of all shapes."""

    async def method(self, args: Any, job: Received) -> Accepted:
        return Accepted()

    async def __call__(self, args: Any, job: Received, retries: int = 3) -> Accepted:
        return Accepted()


@pytest.mark.parametrize("handler", [Sender(), Sender().method, lambda args=None: Sender()(args, None)])  # type: ignore[arg-type]
async def test_methods_objects_and_functions_that_make_coroutines_are_handlers(handler: Any) -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": handler})

    assert (await fixture.send()).status == 202


async def test_plain_functions_run_in_a_few_threads_with_their_caller_s_context() -> None:
    fixture = ReceiverFixture(threads=2)
    request = contextvars.ContextVar[str]("request")
    request.set("r-1")
    seen: list[tuple[str, str]] = []
    both, most = threading.Barrier(2), threading.Semaphore(2)

    def send(args: Any) -> None:
        assert most.acquire(blocking=False), "more than two at once"
        both.wait(10)
        seen.append((threading.current_thread().name, request.get()))
        most.release()

    fixture.receiver.register({"invoices:send": send})

    answers = await asyncio.gather(*(fixture.send(id=f"job-{n}") for n in range(6)))

    assert [answer.status for answer in answers] == [200] * 6
    assert {context for _, context in seen} == {"r-1"}
    assert len({name for name, _ in seen}) == 2


async def test_work_whose_deadline_passed_while_it_waited_for_a_thread_is_not_begun() -> None:
    fixture = ReceiverFixture(threads=1)
    begun, go = threading.Event(), threading.Event()
    ran: list[str] = []

    def send(args: Any, job: Received) -> None:
        ran.append(job.id)
        begun.set()
        go.wait(10)

    fixture.receiver.register({"invoices:send": send})
    first = asyncio.create_task(fixture.send(id="first"))
    await asyncio.to_thread(begun.wait, 10)
    second = asyncio.create_task(fixture.send(id="second", timeout_ms=1_000))
    await asyncio.sleep(0.01)
    fixture.clock.forward(5)
    go.set()

    assert (await first).status == 200
    assert classify(await second, NOW_MS).verdict is Verdict.BUSY
    assert ran == ["first"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("max_body", 0), ("max_body", True), ("stale_s", 0), ("stale_s", float("nan")), ("threads", 0), ("threads", "8")],
)
def test_options_out_of_their_limits_are_named(option: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=option):
        Receiver([SECRET], **{option: value})


@pytest.mark.parametrize("secrets", [[], "whsec_text", [b"short"]])
def test_secrets_are_checked_at_once(secrets: Any) -> None:
    with pytest.raises(SettingsError):
        Receiver(secrets)


@pytest.mark.parametrize("value", [999, 3_600_001, True, "60s", 1.5])
def test_a_lease_that_the_scheduler_would_not_give_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="lease_ms"):
        Accepted(value)


@pytest.mark.parametrize("value", [-1, float("nan"), True, "soon", None])
def test_a_delay_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="delay"):
        RetryLater(value)


@pytest.mark.parametrize("delay", ["2h", 10**5000], ids=["long", "longest"])
async def test_a_delay_beyond_what_the_scheduler_waits_after_a_callback_is_cut(delay: Any) -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": lambda args: RetryLater(delay)})

    assert (await fixture.send()).headers["retry-after"] == "3600"


async def test_a_reason_that_is_no_text_is_told_all_the_same() -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": lambda args: TerminalError(404)})  # type: ignore[arg-type]

    answer = await fixture.send()

    assert (answer.status, error(answer)["message"]) == (422, "404")


def test_a_receiver_shows_no_secret() -> None:
    receiver = Receiver([SECRET])

    assert "c2VjcmV0" not in repr(receiver) + repr(vars(receiver))
