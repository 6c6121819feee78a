"""Work of a host has the context variables of whoever started it, not those of the caller who happened to cause it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from tocsin import Actor, ActorHost, DeadJob, Firing
from tocsin.dispatch.transport import Answer

pytestmark = pytest.mark.anyio

user: ContextVar[str] = ContextVar("user", default="nobody")
seen: list[tuple[str, str]] = []


class Remembers(Actor):
    async def add(self) -> None:
        seen.append(("actor", user.get()))


class Refusing:
    async def post(self, *args: Any, **options: Any) -> Answer:
        seen.append(("transport", user.get()))
        return Answer(410, {}, b"")

    async def aclose(self) -> None: ...


async def allow(job: Firing) -> bool:
    seen.append(("authorize_fire", user.get()))
    return True


async def test_callbacks_rules_and_actors_do_not_see_the_variables_of_the_request_that_caused_them() -> None:
    seen.clear()
    died = asyncio.Event()

    async def on_dead(job: DeadJob) -> None:
        seen.append(("on_dead", user.get()))
        died.set()

    user.set("the app")
    async with ActorHost.open(
        "memory:",
        origin="http://127.0.0.1:9",
        insecure=True,
        transport=Refusing(),
        actors=[Remembers],
        authorize_fire=allow,
        on_dead=on_dead,
    ) as host:
        user.set("a request's user")
        await host.scheduler("x").run_after(0, "work:run")
        await host.actor(Remembers, "x").add()
        async with asyncio.timeout(10):
            await died.wait()

    assert {of for of, _ in seen} == {"actor", "transport", "authorize_fire", "on_dead"}
    assert {by for _, by in seen} == {"the app"}
