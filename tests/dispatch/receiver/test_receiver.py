"""What each delivery is answered, and what of it a handler sees."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.dispatch.receiver.calls import NOW_MS, OTHER, SECRET, Kit, Scheduler, error
from tocsin import Accepted, Never, Received, Receiver, RetryLater
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.dispatcher import body_of
from tocsin.dispatch.outcome import classify
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError, SignatureError

pytestmark = pytest.mark.anyio


def verdict(answer: Answer) -> Verdict:
    """What our own scheduler makes of it."""
    return classify(answer, NOW_MS).verdict


async def test_a_handler_gets_the_args_that_were_scheduled_and_the_callback() -> None:
    kit = Kit()
    got: list[tuple[Any, Received]] = []
    kit.receiver.register({"invoices:send": lambda args, job: got.append((args, job))})
    args = {"due": datetime(2027, 1, 1, tzinfo=UTC), "sum": Decimal("1.10"), "raw": b"\x00", "n": 2**70}

    answer = await kit.send(args, pool="stripe", labels=("a", "b"), shard_key="s", timeout_ms=60_000)

    assert (answer.status, verdict(answer)) == (200, Verdict.DONE)
    [(given, job)] = got
    assert given == args and type(given["due"]) is datetime
    assert (job.id, job.webhook_id, job.instance, job.attempt) == ("job-1", "job-1:i1", "default", 1)
    assert (job.pool, job.labels, job.shard_key, job.target) == ("stripe", ("a", "b"), "s", "invoices:send")
    assert (job.scheduled_for, job.sent_ms, job.fence) == (NOW_MS, NOW_MS, (7, 1))
    assert job.remaining_s() == 60
    assert job.lease not in repr(job) and job.lease not in repr(job.leased)


async def test_what_is_left_of_the_deadline_does_not_depend_on_the_clocks_agreeing() -> None:
    kit = Kit()
    left: list[float | None] = []

    @kit.receiver.handler("invoices:send")
    async def send(args: Any, job: Received) -> None:
        kit.clock.forward(20)
        left.append(job.remaining_s())

    request = kit.scheduler.request(timeout_ms=60_000)
    kit.clock.forward(120)  # this machine is two minutes ahead
    await kit.receiver.handle(*request)

    assert left == [40]


@pytest.mark.parametrize(
    ("raised", "status", "header", "expected"),
    [
        (RetryLater("90s", "not now"), 503, ("retry-after", "90"), Verdict.BUSY),
        (RetryLater(timedelta(milliseconds=1)), 503, ("retry-after", "1"), Verdict.BUSY),
        (Never("no such invoice"), 422, ("tocsin-retry", "never"), Verdict.DEAD),
        (ValueError("password=hunter2"), 500, ("content-type", "application/json"), Verdict.FAILED),
        (SystemExit(3), 500, ("content-type", "application/json"), Verdict.FAILED),
        (BaseExceptionGroup("two", [SystemExit(1)]), 500, ("content-type", "application/json"), Verdict.FAILED),
        (StopIteration(), 500, ("content-type", "application/json"), Verdict.FAILED),
        (asyncio.CancelledError(), 500, ("content-type", "application/json"), Verdict.FAILED),
    ],
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_a_handler_raises_is_an_answer_the_scheduler_acts_on(
    raised: BaseException, status: int, header: tuple[str, str], expected: Verdict, in_thread: bool
) -> None:
    kit = Kit()

    async def send(args: Any) -> None:
        raise raised

    def send_in_thread(args: Any) -> None:
        raise raised

    kit.receiver.register({"invoices:send": send_in_thread if in_thread else send})

    answer = await kit.send()

    assert (answer.status, answer.headers[header[0]], verdict(answer)) == (status, header[1], expected)
    again = await kit.send()
    assert again.status == status, "its claim was given up, so the next attempt runs"


async def test_an_error_s_text_goes_to_the_log_and_not_to_the_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit()

    @kit.receiver.handler("invoices:send")
    async def send(args: Any) -> None:
        raise ValueError("password=hunter2")

    answer = await kit.send()

    assert b"hunter2" not in answer.body and "ValueError" in error(answer)["message"]
    [record] = [r for r in caplog.records if r.name == "tocsin.receiver"]
    assert record.exc_info is not None and "hunter2" in str(record.exc_info[1])


async def test_why_a_handler_gave_up_is_told_even_if_it_is_not_utf_8() -> None:
    kit = Kit()

    @kit.receiver.handler("invoices:send")
    async def send(args: Any) -> None:
        raise Never("half \ud800 character")

    assert error(await kit.send())["message"] == "half ? character"


@pytest.mark.parametrize("returned", [RetryLater(5), Never("x")])
async def test_returned_instead_of_raised_means_the_same(returned: RetryLater | Never) -> None:
    kit = Kit()
    kit.receiver.register({"invoices:send": lambda args: returned})

    assert (await kit.send()).status == returned.status


@pytest.mark.parametrize(("returned", "lease_ms"), [(Accepted(), None), (Accepted, None), (Accepted(60_000), 60_000)])
async def test_accepted_work_tells_the_scheduler_how_long_to_hold_the_lease(
    returned: Any, lease_ms: int | None
) -> None:
    kit = Kit()
    kit.receiver.register({"invoices:send": lambda args: returned})

    outcome = classify(await kit.send(), NOW_MS)

    assert (outcome.verdict, outcome.status, outcome.lease_ms) == (Verdict.ACCEPTED, 202, lease_ms)


async def test_an_unknown_path_is_retried_since_a_deploy_may_be_under_way() -> None:
    kit = Kit()

    answer = await kit.send()

    assert (answer.status, verdict(answer)) == (404, Verdict.FAILED)
    assert error(answer) == {
        "code": "NOT_FOUND",
        "message": "no handler is registered here for the function 'invoices:send'",
    }
    kit.receiver.register({"invoices:send": lambda args: None})
    assert (await kit.send()).status == 200


async def test_functions_and_workflows_have_names_of_their_own() -> None:
    kit = Kit()
    kit.receiver.register({"x": lambda args: None}, workflows={"x": lambda args: Accepted()})

    assert (await kit.send(id="a", function_path="x")).status == 200
    assert (await kit.send(id="b", function_path=None, workflow="x")).status == 202


# ---- What is verified ----------------------------------------------------------------------------


async def test_nothing_is_parsed_before_it_is_verified() -> None:
    kit = Kit()
    callback = kit.scheduler.callback()
    headers, _ = kit.scheduler.signed(callback, b"{")

    forged = await kit.receiver.handle(headers, b"not even JSON")
    genuine = await kit.receiver.handle(headers, b"{")

    assert (forged.status, error(forged)["code"], verdict(forged)) == (401, "UNAUTHENTICATED", Verdict.FAILED)
    assert (genuine.status, error(genuine)["code"]) == (400, "INVALID_JSON")


@pytest.mark.parametrize(("skew_s", "status"), [(-301, 401), (-300, 200), (300, 200), (301, 401)])
async def test_a_callback_is_good_for_five_minutes_both_ways(skew_s: int, status: int) -> None:
    kit = Kit()
    kit.receiver.register({"invoices:send": lambda args: None})
    request = kit.scheduler.request()
    kit.clock.forward(skew_s)

    assert (await kit.receiver.handle(*request)).status == status


async def test_secrets_rotate_without_a_restart_and_without_a_refusal() -> None:
    active = [SECRET]
    kit = Kit(secrets=lambda: active)
    kit.receiver.register({"invoices:send": lambda args: None})
    new = Scheduler(kit.clock, OTHER)

    assert (await kit.send(id="a")).status == 200
    assert (await kit.receiver.handle(*new.request(id="b"))).status == 401
    active[:] = [OTHER, SECRET]
    assert (await kit.send(id="c")).status == 200
    assert (await kit.receiver.handle(*new.request(id="b"))).status == 200
    active[:] = [OTHER]
    assert (await kit.send(id="d")).status == 401


def broken() -> list[str]:
    raise KeyError("whsec_very-secret")


@pytest.mark.parametrize("secrets", [broken, list, lambda: "text", lambda: [b"short"], lambda: None])
async def test_secrets_that_cannot_be_had_are_nobody_s_fault(
    secrets: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit(secrets=secrets)

    answer = await kit.send()

    assert verdict(answer) is Verdict.BUSY
    assert "very-secret" not in caplog.text + answer.body.decode()


def other_id(body: dict[str, Any]) -> None:
    body["id"] = "job-2"


def no_target(body: dict[str, Any]) -> None:
    del body["functionPath"]


def two_targets(body: dict[str, Any]) -> None:
    body["workflow"] = "w"


def other_lease(body: dict[str, Any]) -> None:
    body["lease"] = "7.9.aa"


def other_attempt(body: dict[str, Any]) -> None:
    body["attempt"] = 9


def no_lease(body: dict[str, Any]) -> None:
    del body["lease"]


def strange_args(body: dict[str, Any]) -> None:
    body["args"] = {"$tocsin": "datetime", "v": "tomorrow"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (other_id, "webhook-id"), (no_target, "functionPath"), (two_targets, "functionPath"), (other_lease, "lease"),
        (other_attempt, "attempt"), (no_lease, "lease"), (strange_args, "args"),
    ],
)  # fmt: skip
async def test_a_signed_body_that_contradicts_itself_is_refused(change: Callable[[Any], None], named: str) -> None:
    kit = Kit()
    kit.receiver.register({"invoices:send": lambda args: None})
    callback = kit.scheduler.callback()
    body = msgspec.json.decode(body_of(callback))
    change(body)

    answer = await kit.receiver.handle(*kit.scheduler.signed(callback, msgspec.json.encode(body)))

    assert (answer.status, verdict(answer)) == (400, Verdict.FAILED)
    assert named in error(answer)["message"]


async def test_what_a_newer_scheduler_adds_does_no_harm() -> None:
    kit = Kit()
    seen: list[Received] = []
    kit.receiver.register({"invoices:send": lambda args, job: seen.append(job)})
    callback = kit.scheduler.callback()
    body = msgspec.json.decode(body_of(callback)) | {"schedule": {"name": "nightly", "slot": 1}, "moon": "full"}

    answer = await kit.receiver.handle(*kit.scheduler.signed(callback, msgspec.json.encode(body)))

    assert answer.status == 200
    assert seen[0].schedule == {"name": "nightly", "slot": 1}


async def test_headers_that_are_not_there_contradict_nothing() -> None:
    kit = Kit()
    seen: list[Received] = []
    kit.receiver.register({"invoices:send": lambda args, job: seen.append(job)})
    headers, body = kit.scheduler.request()

    answer = await kit.receiver.handle({n: v for n, v in headers.items() if n.startswith("Webhook")}, body)

    assert answer.status == 200
    assert seen[0].remaining_s() is None


async def test_a_body_is_at_most_as_long_as_was_said() -> None:
    kit = Kit(max_body=100)

    answer = await kit.send("x" * 200)

    assert (answer.status, error(answer)["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert "100" in error(answer)["message"]


async def test_verify_alone_claims_and_runs_nothing() -> None:
    kit = Kit()
    headers, body = kit.scheduler.request({"n": 1})

    job = kit.receiver.verify(headers.items(), body)

    assert (job.args, job.id) == ({"n": 1}, "job-1")
    with pytest.raises(SignatureError):
        kit.receiver.verify(headers, body + b" ")
    with pytest.raises(TypeError, match="bytes"):
        kit.receiver.verify(headers, body.decode())  # type: ignore[arg-type]


# ---- Handlers ------------------------------------------------------------------------------------


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
    kit = Kit()
    kit.receiver.register({"invoices:send": handler})

    assert (await kit.send()).status == 202


async def test_plain_functions_run_in_a_few_threads_with_their_caller_s_context() -> None:
    kit = Kit(threads=2)
    request = contextvars.ContextVar[str]("request")
    request.set("r-1")
    seen: list[tuple[str, str]] = []
    both, most = threading.Barrier(2), threading.Semaphore(2)

    def send(args: Any) -> None:
        assert most.acquire(blocking=False), "more than two at once"
        both.wait(10)
        seen.append((threading.current_thread().name, request.get()))
        most.release()

    kit.receiver.register({"invoices:send": send})

    answers = await asyncio.gather(*(kit.send(id=f"job-{n}") for n in range(6)))

    assert [answer.status for answer in answers] == [200] * 6
    assert {context for _, context in seen} == {"r-1"}
    assert len({name for name, _ in seen}) == 2


async def test_work_whose_deadline_passed_while_it_waited_for_a_thread_is_not_begun() -> None:
    kit = Kit(threads=1)
    begun, go = threading.Event(), threading.Event()
    ran: list[str] = []

    def send(args: Any, job: Received) -> None:
        ran.append(job.id)
        begun.set()
        go.wait(10)

    kit.receiver.register({"invoices:send": send})
    first = asyncio.create_task(kit.send(id="first"))
    await asyncio.to_thread(begun.wait, 10)
    second = asyncio.create_task(kit.send(id="second", timeout_ms=1_000))
    await asyncio.sleep(0.01)
    kit.clock.forward(5)
    go.set()

    assert (await first).status == 200
    assert verdict(await second) is Verdict.BUSY
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


def test_a_receiver_shows_no_secret() -> None:
    receiver = Receiver([SECRET])

    logging.getLogger("tests").debug("%r %r", receiver, vars(receiver))
    assert "c2VjcmV0" not in repr(vars(receiver))
