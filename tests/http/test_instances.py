"""`GET /instances`: which there are, what they hold, in pages, and only those that the caller may see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http.http_client import DUE, HttpClient, client_of, open_host, refused
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http import Caller
from tocsin.errors import InvalidInputError

pytestmark = pytest.mark.anyio

TOKENS = [
    "root:admin:secret-root",
    "tenants:admin@tenant-?:secret-tenants",
    "ops:read+schedule+operate+work:secret-ops",
]
NAMES = ["default", "tenant-a", "tenant-b", "zoo"]


@pytest.fixture
async def host() -> AsyncIterator[ActorHost]:
    async with open_host() as (opened, _):
        for name in reversed(NAMES):
            await opened.scheduler(name).run_at(DUE, "p", id="a")
        yield opened


async def listed(host: ActorHost, path: str = "/instances", token: str = "secret-root") -> Any:
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        answer = await client.get(path, headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(page: Any) -> list[str]:
    return [one["name"] for one in page["instances"]]


async def test_a_host_that_holds_nothing_has_none(http_client: HttpClient) -> None:
    assert (await http_client.get("/instances")).json() == {"instances": [], "truncated": False}
    await http_client.get("/i/only-read/status")
    assert (await http_client.get("/instances")).json()["instances"] == []


async def test_instances_come_by_name_with_their_counts(http_client: HttpClient) -> None:
    await http_client.schedule("/i/b", id="x")
    await http_client.schedule("/i/b", id="y")
    await http_client.schedule("/i/B", id="z")
    await http_client.bury("dead")

    assert (await http_client.get("/instances")).json() == {
        "instances": [
            {"name": "B", "backlog": 1, "inFlight": 0, "dead": 0, "paused": False},
            {"name": "b", "backlog": 2, "inFlight": 0, "dead": 0, "paused": False},
            {"name": "default", "backlog": 0, "inFlight": 0, "dead": 1, "paused": False},
        ],
        "truncated": False,
    }


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
async def test_pages_give_each_once(host: ActorHost, limit: int) -> None:
    seen, cursor = [], ""
    for _ in range(len(NAMES)):
        page = await listed(host, f"/instances?limit={limit}&cursor={cursor}")
        assert len(page["instances"]) <= limit
        seen += names(page)
        if not page["truncated"]:
            break
        cursor = page["cursor"]
    assert seen == NAMES
    assert "cursor" not in page


async def test_a_token_of_some_instances_sees_those(host: ActorHost) -> None:
    page = await listed(host, token="secret-tenants")
    assert names(page) == ["tenant-a", "tenant-b"]
    assert page["truncated"] is False
    first = await listed(host, "/instances?limit=1", token="secret-tenants")
    assert (names(first), first["cursor"]) == (["tenant-a"], "tenant-a")


async def test_it_needs_the_scope_admin(host: ActorHost) -> None:
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        answer = await client.get("/instances", headers={"authorization": "Bearer secret-ops"})
        refused(answer, 403, "FORBIDDEN", "'ops'", "admin")
        refused(await client.get("/instances"), 401, "UNAUTHENTICATED")


async def test_the_apps_own_rule_is_asked_for_each(host: ActorHost) -> None:
    async def rule(caller: Caller, action: str, instance: str, resource: str | None) -> bool:
        assert (action, resource) == ("instances", None)
        return instance != "tenant-a"

    async with client_of(host.asgi(authorize=rule)) as client:
        assert names((await client.get("/instances")).json()) == ["default", "tenant-b", "zoo"]


async def test_what_it_cannot_take_is_refused(http_client: HttpClient) -> None:
    refused(await http_client.get("/instances?limit=0"), 400, "INVALID_INPUT", "limit", "1..1000")
    refused(await http_client.get("/instances?limit=1001"), 400, "INVALID_INPUT", "limit", "1..1000")
    refused(await http_client.get("/instances?cursor=a/b"), 400, "INVALID_INPUT", "instance name")
    refused(await http_client.get("/instances?state=x"), 400, "INVALID_INPUT", "state", "cursor, limit")
    refused(await http_client.post("/instances", {}), 405, "METHOD_NOT_ALLOWED")
    refused(await http_client.get("/i/a/instances"), 404, "NOT_FOUND")
    with pytest.raises(InvalidInputError, match="limit"):
        await http_client.host.instances(limit=0)


async def test_a_removed_instance_is_gone(http_client: HttpClient) -> None:
    await http_client.schedule("/i/tenant", id="a")
    assert (await http_client.client.delete("/i/tenant?confirm=tenant")).status_code == 200
    assert (await http_client.get("/instances")).json()["instances"] == []
