"""All faces of a receiver answer alike, and each calls handlers where users of its framework expect it."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Mapping
from typing import Any

import aiohttp.web
import flask
import pytest
from aiohttp.test_utils import TestClient, TestServer
from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpResponse

from tests.dispatch.receiver.faces import BLOCKING, FACES, VIEWS, Face, asgi, django_app, flask_app, wsgi
from tests.dispatch.receiver.signed_callbacks import NOW_MS, ReceiverFixture, error
from tests.django_settings import django_urls
from tocsin import Accepted, Received, RetryLater, TerminalError
from tocsin.dispatch.receiver.dedup import Claim
from tocsin.dispatch.transport import Answer

pytestmark = pytest.mark.anyio

every_face = pytest.mark.parametrize("face", FACES.values(), ids=FACES)
every_view = pytest.mark.parametrize("face", VIEWS.values(), ids=VIEWS)
blocking = pytest.mark.parametrize("face", BLOCKING.values(), ids=BLOCKING)


def outcome(args: Any) -> Any:
    """What the args ask for."""
    match args:
        case "later":
            raise RetryLater("90s")
        case "never":
            raise TerminalError("no such invoice")
        case "fault":
            raise ValueError("password=hunter2")
        case "accepted":
            return Accepted(60_000)
    return args


async def outcome_of_coroutine(args: Any) -> Any:
    await asyncio.sleep(0)
    return outcome(args)


TABLE: Mapping[str, tuple[int, Mapping[str, str | None]]] = {
    "a result": (200, {"content-type": "application/json", "tocsin-result": None}),
    "later": (503, {"retry-after": "90", "tocsin-retry": None}),
    "never": (422, {"tocsin-retry": "never"}),
    "fault": (500, {"tocsin-retry": None}),
    "accepted": (202, {"tocsin-accepted": "1", "tocsin-lease-ms": "60000"}),
}


@every_face
@pytest.mark.parametrize("handler", [outcome, outcome_of_coroutine])
async def test_every_face_sends_what_the_scheduler_acts_on(face: Face, handler: Any) -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": handler})
    found: dict[str, Answer] = {}
    for asked in TABLE:
        request = fixture.scheduler.request(asked, incarnation=f"of-{asked.replace(' ', '-')}")
        found[asked] = await face(fixture.receiver, "POST", *request)

    assert {
        asked: (answer.status, {name: answer.headers.get(name) for name in TABLE[asked][1]})
        for asked, answer in found.items()
    } == TABLE
    assert found["a result"].body == b'"a result"'
    assert b"hunter2" not in found["fault"].body


@every_face
async def test_every_face_runs_a_job_once_and_repeats_its_answer(face: Face) -> None:
    fixture, runs = ReceiverFixture(), list[Any]()

    @fixture.receiver.handler("invoices:send")
    def send(args: Any) -> int:
        runs.append(args)
        return 7

    answers = [await face(fixture.receiver, "POST", *fixture.scheduler.request(1)) for _ in range(2)]

    assert [(answer.status, answer.body) for answer in answers] == [(200, b"7")] * 2
    assert runs == [1]


@every_face
async def test_every_face_refuses_what_is_forged_and_declines_what_runs_elsewhere(face: Face) -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": outcome})
    headers, body = fixture.scheduler.request(1)
    forged = await face(fixture.receiver, "POST", headers, body + b" ")
    unsigned = await face(fixture.receiver, "POST", {"content-type": "application/json"}, body)
    await fixture.receiver.dedup.claim(Claim("job-1:i1", "7.0.other", NOW_MS, NOW_MS + 60_000), now_ms=NOW_MS)
    declined = await face(fixture.receiver, "POST", headers, body)

    assert [(answer.status, error(answer)["code"]) for answer in (forged, unsigned)] == [(401, "UNAUTHENTICATED")] * 2
    assert (declined.status, declined.headers["tocsin-declined"]) == (409, "1")


@every_view
async def test_every_view_takes_posts_only_and_bodies_up_to_its_limit(face: Face) -> None:
    fixture = ReceiverFixture(max_body=500)
    fixture.receiver.register({"invoices:send": outcome})
    fits = fixture.scheduler.request("x" * 100)
    too_long = fixture.scheduler.request("x" * 400)

    taken = [await face(fixture.receiver, "POST", *request) for request in (fits, too_long)]
    got = await face(fixture.receiver, "GET", {}, b"")
    asked = await face(fixture.receiver, "HEAD", {}, b"")

    assert [answer.status for answer in taken] == [200, 413]
    assert (got.status, got.headers["allow"], error(got)["code"]) == (405, "POST", "METHOD_NOT_ALLOWED")
    assert (asked.status, asked.body) == (405, b"")


# ---- Bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"wsgi.input_terminated": True}, 200),
        ({"CONTENT_LENGTH": "", "wsgi.input_terminated": True}, 200),
        ({}, 401),  # whoever says no length, and whose end cannot be seen, has sent nothing
        ({"CONTENT_LENGTH": "lots"}, 401),
        ({"CONTENT_LENGTH": "9" * 400}, 413),
    ],
)
async def test_of_a_wsgi_body_without_a_length_no_more_is_read_than_may_be(
    environ: dict[str, Any], status: int
) -> None:
    fixture, said = ReceiverFixture(), list[str]()
    fixture.receiver.register({"invoices:send": outcome})

    def start_response(status: str, headers: Any, failure: Any = None) -> Any:
        said.append(status[:3])

    headers, body = fixture.scheduler.request("x")
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    environ |= {"REQUEST_METHOD": "POST", "wsgi.input": io.BytesIO(body)}
    await asyncio.to_thread(fixture.receiver.wsgi, environ, start_response)

    endless = io.BytesIO(b"x" * (fixture.receiver.max_body * 2))
    environ |= {"wsgi.input": endless, "wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
    await asyncio.to_thread(fixture.receiver.wsgi, environ, start_response)

    assert said == [str(status), "413"]
    assert endless.tell() == fixture.receiver.max_body + 1


async def test_a_flask_body_without_a_length_is_read_to_its_end() -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": outcome})
    headers, body = fixture.scheduler.request("x")

    def send() -> int:
        environ = {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}
        client = flask_app(fixture.receiver).test_client()
        answer = client.post("/callback", headers=headers, input_stream=io.BytesIO(body), environ_overrides=environ)
        return int(answer.status_code)

    assert await asyncio.to_thread(send) == 200


async def test_a_body_that_an_aiohttp_middleware_has_read_is_there_still() -> None:
    fixture = ReceiverFixture()
    fixture.receiver.register({"invoices:send": outcome})

    @aiohttp.web.middleware
    async def reading(request: aiohttp.web.Request, handler: Any) -> Any:
        await request.read()
        return await handler(request)

    app = aiohttp.web.Application(middlewares=[reading])
    app.router.add_post("/callback", fixture.receiver.aiohttp_handler)
    headers, body = fixture.scheduler.request("x")
    async with TestClient(TestServer(app)) as client:
        assert (await client.post("/callback", headers=headers, data=body)).status == 200


async def test_an_aiohttp_body_that_grows_too_long_or_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.dispatch.receiver.asgi.BODY_S", 0.05)
    fixture, gone = ReceiverFixture(max_body=1000), asyncio.Event()
    app = aiohttp.web.Application()
    app.router.add_post("/callback", fixture.receiver.aiohttp_handler)

    async def endless() -> Any:
        yield b"x"
        await gone.wait()

    async def growing() -> Any:
        for _ in range(11):
            yield b"x" * 100

    async with TestClient(TestServer(app)) as client:
        slow = await client.post("/callback", data=endless())
        gone.set()
        long = await client.post("/callback", data=growing())

    assert (slow.status, long.status) == (408, 413)


# ---- Where handlers run ----------------------------------------------------------------------------


@blocking
async def test_a_plain_function_runs_on_the_thread_of_its_request(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are its connections: Django has one a thread, and closes it when the request ends."""
    fixture, threads, starts = ReceiverFixture(), list[int](), list[int]()
    fixture.receiver.register({"invoices:send": lambda args: threads.append(threading.get_ident())})
    real = fixture.receiver.handle_sync

    def handle_sync(*request: Any) -> Answer:
        starts.append(threading.get_ident())
        return real(*request)

    monkeypatch.setattr(fixture.receiver, "handle_sync", handle_sync)
    await face(fixture.receiver, "POST", *fixture.scheduler.request())

    assert threads == starts != [threading.get_ident()]


async def test_handlers_see_the_flask_app() -> None:
    fixture, seen = ReceiverFixture(), list[str]()

    def plain(args: Any) -> None:
        seen.append(flask.current_app.name)

    async def coroutine(args: Any) -> None:
        await asyncio.sleep(0)
        seen.append(flask.current_app.name)

    fixture.receiver.register({"invoices:send": plain, "invoices:check": coroutine})
    await FACES["flask"](fixture.receiver, "POST", *fixture.scheduler.request())
    request = fixture.scheduler.request(incarnation="i2", function_path="invoices:check")
    await FACES["flask"](fixture.receiver, "POST", *request)

    assert seen == ["app", "app"]


@pytest.mark.parametrize("face", [FACES["django"], FACES["async django"]], ids=["wsgi", "asgi"])
async def test_a_failed_handler_s_writes_are_not_committed_by_django_for_its_answer(face: Face) -> None:
    """`ATOMIC_REQUESTS` is on in this app, and would commit: the view answers, and raises nothing."""
    fixture, inside = ReceiverFixture(), list[bool]()
    django_urls()

    async def coroutine(args: Any) -> None:
        inside.append(await sync_to_async(lambda: connection.in_atomic_block)())

    handler = coroutine if face is FACES["async django"] else lambda args: inside.append(connection.in_atomic_block)
    fixture.receiver.register({"invoices:send": handler})
    answer = await face(fixture.receiver, "POST", *fixture.scheduler.request())

    assert (answer.status, inside) == (200, [False])


async def test_the_blocking_view_of_django_refuses_an_app_under_asgi(caplog: pytest.LogCaptureFixture) -> None:
    """There it would hold the thread that the ORM calls of its handlers wait for."""
    app = django_app(ReceiverFixture().receiver.django_view, get_asgi_application)

    assert (await asgi(app, "POST", {}, b"")).status == 500
    assert any("django_async_view" in str(record.exc_info and record.exc_info[1]) for record in caplog.records)


async def test_django_wants_a_csrf_token_of_other_views_only() -> None:
    app = django_app(lambda request: HttpResponse(), get_wsgi_application)

    assert (await wsgi(app, "POST", {}, b"")).status == 403


async def test_the_job_is_the_same_through_every_face() -> None:
    found = {}
    for name, face in FACES.items():
        fixture, jobs = ReceiverFixture(), list[Received]()
        fixture.receiver.register({"invoices:send": lambda args, job, jobs=jobs: jobs.append(job)})
        request = fixture.scheduler.request({"n": 1}, pool="stripe", labels=("a",))
        await face(fixture.receiver, "POST", *request)
        found[name] = jobs

    assert all(jobs == found["handle"] for jobs in found.values()) and len(found["handle"]) == 1
