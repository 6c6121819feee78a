"""What each delivery is answered, and what of it a handler sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.dispatch.receiver.signed_callbacks import NOW_MS, OTHER, SECRET, ReceiverFixture, Scheduler, error
from tocsin import Accepted, Received, Receiver, RetryLater, TerminalError
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.dispatcher import MAX_ANSWER, body_of
from tocsin.dispatch.outcome import classify
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError, SignatureError

pytestmark = pytest.mark.anyio


def verdict(answer: Answer) -> Verdict:
    """What our own scheduler makes of it."""
    return classify(answer, NOW_MS).verdict


async def test_a_handler_gets_the_args_that_were_scheduled_and_the_callback() -> None:
    fixture = ReceiverFixture()
    got: list[tuple[Any, Received]] = []
    fixture.receiver.register({"invoices:send": lambda args, job: got.append((args, job))})
    args = {"due": datetime(2027, 1, 1, tzinfo=UTC), "sum": Decimal("1.10"), "raw": b"\x00", "n": 2**70}

    answer = await fixture.send(args, pool="stripe", labels=("a", "b"), shard_key="s", timeout_ms=60_000)

    assert (answer.status, verdict(answer)) == (200, Verdict.DONE)
    [(given, job)] = got
    assert given == args and type(given["due"]) is datetime
    assert (job.id, job.webhook_id, job.instance, job.attempt) == ("job-1", "job-1:i1", "default", 1)
    assert (job.pool, job.labels, job.shard_key, job.target) == ("stripe", ("a", "b"), "s", "invoices:send")
    assert (job.scheduled_for, job.sent_ms, job.fence) == (NOW_MS, NOW_MS, (7, 1))
    assert job.remaining_s() == 60
    assert job.lease not in repr(job) and job.lease not in repr(job.leased)


@pytest.mark.parametrize("part_ms", [0, 1, 100, 904, 999])
@pytest.mark.parametrize(("timeout_ms", "way_ms"), [(1_000, 2), (1_500, 400), (60_000, 0), (60_000, 12_000)])
async def test_what_is_left_ends_with_the_instant_of_the_header(part_ms: int, timeout_ms: int, way_ms: int) -> None:
    """Timestamps are whole seconds; what they leave out was given to the handler, which stopped too late."""
    fixture = ReceiverFixture()
    fixture.clock.ms += part_ms
    request = fixture.scheduler.request(timeout_ms=timeout_ms)
    fixture.clock.ms += way_ms
    job = fixture.receiver.verify(*request)

    assert job.remaining_s() == pytest.approx((timeout_ms - way_ms) / 1000, abs=1e-6)


@pytest.mark.parametrize("off_s", [-120, -2, 61, 120])
@pytest.mark.parametrize("part_ms", [0, 500, 999])
async def test_clocks_that_differ_make_it_no_longer_and_at_most_a_second_shorter(off_s: int, part_ms: int) -> None:
    fixture = ReceiverFixture(max_ahead_s=300)
    fixture.clock.ms += part_ms
    request = fixture.scheduler.request(timeout_ms=60_000)
    fixture.clock.forward(off_s)
    left = fixture.receiver.verify(*request).remaining_s()

    assert left is not None and 59 <= left <= 60


async def test_a_clock_that_is_ahead_takes_as_much() -> None:
    fixture = ReceiverFixture()
    request = fixture.scheduler.request(timeout_ms=60_000)
    fixture.clock.forward(20)

    assert fixture.receiver.verify(*request).remaining_s() == 40


async def test_what_is_left_of_the_deadline_counts_down_without_the_wall_clock() -> None:
    fixture = ReceiverFixture()
    left: list[float | None] = []

    @fixture.receiver.handler("invoices:send")
    async def send(args: Any, job: Received) -> None:
        fixture.clock.forward(20)
        left.append(job.remaining_s())

    request = fixture.scheduler.request(timeout_ms=60_000)
    fixture.clock.forward(120)  # this machine is two minutes ahead
    await fixture.receiver.handle(*request)

    assert left == [pytest.approx(39.001)]


@pytest.mark.parametrize(
    ("deadline_s", "left"), [(3_599, 3_599), (3_600, 3_600), (3_601, 3_600), (10**9, 3_600), (0, 0), (-5, 0)]
)
async def test_a_deadline_is_believed_up_to_an_hour(deadline_s: int, left: float) -> None:
    """Its header is not signed: who changes it on the way must not hold a claim for longer."""
    fixture = ReceiverFixture()
    headers, body = fixture.scheduler.request()
    headers["Tocsin-Deadline"] = str(fixture.clock.ms + deadline_s * 1000)
    job = fixture.receiver.verify(headers, body)

    assert (job.timeout_s, job.remaining_s()) == (left, left)


@pytest.mark.parametrize(
    ("raised", "status", "header", "expected"),
    [
        (RetryLater("90s", "not now"), 503, ("retry-after", "90"), Verdict.BUSY),
        (RetryLater(timedelta(milliseconds=1)), 503, ("retry-after", "1"), Verdict.BUSY),
        (TerminalError("no such invoice"), 422, ("tocsin-retry", "never"), Verdict.DEAD),
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
    fixture = ReceiverFixture()

    async def send(args: Any) -> None:
        raise raised

    def send_in_thread(args: Any) -> None:
        raise raised

    fixture.receiver.register({"invoices:send": send_in_thread if in_thread else send})

    answer = await fixture.send()

    assert (answer.status, answer.headers[header[0]], verdict(answer)) == (status, header[1], expected)
    again = await fixture.send()
    assert again.status == status, "its claim was given up, so the next attempt runs"


async def test_an_error_s_text_goes_to_the_log_and_not_to_the_scheduler(caplog: pytest.LogCaptureFixture) -> None:
    fixture = ReceiverFixture()

    @fixture.receiver.handler("invoices:send")
    async def send(args: Any) -> None:
        raise ValueError("password=hunter2")

    answer = await fixture.send()

    assert b"hunter2" not in answer.body and "ValueError" in error(answer)["message"]
    [record] = [r for r in caplog.records if r.name == "tocsin.receiver"]
    assert record.exc_info is not None and "hunter2" in str(record.exc_info[1])


async def test_why_a_handler_gave_up_is_told_even_if_it_is_not_utf_8() -> None:
    fixture = ReceiverFixture()

    @fixture.receiver.handler("invoices:send")
    async def send(args: Any) -> None:
        raise TerminalError("half \ud800 character")

    assert error(await fixture.send())["message"] == "half ? character"


@pytest.mark.parametrize("returned", [RetryLater(5), TerminalError("x")])
async def test_returned_instead_of_raised_means_the_same(returned: RetryLater | TerminalError) -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": lambda args: returned})

    assert (await fixture.send()).status == returned.status


@pytest.mark.parametrize(("returned", "lease_ms"), [(Accepted(), None), (Accepted, None), (Accepted(60_000), 60_000)])
async def test_accepted_work_tells_the_scheduler_how_long_to_hold_the_lease(
    returned: Any, lease_ms: int | None
) -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": lambda args: returned})

    outcome = classify(await fixture.send(), NOW_MS)

    assert (outcome.verdict, outcome.status, outcome.lease_ms) == (Verdict.ACCEPTED, 202, lease_ms)


async def test_an_unknown_path_is_retried_since_a_deploy_may_be_under_way() -> None:
    fixture = ReceiverFixture()

    answer = await fixture.send()

    assert (answer.status, verdict(answer)) == (404, Verdict.FAILED)
    assert error(answer) == {
        "code": "NOT_FOUND",
        "message": "no handler is registered here for the function 'invoices:send'",
    }
    fixture.receiver.register({"invoices:send": lambda args: None})
    assert (await fixture.send()).status == 200


async def test_functions_and_workflows_have_names_of_their_own() -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"x": lambda args: None}, workflows={"x": lambda args: Accepted()})

    assert (await fixture.send(id="a", function_path="x")).status == 200
    assert (await fixture.send(id="b", function_path=None, workflow="x")).status == 202


# ---- What is verified ----------------------------------------------------------------------------


async def test_nothing_is_parsed_before_it_is_verified() -> None:
    fixture = ReceiverFixture()
    callback = fixture.scheduler.callback()
    headers, _ = fixture.scheduler.signed(callback, b"{")

    forged = await fixture.receiver.handle(headers, b"not even JSON")
    genuine = await fixture.receiver.handle(headers, b"{")

    assert (forged.status, error(forged)["code"], verdict(forged)) == (401, "UNAUTHENTICATED", Verdict.FAILED)
    assert (genuine.status, error(genuine)["code"]) == (400, "INVALID_JSON")


@pytest.mark.parametrize(
    ("bounds", "taken_at", "refused_at"),
    [
        ({}, (-60, 0, 299, 300), (-61, 301)),
        ({"max_age_s": 30}, (-60, 30), (-61, 31)),
        ({"max_ahead_s": 300, "max_age_s": 3_600}, (-300, 3_600), (-301, 3_601)),
        ({"max_ahead_s": 0}, (0, 300), (-1, 301)),
    ],
)
async def test_a_callback_is_good_within_the_bounds_of_its_timestamp(
    bounds: dict[str, Any], taken_at: tuple[int, ...], refused_at: tuple[int, ...]
) -> None:
    """Seconds since it was sent, by the clock here."""
    found = {}
    for age_s in (*taken_at, *refused_at):
        fixture = ReceiverFixture(**bounds)
        fixture.receiver.register({"invoices:send": lambda args: None})
        request = fixture.scheduler.request()
        fixture.clock.forward(age_s)
        found[age_s] = (await fixture.receiver.handle(*request)).status

    assert found == dict.fromkeys(taken_at, 200) | dict.fromkeys(refused_at, 401)


@pytest.mark.parametrize("value", [-1, 86_401, float("nan"), True, "5m", None])
@pytest.mark.parametrize("name", ["max_age_s", "max_ahead_s"])
def test_a_bound_that_is_none_is_refused(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name} must be . to 86400 seconds, not"):
        Receiver([SECRET], **{name: value})


async def test_secrets_rotate_without_a_restart_and_without_a_refusal() -> None:
    active = [SECRET]
    fixture = ReceiverFixture(secrets=lambda: active)
    fixture.receiver.register({"invoices:send": lambda args: None})
    new = Scheduler(fixture.clock, OTHER)

    assert (await fixture.send(id="a")).status == 200
    assert (await fixture.receiver.handle(*new.request(id="b"))).status == 401
    active[:] = [OTHER, SECRET]
    assert (await fixture.send(id="c")).status == 200
    assert (await fixture.receiver.handle(*new.request(id="b"))).status == 200
    active[:] = [OTHER]
    assert (await fixture.send(id="d")).status == 401


def broken() -> list[str]:
    raise KeyError("whsec_very-secret")


@pytest.mark.parametrize("secrets", [broken, list, lambda: "text", lambda: [b"short"], lambda: None])
async def test_secrets_that_cannot_be_had_are_nobody_s_fault(
    secrets: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    fixture = ReceiverFixture(secrets=secrets)

    answer = await fixture.send()

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
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": lambda args: None})
    callback = fixture.scheduler.callback()
    body = msgspec.json.decode(body_of(callback))
    change(body)

    answer = await fixture.receiver.handle(*fixture.scheduler.signed(callback, msgspec.json.encode(body)))

    assert (answer.status, verdict(answer)) == (400, Verdict.FAILED)
    assert named in error(answer)["message"]


async def test_what_a_newer_scheduler_adds_does_no_harm() -> None:
    fixture = ReceiverFixture()
    seen: list[Received] = []
    fixture.receiver.register({"invoices:send": lambda args, job: seen.append(job)})
    callback = fixture.scheduler.callback()
    body = msgspec.json.decode(body_of(callback)) | {"schedule": {"name": "nightly", "slot": 1}, "moon": "full"}

    answer = await fixture.receiver.handle(*fixture.scheduler.signed(callback, msgspec.json.encode(body)))

    assert answer.status == 200
    assert seen[0].schedule == {"name": "nightly", "slot": 1}


async def test_headers_that_are_not_there_contradict_nothing() -> None:
    fixture = ReceiverFixture()
    seen: list[Received] = []
    fixture.receiver.register({"invoices:send": lambda args, job: seen.append(job)})
    headers, body = fixture.scheduler.request()

    answer = await fixture.receiver.handle({n: v for n, v in headers.items() if n.startswith("Webhook")}, body)

    assert answer.status == 200
    assert seen[0].remaining_s() is None


async def test_a_body_is_at_most_as_long_as_was_said() -> None:
    fixture = ReceiverFixture(max_body=100)

    answer = await fixture.send("x" * 200)

    assert (answer.status, error(answer)["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert "100" in error(answer)["message"]


async def test_verify_alone_claims_and_runs_nothing() -> None:
    fixture = ReceiverFixture()
    headers, body = fixture.scheduler.request({"n": 1})

    job = fixture.receiver.verify(headers.items(), body)

    assert (job.args, job.id) == ({"n": 1}, "job-1")
    with pytest.raises(SignatureError):
        fixture.receiver.verify(headers, body + b" ")
    with pytest.raises(TypeError, match="bytes"):
        fixture.receiver.verify(headers, body.decode())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(TerminalError("no: " + "\u00e9\0" * 50_000), Verdict.DEAD), (RetryLater(60, "x" * 100_000), Verdict.BUSY)],
)
async def test_a_long_reason_is_cut_as_an_answer_that_is_too_long_says_nothing(
    raised: Exception, expected: Verdict
) -> None:
    """A scheduler reads no more than 64 KiB: over that, `never` would have been a failure to be repeated."""
    fixture = ReceiverFixture()

    @fixture.receiver.handler("invoices:send")
    def send(args: Any) -> None:
        raise raised

    answer = await fixture.send()

    assert len(answer.body) < MAX_ANSWER and verdict(answer) is expected
    assert error(answer)["message"].startswith(str(raised)[:100])
