"""Requests as servers bring them: bodies that are there and that are not, answers that a framework sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount

from tests.http.http_client import DUE, client_of, refused
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.body import _Begun as Begun
from tocsin.actors.http.incoming import Incoming

pytestmark = pytest.mark.anyio

MESSAGE = {"type": "http.request", "body": b"x"}
JOB = {"functionPath": "p", "scheduledFor": DUE}


# ---- Begun ---------------------------------------------------------------------------------------


async def test_what_is_there_is_taken_without_waiting() -> None:
    async def receive() -> Any:
        return MESSAGE

    begun = Begun(receive)
    assert begun.message is MESSAGE
    assert await begun is MESSAGE


async def test_what_is_not_there_is_waited_for() -> None:
    may_come, steps = asyncio.Event(), []

    async def receive() -> Any:
        for step in range(3):
            steps.append(step)
            await asyncio.sleep(0)
        await may_come.wait()
        return MESSAGE

    begun = Begun(receive)
    assert (begun.message, steps) == (None, [0])
    asyncio.get_running_loop().call_later(0.01, may_come.set)
    assert await begun is MESSAGE
    assert steps == [0, 1, 2]


async def test_what_a_server_gives_in_another_way_than_by_a_coroutine_is_waited_for() -> None:
    future = asyncio.get_running_loop().create_future()
    begun = Begun(lambda: future)
    future.set_result(MESSAGE)
    assert await begun is MESSAGE


async def test_a_deadline_ends_the_wait_and_what_waits_is_told() -> None:
    told = []

    async def receive() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    begun = Begun(receive)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await begun
    assert told == ["cancelled"]


async def test_a_server_may_outlive_a_cancelled_wait() -> None:
    async def receive() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return MESSAGE

    begun = Begun(receive)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    assert await begun is MESSAGE
    task.uncancel()


async def test_what_a_server_raises_is_raised() -> None:
    async def at_once() -> Any:
        raise OSError("it left")

    async def later() -> Any:
        await asyncio.sleep(0)
        raise OSError("it left")

    with pytest.raises(OSError, match="it left"):
        Begun(at_once)
    begun = Begun(later)
    with pytest.raises(OSError, match="it left"):
        await begun


# ---- Headers -------------------------------------------------------------------------------------


def test_a_header_may_come_more_than_once() -> None:
    headers = [(b"host", b"a"), (b"x", b"1"), (b"x", b"\xff")]
    incoming = Incoming({"type": "http", "method": "GET", "path": "/", "headers": headers}, asyncio.Event().wait)  # type: ignore[arg-type]
    assert incoming.named == {b"host": [b"a"], b"x": [b"1", b"\xff"]}
    assert (incoming.all(b"x"), incoming.all(b"y")) == (["1", "\xff"], [])
    assert incoming.headers.getlist("X") == ["1", "\xff"]


async def test_a_header_that_was_good_once_opens_nothing_beside_another(host: ActorHost) -> None:
    app = host.asgi(tokens=["a:schedule:secret-of-a", "b:schedule:secret-of-b"])
    async with client_of(app) as client:
        a, b = ("authorization", "Bearer secret-of-a"), ("authorization", "Bearer secret-of-b")
        for given in (a, b, ("authorization", "bearer  secret-of-a"), a):
            assert (await client.post("/schedule", json=JOB, headers=[given])).status_code == 200
        refused(await client.post("/schedule", json=JOB, headers=[a, b]), 401, "UNAUTHENTICATED")
        refused(
            await client.post("/schedule", json=JOB, headers=[("authorization", "Bearer x")]), 401, "UNAUTHENTICATED"
        )
        jobs = await host.scheduler().list()
        assert [one.initiator and one.initiator.token for one in jobs.records].count("b") == 1


# ---- Middleware ----------------------------------------------------------------------------------


async def test_middleware_that_somebody_adds_sees_every_request(host: ActorHost) -> None:
    seen = []

    async def watch(request: Any, call_next: Any) -> Any:
        seen.append(request.url.path)
        return await call_next(request)

    app = host.asgi(insecure=True)
    app.user_middleware.append(Middleware(BaseHTTPMiddleware, dispatch=watch))
    async with client_of(app) as client:
        assert (await client.post("/schedule", json=JOB)).status_code == 200
        assert (await client.get("/status")).status_code == 200
        refused(await client.get("/nothing"), 404, "NOT_FOUND")
    assert seen == ["/schedule", "/status", "/nothing"]


# ---- Paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "/i/t"])
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/queues/mail/claim", 200),
        ("/queues/mail,pdf/claim", 200),
        ("/queues/*/claim", 200),
        ("/queues/claim", 405),
        ("/queues//claim", 404),
        ("/queues/a/b/claim", 404),
        ("/queues/a%2Fb/claim", 404),
        ("/queues/mail/claim/", 404),
        ("/queues/mail/claims", 404),
        ("/queues/mail", 405),
        ("/queues/mail/", 404),
        ("//queues/mail/claim", 404),
        ("/schedules/daily/pause", 404),
        ("/schedules/daily", 405),
        ("/schedules/preview", 405),
        ("/schedules/", 404),
        ("/dead/redrives/x", 405),
        ("/dead/redrives/", 404),
    ],
)
async def test_a_path_leads_to_what_it_names(host: ActorHost, place: str, path: str, status: int) -> None:
    async with client_of(host.asgi(insecure=True)) as client:
        assert (await client.post(place + path, json={})).status_code == status


async def test_a_name_in_a_path_is_found_where_the_app_is_mounted(host: ActorHost) -> None:
    outer = Starlette(routes=[Mount("/jobs", app=host.asgi(insecure=True))])
    async with client_of(outer) as client:
        assert (await client.post("/jobs/queues/mail/claim", json={})).json() == {"jobs": []}
        assert (await client.post("/jobs/i/t/queues/mail/claim", json={})).json() == {"jobs": []}
        refused(await client.post("/jobs/jobs/queues/mail/claim", json={}), 404, "NOT_FOUND")
