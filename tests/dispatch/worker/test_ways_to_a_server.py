"""What is posted for each job, by workers and for accepted work, goes over the built-in transport, or over an httpx one
that was given: both behave alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from tests.dispatch.scripted_server import (
    ClientConnection,
    Script,
    ScriptedServer,
    answering,
    closing_after,
    refused_port,
    scripted_server,
    silent,
)
from tests.dispatch.worker.claim_sources import host_and_source
from tocsin import Job, LeaseClient, Leased, RemoteScheduler, WorkerSnapshot
from tocsin.dispatch import server_client
from tocsin.dispatch.names import HttpxConnections
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, TocsinError, UnreachableError

pytestmark = pytest.mark.anyio

WAYS = ("built-in", "httpx")
each_way = pytest.mark.parametrize("way", WAYS)
ACCEPTED = Leased(id="a", webhook_id="a.1", lease="lease", instance="t")
SNAPSHOT = WorkerSnapshot(id="w", queues="*", concurrency=1, status="idle", started_at=1, heartbeat_at=2)


def client(way: str, url: str, timeout_s: float = 5, token: str | None = "secret-ops") -> RemoteScheduler:
    transport = None if way == "built-in" else HttpxConnections(False, server_client.UNLIMITED)
    return RemoteScheduler(url, token=token, instance="t", timeout_s=timeout_s, patience_s=0, transport=transport)


@asynccontextmanager
async def clients(script: Script, timeout_s: float = 5) -> AsyncIterator[tuple[ScriptedServer, list[RemoteScheduler]]]:
    """A server, and a client of it for each way."""
    async with scripted_server(script) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with client(WAYS[0], url, timeout_s) as first, client(WAYS[1], url, timeout_s) as second:
            yield server, [first, second]


def said(status: str, body: bytes, headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status.encode(), headers, len(body), body)


def fault(code: str, more: bytes = b"") -> bytes:
    return b'{"error":{"code":"%b","message":"so it is"%b}}' % (code.encode(), more)


CALLS: dict[str, Callable[[RemoteScheduler], Awaitable[object]]] = {
    "claim": lambda jobs: jobs.claim("q", wait=0),
    "settle": lambda jobs: jobs.settle("a", "lease", result={"n": 1}),
    "extend": lambda jobs: jobs.extend("a", "lease", 5_000),
    "announce": lambda jobs: jobs.announce(SNAPSHOT),
}


async def outcome(call: Awaitable[object]) -> object:
    """The answer, or the error as all who see it tell it from another."""
    try:
        return await call
    except TocsinError as error:
        return type(error), error.message, error.details


# ---- Answers -------------------------------------------------------------------------------------

ANSWERS = {
    "done": said("200 OK", b'{"settled":true,"state":"done"}'),
    "no jobs": said("200 OK", b'{"jobs":[]}'),
    "held": said("200 OK", b'{"leaseUntil":1764500000000}'),
    "in chunks": b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"job\r\n7\r\ns": []}\r\n0\r\n\r\n',
    "until the end": b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"jobs":[]}',
    "after 100": b"HTTP/1.1 100 Continue\r\n\r\n" + said("200 OK", b'{"jobs":[]}'),
    "not what was asked": said("200 OK", b'{"jobs":{}}'),
    "no JSON": said("200 OK", b"<p>welcome</p>", b"content-type: text/html\r\n"),
    "empty": said("200 OK", b""),
    "no UTF-8": said("200 OK", b'{"jobs":"\xff"}'),
    "another success": said("201 Created", b'{"jobs":[]}'),
    "nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "a redirect": said("307 Temporary Redirect", b"", b"location: http://127.0.0.1:9/\r\n"),
    "a page": said("404 Not Found", b"<p>nothing here</p>"),
    "a proxy's 502": said("502 Bad Gateway", b"<p>bad gateway</p>"),
    "unauthenticated": said("401 Unauthorized", fault("UNAUTHENTICATED")),
    "stale": said("409 Conflict", fault("STALE_LEASE", b',"cancelled":true')),
    "full": said("503 Service Unavailable", fault("STORE_FULL"), b"retry-after: 7\r\n"),
    "overloaded": said("429 Too Many Requests", fault("OVERLOADED"), b"Retry-After: 2\r\n"),
    "asked twice to wait": said("503 Busy", fault("OVERLOADED"), b"retry-after: 1\r\nretry-after: 3\r\n"),
    "its own fault": said("500 Internal Server Error", fault("INTERNAL")),
    "unknown": said("418 Teapot", fault("TEAPOT", b',"why":[1]')),
    "no object": said("400 Bad Request", b"[]"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answer_means_the_same(call: str, answer: str) -> None:
    async with clients(closing_after(ANSWERS[answer])) as (server, both):
        first, second = [await outcome(CALLS[call](jobs)) for jobs in both]
    assert first == second
    assert len(server.requests) == 2, "each is made once: whoever calls decides about another"


def lease_client(way: str, url: str) -> LeaseClient:
    transport = None if way == "built-in" else HttpxConnections(False, server_client.UNLIMITED)
    return LeaseClient(url, token="secret-ops", timeout_s=5, patience_s=0, transport=transport)


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answer_to_accepted_work_means_the_same(answer: str) -> None:
    outcomes = []
    async with scripted_server(closing_after(ANSWERS[answer])) as server:
        for way in WAYS:
            async with lease_client(way, f"http://127.0.0.1:{server.port}") as leases:
                outcomes.append(await outcome(leases.complete(ACCEPTED, result={"n": 1})))
    assert outcomes[0] == outcomes[1]
    first, second = [parsed(request) for request in server.requests]
    assert first == second
    assert first[0] == "POST /i/t/complete HTTP/1.1" and first[1]["authorization"] == "Bearer secret-ops"


async def test_accepted_work_asks_again_on_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep, slept = asyncio.sleep, list[float]()

    async def pause(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr("tocsin.dispatch.receiver.lease_client.asyncio.sleep", pause)
    busy = iter([ANSWERS["overloaded"], ANSWERS["full"]])

    async def answers(connection: ClientConnection) -> None:
        while await connection.request():
            await connection.send(next(busy, ANSWERS["held"]))

    async with scripted_server(answers) as server:
        async with LeaseClient(f"http://127.0.0.1:{server.port}") as leases:
            assert await leases.extend(ACCEPTED, 5_000) == 1764500000000
        assert [seconds for seconds in slept if seconds] == [2.0, 7.0] and server.accepted == 1


async def test_what_is_sent_says_the_same() -> None:
    """But for headers that say what the library is, and that it would unpack."""
    async with clients(answering(ANSWERS["stale"])) as (server, both):
        for call in CALLS.values():
            for jobs in both:
                await outcome(call(jobs))
    sent = [parsed(request) for request in server.requests]
    for first, second in zip(sent[::2], sent[1::2], strict=True):
        assert first == second
    assert [line for line, _, _ in sent[::2]] == [
        f"POST /i/t/{route} HTTP/1.1" for route in ("queues/q/claim", "complete", "extend", "workers")
    ]
    assert all(headers["authorization"] == "Bearer secret-ops" for _, headers, _ in sent)


def parsed(request: bytes) -> tuple[str, Mapping[str, str], bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = dict(one.split(": ", 1) for one in lines)
    headers = {name.lower(): value for name, value in headers.items()}
    for name in ("user-agent", "accept-encoding", "connection"):
        headers.pop(name, None)
    return line, headers, body


# ---- No answer -----------------------------------------------------------------------------------


async def test_a_server_that_is_not_there_is_named_in_the_same_words() -> None:
    with refused_port() as port:
        async with (
            client("built-in", f"http://127.0.0.1:{port}") as one,
            client("httpx", f"http://127.0.0.1:{port}") as other,
        ):
            first, second = [await outcome(jobs.complete("a", "lease")) for jobs in (one, other)]
    assert first == second
    assert "refused: nothing accepts connections" in str(first)


async def test_a_server_that_says_nothing_is_named_in_the_same_words() -> None:
    async with clients(silent, timeout_s=0.1) as (server, both):
        first, second = [await outcome(jobs.complete("a", "lease")) for jobs in both]
        assert first == second
        assert "timed out" in str(first)
        await server.empty()


@each_way
@pytest.mark.parametrize(
    "bytes_before_the_end", [b"", b"HTTP/1.1 200 OK\r\ncont", said("200 OK", b'{"settled":true,"state":"done"}')[:-1]]
)
async def test_an_answer_that_breaks_off_is_none(way: str, bytes_before_the_end: bytes) -> None:
    async with scripted_server(closing_after(bytes_before_the_end)) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with client(way, url) as jobs:
            with pytest.raises(UnreachableError, match=f"{url} did not answer") as broken:
                await jobs.complete("a", "lease")
    assert "secret-ops" not in repr(broken.value)


@each_way
async def test_text_that_cannot_be_sent_is_refused_here(way: str) -> None:
    async with client(way, "http://127.0.0.1:9") as jobs:
        with pytest.raises(InvalidInputError, match="id contains an unpaired surrogate"):
            await jobs.complete("a\ud800", "lease")


async def test_a_compressed_answer_is_none_where_none_was_asked_for() -> None:
    packed = said("200 OK", b"\x1f\x8b", b"content-encoding: gzip\r\n")
    async with clients(closing_after(packed)) as (_, (jobs, _)):
        with pytest.raises(UnreachableError, match="is compressed"):
            await jobs.complete("a", "lease")


# ---- Long, large, and cancelled --------------------------------------------------------------------


@each_way
async def test_a_claim_may_wait_for_longer_than_an_answer_may_take(way: str) -> None:
    async with host_and_source("socket") as found, client(way, found.url, timeout_s=0.3) as jobs:
        claiming = asyncio.create_task(jobs.claim("q", wait=20))
        await asyncio.sleep(0.6)
        await found.jobs.run_after(0, "p", id="a", queue="q")
        [job] = await claiming
        assert job.id == "a"
        assert (await jobs.settle(job.id, job.lease)).settled


@each_way
async def test_a_hundred_jobs_with_large_args_are_one_answer(way: str) -> None:
    args = "x" * 200_000
    async with host_and_source("socket") as found, client(way, found.url, timeout_s=20) as jobs:
        for start in range(0, 100, 25):
            some = [Job("p", args, after=0, options={"id": f"a{n}", "queue": "q"}) for n in range(start, start + 25)]
            await found.jobs.submit_many(some)
        claimed = await jobs.claim("q", max=100, wait=5)
        assert len(claimed) == 100 and all(job.args == args for job in claimed)


async def test_the_largest_claim_fits() -> None:
    """Args, a parent's result, and as much again for all else of each of a hundred jobs."""
    from tocsin.actors.scheduler.model.validation import CLAIM_MAX, MAX_ARGS
    from tocsin.dispatch.pulled import MAX_RESULT

    assert CLAIM_MAX[1] * (MAX_ARGS + MAX_RESULT) * 2 <= server_client.LARGEST_ANSWER


async def test_an_answer_that_was_cut_is_none_even_where_its_beginning_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_client, "LARGEST_ANSWER", 40)
    answer = said("200 OK", b'{"jobs":[]}' + b" " * 40)
    async with clients(closing_after(answer)) as (_, (jobs, _)):
        with pytest.raises(UnreachableError, match="longer than 40 bytes"):
            await jobs.claim("q")


@each_way
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 2", said("200 OK", b'{"jobs":[]}')[:-1]])
async def test_a_cancelled_call_hangs_up_at_any_byte(way: str, sent: bytes) -> None:
    begun = asyncio.Event()

    async def halting(connection: ClientConnection) -> None:
        await connection.request()
        await connection.send(sent)
        begun.set()
        await connection.gone()

    async with scripted_server(halting) as server, client(way, f"http://127.0.0.1:{server.port}") as jobs:
        claiming = asyncio.create_task(jobs.claim("q"))
        await begun.wait()
        claiming.cancel()
        await asyncio.wait([claiming])
        assert claiming.cancelled()
        await server.empty()


class Held:
    """A transport whose answers come when the test says."""

    def __init__(self) -> None:
        self.posts: list[str] = []
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: float) -> Answer:
        self.posts.append(url)
        if url.endswith("/claim"):
            return await self.answer
        return Answer(200, {}, b'{"settled":true,"state":"retrying"}')

    async def aclose(self) -> None:
        pass


JOBS = (
    b'{"jobs":[{"id":"a","incarnation":"i","args":null,"scheduledFor":1,"attempt":1,"attempts":0,"lease":"l",'
    b'"leaseUntil":9,"leaseMs":8,"queue":"q","instanceName":"t","functionPath":"p"}]}'
)


async def test_jobs_whose_answer_comes_just_after_the_claim_was_cancelled_are_given_back() -> None:
    async with client("built-in", "http://127.0.0.1:9") as jobs:
        held = Held()
        jobs._client._server._builtin = held
        claiming = asyncio.create_task(jobs.claim("q"))
        await asyncio.sleep(0.01)
        claiming.cancel()
        held.answer.set_result(Answer(200, {}, JOBS))
        await asyncio.wait([claiming])
        assert claiming.cancelled()
        assert [url.rpartition("/")[2] for url in held.posts] == ["claim", "complete"]


@each_way
async def test_a_client_that_was_closed_connects_again(way: str) -> None:
    async with scripted_server(answering(ANSWERS["done"])) as server:
        jobs = client(way, f"http://127.0.0.1:{server.port}")
        for _ in range(2):
            assert await jobs.complete("a", "lease")
            if way == "built-in":  # who gives a transport closes it for good
                await jobs.aclose()
                await server.empty()
        await jobs.aclose()


async def test_settlements_of_one_worker_share_its_connections() -> None:
    async with clients(answering(ANSWERS["done"])) as (server, (jobs, _)):
        for _ in range(20):
            await asyncio.gather(*(jobs.complete("a", "lease") for _ in range(4)))
        assert server.accepted == 4
