"""One attempt from end to end: what is built and signed, where it goes, and that nothing but an outcome comes out."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest
from standardwebhooks import Webhook

from tests.dispatch.scripted_server import OK, ClientConnection, answering, refused_port, scripted_server, silent
from tocsin.dispatch.callback import AttemptOutcome, Callback, Verdict
from tocsin.dispatch.dispatcher import CONNECT_TIMEOUT_S, MAX_ANSWER, Dispatcher, body_of
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed, NeverConnected, Transport
from tocsin.errors import SettingsError

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000_123
SECRET = "whsec_" + "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IQ=="
ORIGIN = "https://app.example"
JOB = Callback(
    id="job",
    incarnation="1-7",
    args=b'{ "n": 1.0 }',
    scheduled_for=1_799_999_999_000,
    attempt=3,
    lease="1.7.abc",
    instance="tenant-a",
    function_path="invoices:send",
)


@dataclass
class Recorder:
    """A transport that keeps what it is given, and answers or raises."""

    answer: Answer | BaseException = field(default_factory=lambda: Answer(200, {}, b"ok"))
    calls: list[tuple[str, Mapping[str, str], bytes, dict[str, Any]]] = field(default_factory=list)
    closed: bool = False

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        self.calls.append((url, headers, body, bounds))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def aclose(self) -> None:
        self.closed = True


def dispatcher(
    transport: Transport,
    *,
    signer: Signer | None = None,
    origin: Callable[[], str | None] = lambda: ORIGIN,
    **options: Any,
) -> Dispatcher:
    return Dispatcher(transport, signer or Signer([SECRET]), origin, random=Random(1), **options)


# ---- What is sent --------------------------------------------------------------------------------


def test_the_body_holds_what_the_contract_names_in_its_order_and_args_byte_for_byte() -> None:
    assert body_of(JOB) == (
        b'{"id":"job","functionPath":"invoices:send","args":{ "n": 1.0 },"scheduledFor":1799999999000,'
        b'"attempt":3,"lease":"1.7.abc","instanceName":"tenant-a"}'
    )


def test_optional_members_come_when_they_are_given() -> None:
    job = Callback(
        "w", "1-8", b"null", 1, 1, "l", "default", workflow="onboard", pool="stripe", shard_key="s", labels=("a", "b")
    )

    assert json.loads(body_of(job)) == {
        "id": "w",
        "workflow": "onboard",
        "args": None,
        "scheduledFor": 1,
        "attempt": 1,
        "lease": "l",
        "instanceName": "default",
        "pool": "stripe",
        "shardKey": "s",
        "labels": ["a", "b"],
    }


@pytest.mark.parametrize("args", [b"18446744073709551617", b'{"a":-0.0,"b":1e-320}', b'"a\\u0000b\\ud800"', b"[ ]\n"])
def test_args_are_never_written_anew(args: bytes) -> None:
    assert b'"args":' + args + b',"scheduledFor"' in body_of(msgspec.structs.replace(JOB, args=args))


async def test_headers() -> None:
    wire = Recorder()
    await dispatcher(wire, version="1.2").attempt(JOB, now_ms=NOW)
    url, headers, body, bounds = wire.calls[0]
    trace = headers["traceparent"].split("-")

    assert url == "https://app.example/_tocsin/callback"
    assert {name: value for name, value in headers.items() if name not in ("traceparent", "webhook-signature")} == {
        "content-type": "application/json",
        "user-agent": "tocsin/1.2",
        "webhook-id": "job:1-7",
        "webhook-timestamp": "1800000000",
        "idempotency-key": "job:1-7",
        "tocsin-attempt": "3",
        "tocsin-lease": "1.7.abc",
        "tocsin-deadline": str(NOW + 60_000),
    }
    assert [len(part) for part in trace] == [2, 32, 16, 2] and trace[0] == "00"
    assert Signer([SECRET]).verify(headers, body, now_s=NOW / 1000) == "job:1-7"
    assert bounds == {"connect_timeout": CONNECT_TIMEOUT_S, "timeout": 60.0, "max_body": MAX_ANSWER}


class Zeros(Random):
    def getrandbits(self, k: int, /) -> int:
        return 0


async def test_neither_id_of_a_trace_is_ever_zero() -> None:
    wire = Recorder()
    sending = Dispatcher(wire, Signer([SECRET]), ORIGIN, random=Zeros(1))
    await sending.attempt(JOB, now_ms=NOW)

    assert wire.calls[0][1]["traceparent"] == f"00-{1:032x}-{1:016x}-01"


async def test_the_package_of_the_standard_verifies_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Recorder()
    await dispatcher(wire).attempt(JOB, now_ms=NOW)
    _, headers, body, _ = wire.calls[0]
    then = datetime.fromtimestamp(NOW // 1000, UTC)
    monkeypatch.setattr(Webhook, "_Webhook__verify_timestamp", lambda self, stamp: then)

    assert Webhook(SECRET).verify(body, dict(headers))["id"] == "job"


async def test_attempts_of_a_job_share_their_id_and_nothing_else() -> None:
    wire = Recorder()
    sending = dispatcher(wire)
    for now_ms in (NOW, NOW + 60_000):
        await sending.attempt(JOB, now_ms=now_ms)
    first, second = (headers for _, headers, _, _ in wire.calls)

    assert first["webhook-id"] == second["webhook-id"] == first["idempotency-key"]
    for name in ("webhook-timestamp", "webhook-signature", "tocsin-deadline", "traceparent"):
        assert first[name] != second[name]


async def test_the_same_chance_sends_the_same_bytes() -> None:
    one, other = Recorder(), Recorder()
    await dispatcher(one).attempt(JOB, now_ms=NOW)
    await dispatcher(other).attempt(JOB, now_ms=NOW)

    assert one.calls == other.calls


async def test_a_short_timeout_bounds_connecting_too() -> None:
    wire = Recorder()
    await dispatcher(wire).attempt(msgspec.structs.replace(JOB, timeout_ms=1_500), now_ms=NOW)

    assert wire.calls[0][3] == {"connect_timeout": 1.5, "timeout": 1.5, "max_body": MAX_ANSWER}


async def test_the_version_is_that_of_the_package() -> None:
    wire = Recorder()
    await dispatcher(wire).attempt(JOB, now_ms=NOW)
    name, _, version = wire.calls[0][1]["user-agent"].partition("/")

    assert name == "tocsin" and version.count(".") == 1


# ---- Where to ------------------------------------------------------------------------------------


async def test_the_origin_is_read_at_each_attempt() -> None:
    wire, origins = Recorder(), [ORIGIN, ORIGIN + "/", "https://other.example/x/", None, ORIGIN]
    sending = dispatcher(wire, origin=lambda: origins.pop(0), path="/cb")
    outcomes = [await sending.attempt(JOB, now_ms=NOW) for _ in range(5)]

    assert [url for url, *_ in wire.calls] == [
        "https://app.example/cb",
        "https://app.example/cb",
        "https://other.example/x/cb",
        "https://app.example/cb",
    ]
    assert outcomes[3].verdict is Verdict.UNREACHABLE


def raising() -> str:
    raise KeyError("origin")


def broken_settings() -> str:
    raise SettingsError("the vault is closed")


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (lambda: None, "open the host with origin= (a server: TOCSIN_ORIGIN_URL)"),
        (lambda: "", "open the host with origin= (a server: TOCSIN_ORIGIN_URL)"),
        (lambda: "ftp://app.example", "must be a URL like https://app.example"),
        (lambda: "https://user:hunter2@app.example", "must not hold a user or password"),
        (raising, "origin() raised KeyError"),
        (broken_settings, "the vault is closed"),
    ],
)
async def test_nowhere_to_go_is_nobodys_fault(origin: Callable[[], str | None], said: str) -> None:
    wire = Recorder()
    outcome = await dispatcher(wire, origin=origin).attempt(JOB, now_ms=NOW)

    assert outcome.verdict is Verdict.UNREACHABLE
    assert said in (outcome.message or "") and "hunter2" not in (outcome.message or "")
    assert wire.calls == []


@pytest.mark.parametrize("origin", [8000, b"https://app.example", ["https://app.example"]])
async def test_an_origin_that_is_no_text_is_nobodys_fault(origin: Any) -> None:
    outcome = await dispatcher(Recorder(), origin=lambda: origin).attempt(JOB, now_ms=NOW)

    said = f"origin() must return text, not {type(origin).__name__}"
    assert outcome == AttemptOutcome(Verdict.UNREACHABLE, said, code="ORIGIN_NOT_CONFIGURED")


@pytest.mark.parametrize("path", ["cb", "https://x/", "/a?b"])
def test_a_wrong_path_is_refused_when_the_host_is_built(path: str) -> None:
    with pytest.raises(SettingsError, match="callback path"):
        dispatcher(Recorder(), path=path)


async def test_unsigned_callbacks_never_leave_the_machine() -> None:
    wire, origins = Recorder(), ["http://127.0.0.1:8000", ORIGIN]
    sending = Dispatcher(wire, None, lambda: origins.pop(0), random=Random(1))
    outcomes = [await sending.attempt(JOB, now_ms=NOW) for _ in range(2)]

    assert [outcome.verdict for outcome in outcomes] == [Verdict.DONE, Verdict.UNREACHABLE]
    assert "unsigned callbacks go to loopback only" in (outcomes[1].message or "")
    assert len(wire.calls) == 1 and "webhook-signature" not in wire.calls[0][1]


# ---- What comes of it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Answer(200, {}, b"ok"), Verdict.DONE),
        (Answer(500, {}, b"no"), Verdict.FAILED),
        (Answer(409, {"tocsin-declined": "1"}, b""), Verdict.DECLINED),
        (Answer(429, {"retry-after": "7"}, b""), Verdict.BUSY),
        (Answer(410, {}, b""), Verdict.DEAD),
        (NeverConnected("refused"), Verdict.UNREACHABLE),
        (DeadlinePassed("late"), Verdict.UNKNOWN),
        (BrokenExchange("reset"), Verdict.FAILED),
    ],
)
async def test_whatever_happens_becomes_an_outcome(answer: Answer | Exception, verdict: Verdict) -> None:
    assert (await dispatcher(Recorder(answer)).attempt(JOB, now_ms=NOW)).verdict is verdict


async def test_a_fault_of_ours_is_logged_and_charged_and_the_secret_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcome = await dispatcher(Recorder(ZeroDivisionError("ours"))).attempt(JOB, now_ms=NOW)

    assert outcome == AttemptOutcome(Verdict.FAILED, "internal error: ZeroDivisionError")
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "job" in caplog.text and "ours" in caplog.text
    assert SECRET[6:] not in caplog.text and "secret secret" not in caplog.text


async def test_cancellation_passes_through() -> None:
    with pytest.raises(asyncio.CancelledError):
        await dispatcher(Recorder(asyncio.CancelledError())).attempt(JOB, now_ms=NOW)


async def test_closing_closes_the_transport() -> None:
    wire = Recorder()
    await dispatcher(wire).aclose()

    assert wire.closed


# ---- Over sockets --------------------------------------------------------------------------------


async def test_a_callback_over_a_socket(transport: Transport) -> None:
    async with scripted_server(answering(OK)) as server:
        origin = f"http://127.0.0.1:{server.port}/"
        outcome = await dispatcher(transport, origin=lambda: origin).attempt(JOB, now_ms=NOW)
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}

    assert outcome == AttemptOutcome(Verdict.DONE, None, 200, None, b"ok")
    assert line.startswith("POST /_tocsin/callback ")
    assert body == body_of(JOB)
    assert Signer([SECRET]).verify(headers, body, now_s=NOW / 1000) == "job:1-7"


async def test_trouble_over_a_socket(transport: Transport) -> None:
    async def ungrateful(connection: ClientConnection) -> None:
        await connection.request()
        await connection.send(b"\x1b[31mHTTP/1.1 200 \xff\x00\r\n\r\n")

    job = msgspec.structs.replace(JOB, timeout_ms=200)
    with refused_port() as port:
        outcome = await dispatcher(transport, origin=lambda: f"http://127.0.0.1:{port}").attempt(job, now_ms=NOW)
        assert outcome.verdict is Verdict.UNREACHABLE
    async with scripted_server(silent) as server:
        origin = f"http://127.0.0.1:{server.port}"
        outcome = await dispatcher(transport, origin=lambda: origin).attempt(job, now_ms=NOW)
        assert outcome.verdict is Verdict.UNKNOWN
    async with scripted_server(ungrateful) as server:
        origin = f"http://127.0.0.1:{server.port}"
        outcome = await dispatcher(transport, origin=lambda: origin).attempt(job, now_ms=NOW)
        assert outcome.verdict is Verdict.FAILED
        assert outcome.message is not None and outcome.message.isprintable()
