"""The audit log over HTTP: the token and the user are noted, not what a caller says of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.http.http_client import client_of
from tocsin.actors.actor_host import ActorHost

pytestmark = pytest.mark.anyio
TOKENS = ["ops:read+operate:secret-ops", "app:read+schedule+operate:secret-app", "root:admin:secret-root"]


@pytest.fixture
async def app(host: ActorHost) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        yield client


def by(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer secret-{token}"}


async def log(app: httpx.AsyncClient, **query: str) -> list[tuple[str, str | None, str]]:
    found = (await app.get("/audit", headers=by("ops"), params=query)).json()
    return [(one["action"], one.get("about"), one["by"].get("token")) for one in found["actions"]]


async def test_a_token_that_may_not_schedule_is_an_operators_and_what_it_does_is_noted(app: httpx.AsyncClient) -> None:
    for id in ("a", "b", "c"):
        job = {"id": id, "functionPath": "p", "delayMs": 10**7}
        assert (await app.post("/schedule", json=job, headers=by("app"))).status_code == 200
    await app.post("/cancel", json={"id": "a"}, headers=by("app"))
    await app.post("/cancel", json={"id": "b"}, headers=by("ops"))
    await app.post("/reschedule", json={"id": "c", "delayMs": 5 * 10**7}, headers=by("root"))
    await app.put("/pool", json={"name": "p", "paused": True}, headers=by("app"))
    assert await log(app) == [("set_pool", "p", "app"), ("reschedule", "c", "root"), ("cancel", "b", "ops")]
    assert await log(app, who="app") == [("set_pool", "p", "app")]
    pool = (await app.get("/pool?name=p", headers=by("ops"))).json()
    assert pool["pausedBy"] == {"via": "http", "token": "app"} and pool["pausedAt"] > 0


async def test_the_user_of_the_embedding_app_is_noted(host: ActorHost) -> None:
    class Signed:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self.app({**scope, "user": "carol"}, receive, send)

    async with client_of(Signed(host.asgi(authorize=lambda *_: True))) as app:
        await app.put("/instance", json={"paused": True})
        found = (await app.get("/audit")).json()["actions"]
    assert [(one["action"], one["by"]) for one in found] == [("pause", {"via": "http", "user": "carol"})]
