"""All transports take the same for an answer, and what an answer means never depends on how long its body is."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.dispatch.raw_answers import CASES, Case
from tests.dispatch.scripted_server import Script, closing_after, dripping, scripted_server
from tests.dispatch.test_transports import post
from tocsin import Retry
from tocsin.actors.actor_host import ActorHost
from tocsin.dispatch.asgi_transport import AsgiTransport, Message, Receive, Send
from tocsin.dispatch.callback import AttemptOutcome, Callback, Verdict
from tocsin.dispatch.dispatcher import Dispatcher
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.transport import Answer, BrokenExchange, Transport
from tocsin.dispatch.transports import NAMES, default_transport
from tocsin.errors import JobFailedError

pytestmark = pytest.mark.anyio

MIB = 2**20


def check(case: Case, answer: Answer) -> None:
    assert case.body is not None, f"taken for an answer: {answer.status} {answer.body[:40]!r}"
    assert (answer.status, answer.body, answer.cut) == (case.status, case.body, case.cut)
    assert dict(case.headers).items() <= answer.headers.items()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_every_transport_takes_the_same_for_an_answer(transport: Transport, case: Case) -> None:
    async with scripted_server(closing_after(case.raw)) as server:
        if case.body is None:
            with pytest.raises(BrokenExchange) as caught:
                await post(transport, server.url)
            assert 5 < len(str(caught.value)) < 300
        else:
            check(case, await post(transport, server.url))
        await server.empty()

    assert len(server.requests) == 1


IN_PROCESS = {name: case for name, case in CASES.items() if case.app is not None}


@pytest.mark.parametrize("case", IN_PROCESS.values(), ids=IN_PROCESS.keys())
async def test_and_so_does_the_one_in_this_process(case: Case) -> None:
    assert case.app is not None
    status, headers, pieces = case.app

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    transport = AsgiTransport(app)
    try:
        if case.body is None:
            with pytest.raises(BrokenExchange):
                await post(transport, "http://app.example/")
        else:
            check(case, await post(transport, "http://app.example/"))
    finally:
        await transport.aclose()


# ---- Whatever the length of the body ---------------------------------------------------------------

SAID: dict[str, tuple[bytes, list[tuple[bytes, bytes]], Verdict]] = {
    "done": (b"200 OK", [(b"content-type", b"text/html")], Verdict.DONE),
    "accepted": (b"202 Accepted", [(b"tocsin-accepted", b"1"), (b"tocsin-lease-ms", b"90000")], Verdict.ACCEPTED),
    "gone": (b"410 Gone", [], Verdict.DEAD),
    "declined": (b"409 Conflict", [(b"tocsin-declined", b"1")], Verdict.DECLINED),
    "never again": (b"422 Unprocessable", [(b"tocsin-retry", b"never")], Verdict.DEAD),
    "busy": (b"503 Unavailable", [(b"retry-after", b"120")], Verdict.BUSY),
    "failed": (b"500 Oops", [], Verdict.FAILED),
}
LENGTHS: dict[str, int | None] = {"70,000 bytes": 70_000, "1 MiB": MIB, "no end": None}


@asynccontextmanager
async def answering_at(kind: str, said: str, length: int | None) -> AsyncIterator[tuple[Transport, str, list[int]]]:
    """A transport, the origin to give it, and how often that was called."""
    status, headers, _ = SAID[said]
    calls: list[int] = []
    if kind in NAMES:
        head = b"HTTP/1.1 " + status + b"\r\n" + b"".join(b"%b: %b\r\n" % pair for pair in headers)
        script: Script = dripping(head + b"\r\n", b"<p>" + b"x" * 65_536, 0)
        if length is not None:
            script = closing_after(head + b"content-length: %d\r\n\r\n" % length, b"x" * length)
        transport = default_transport(kind)
        async with scripted_server(script) as server:
            yield transport, server.url.removesuffix("/_tocsin/callback"), calls
            await transport.aclose()
            await server.empty()
            calls.extend([1] * len(server.requests))
        return

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        calls.append(1)
        await send({"type": "http.response.start", "status": int(status[:3]), "headers": headers})
        left = length
        while left is None or left > 0:
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            left = None if left is None else left - 10_000
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    in_process = AsgiTransport(app)
    yield in_process, "http://127.0.0.1", calls
    await in_process.aclose()


async def attempted(transport: Transport, origin: str) -> AttemptOutcome:
    dispatcher = Dispatcher(transport, Signer(["whsec_" + "A" * 32]), lambda: origin, random=Random(1))
    callback = Callback("a", "1", b"{}", 1_700_000_000_000, 1, "1.2.3", "default", "x", timeout_ms=10_000)
    return await dispatcher.attempt(callback, now_ms=1_700_000_000_000)


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("kind", [*NAMES, "asgi"])
async def test_status_and_headers_decide_however_long_the_body_is(kind: str, said: str, length: int | None) -> None:
    async with answering_at(kind, said, length) as (transport, origin, calls):
        outcome = await attempted(transport, origin)

    assert (outcome.verdict, outcome.status) == (SAID[said][2], int(SAID[said][0][:3]))
    assert outcome.response is not None and len(outcome.response) == 2_048
    assert outcome.result is None
    assert outcome.lease_ms == (90_000 if said == "accepted" else None)
    assert outcome.retry_after_ms == (120_000 if said == "busy" else None)
    assert calls == [1]


@pytest.mark.parametrize("kind", [*NAMES, "asgi"])
async def test_a_job_whose_receiver_answers_at_length_is_done_once(kind: str) -> None:
    secrets = ["whsec_" + "A" * 32]
    async with (
        answering_at(kind, "done", 70_000) as (transport, origin, calls),
        ActorHost.open("memory:", origin=origin, secrets=secrets, transport=transport) as host,
    ):
        jobs = host.scheduler()
        await jobs.run_after(0, "page:render", id="a", keep_result="1h")
        assert await jobs.result("a", timeout=20) is None
        attempts = [attempt.outcome for attempt in await jobs.history("a")]

    assert (attempts, calls) == (["done"], [1])


# ---- Headers on their way ------------------------------------------------------------------------

DOUBLED: dict[str, tuple[bytes, list[tuple[bytes, bytes]], Verdict]] = {
    "accepted": (b"202 Accepted", [(b"Tocsin-Accepted", b"1"), (b"tocsin-accepted", b" 1 ")], Verdict.ACCEPTED),
    "accepted, in a list": (b"200 OK", [(b"tocsin-accepted", b"1,1")], Verdict.ACCEPTED),
    "declined": (b"409 Conflict", [(b"TOCSIN-DECLINED", b"1"), (b"tocsin-declined", b"1")], Verdict.DECLINED),
    "never again": (b"500 Oops", [(b"tocsin-retry", b"Never"), (b"tocsin-retry", b"never")], Verdict.DEAD),
    "busy": (b"503 Unavailable", [(b"retry-after", b"60"), (b"Retry-After", b"120")], Verdict.BUSY),
}


@pytest.mark.parametrize("said", DOUBLED)
@pytest.mark.parametrize("kind", [*NAMES, "asgi"])
async def test_a_header_that_a_proxy_doubled_says_what_it_said(
    kind: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SAID, said, DOUBLED[said])
    async with answering_at(kind, said, 0) as (transport, origin, _):
        outcome = await attempted(transport, origin)

    assert outcome.verdict is DOUBLED[said][2]
    assert outcome.retry_after_ms == (120_000 if said == "busy" else None)


@pytest.mark.parametrize("kind", [*NAMES, "asgi"])
async def test_where_a_redirect_leads_is_in_the_last_error_and_the_history(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = (b"Location", b"https://user:hunter2@www.app.example/_tocsin/callback?token=hunter2")
    monkeypatch.setitem(SAID, "moved", (b"308 Permanent Redirect", [location], Verdict.FAILED))
    async with (
        answering_at(kind, "moved", 0) as (transport, origin, _),
        ActorHost.open("memory:", origin=origin, secrets=["whsec_" + "A" * 32], transport=transport) as host,
    ):
        jobs = host.scheduler()
        await jobs.run_after(0, "page:render", id="a", retry=Retry(max_retries=0), keep_result="1h")
        with pytest.raises(JobFailedError, match="leads to"):
            await jobs.result("a", timeout=20)
        [dead] = (await jobs.dead()).records
        [attempt, *_] = await jobs.history("a")

    said = "HTTP 308: redirects are not followed; it leads to https://www.app.example/_tocsin/callback"
    assert dead.last_error is not None and (dead.last_error.message, dead.last_error.status) == (said, 308)
    assert (attempt.error, attempt.status) == (said, 308)


# ---- Memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*NAMES, "asgi"])
async def test_endless_answers_take_no_memory(kind: str) -> None:
    async with answering_at(kind, "done", None) as (transport, origin, _):
        await attempted(transport, origin)
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(40):
            outcomes = await asyncio.gather(*(attempted(transport, origin) for _ in range(8)))
            assert {outcome.verdict for outcome in outcomes} == {Verdict.DONE}
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert grown * 1024 < 24 * MIB  # of 320 bodies without an end, eight at a time with their buffers in the kernel
