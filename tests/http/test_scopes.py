"""Every route there is, with every scope and instance pattern: generated from the table of operations, so that a new
route is asked for here on the day it is written; and the table in docs/access.md says the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.http.http_client import client_of, paths_of, refused
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.deeds import DEEDS
from tocsin.actors.http.openapi import PLACES, routes
from tocsin.actors.http.operations import ADMIN, OPERATIONS, Operation
from tocsin.actors.http.tokens import SCOPES

pytestmark = pytest.mark.anyio

BY_LEASE: Final = {("POST", "/complete"), ("POST", "/extend")}
"""Decision 5: the lease in the body is leave enough."""
SINGLE: Final = [f"{scope}er:{scope}:secret-{scope}" for scope in SCOPES]
LIMITED: Final = [f"limited-{scope}:{scope}@tenant-*:limited-{scope}" for scope in SCOPES]
PAGE: Final = Path(__file__).parents[2] / "docs" / "access.md"
ROW: Final = re.compile(r"^\| `([A-Z]+) ([^`]+)` \| (.+) \|$", re.MULTILINE)


def named(operation: Operation) -> str:
    return f"{operation.method} {operation.path or '/i/{instance}'}"


GUARDED = [one for one in OPERATIONS if (one.method, one.path) not in BY_LEASE]


async def ask(client: httpx.AsyncClient, operation: Operation, place: str, token: str | None) -> httpx.Response:
    """A request that says nothing: let in, it is answered 200, 400 or 404."""
    path = re.sub(r"\{[a-zA-Z]+\}", "x", operation.path)
    body: Any = {} if operation.method in ("POST", "PUT") else None
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return await client.request(operation.method, place + path, json=body, headers=headers)


def places(operation: Operation) -> Iterator[str]:
    """Where a route exists; the instance itself has no place at the root."""
    yield "/i/tenant-a"
    if operation.path:
        yield ""


async def test_every_route_is_an_operation_or_named_here(host: ActorHost) -> None:
    paths = [*(one.path for one in OPERATIONS), "/healthz", "/readyz", "/ui", "/ui/{rest:path}", "/ws", "/ws-token"]
    paths += ["/export", "/import", "/seal"]
    once = {"/instances", "/openapi.json", "/metrics"}
    known = {place + path for place in PLACES for path in paths if place + path} | once
    assert paths_of(host.asgi(tokens=SINGLE)) == known
    assert {(one.method, one.path) for one in OPERATIONS if not one.scopes} == BY_LEASE
    assert all(one.scopes <= set(SCOPES) for one in OPERATIONS)


@pytest.mark.parametrize("operation", GUARDED, ids=named)
async def test_a_route_lets_in_its_scopes_and_no_others(host: ActorHost, operation: Operation) -> None:
    async with client_of(host.asgi(tokens=SINGLE), base="https://tocsin.example") as client:
        for place in places(operation):
            refused(await ask(client, operation, place, None), 401, "UNAUTHENTICATED")
            refused(await ask(client, operation, place, "secret"), 401, "UNAUTHENTICATED")
            for scope in SCOPES:
                answer = await ask(client, operation, place, f"secret-{scope}")
                if scope in operation.scopes | ADMIN:
                    assert answer.status_code in (200, 400, 404), answer.text
                else:
                    refused(answer, 403, "FORBIDDEN", f"'{scope}er'", *operation.scopes)


@pytest.mark.parametrize("operation", GUARDED, ids=named)
async def test_a_limited_token_reaches_its_instances_only(host: ActorHost, operation: Operation) -> None:
    async with client_of(host.asgi(tokens=LIMITED)) as client:
        for scope in operation.scopes | ADMIN:
            token = f"limited-{scope}"
            assert (await ask(client, operation, "/i/tenant-a", token)).status_code in (200, 400, 404)
            for place in ("/i/tenants", "/i/other", "/i/default", "/i/Tenant-a", *([""] if operation.path else [])):
                refused(await ask(client, operation, place, token), 403, "FORBIDDEN", "does not reach")
        for scope in set(SCOPES) - operation.scopes - ADMIN:
            refused(await ask(client, operation, "/i/tenant-a", f"limited-{scope}"), 403, "FORBIDDEN", "that needs")


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one not in GUARDED], ids=named)
async def test_by_lease_no_token_is_asked_for_and_none_helps(host: ActorHost, operation: Operation) -> None:
    body = {"id": "x", "lease": "1.1.guessed", "leaseMs": 1_000}
    if operation.path == "/complete":
        del body["leaseMs"]

    async def never(*_: Any) -> bool:
        return False

    for options in ({"tokens": SINGLE}, {"authorize": never}, {"tokens": SINGLE, "authorize": never}):
        async with client_of(host.asgi(**options)) as client:
            for headers in ({}, {"authorization": "Bearer secret-admin"}, {"authorization": "Bearer wrong"}):
                for place in places(operation):
                    answer = await client.post(place + operation.path, json=body, headers=headers)
                    refused(answer, 409, "STALE_LEASE")


@pytest.mark.parametrize("operation", OPERATIONS, ids=named)
@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"via": "1.1 x"}],
    ids=lambda headers: next(iter(headers)),
)
async def test_without_tokens_no_route_answers_what_comes_from_elsewhere(
    host: ActorHost, operation: Operation, headers: dict[str, str]
) -> None:
    async with client_of(host.asgi(insecure=True)) as client:
        path = "/i/tenant-a" + re.sub(r"\{[a-zA-Z]+\}", "x", operation.path)
        refused(await client.request(operation.method, path, json={}, headers=headers), 403, "FORBIDDEN", "no tokens")


async def test_the_list_of_instances_shows_a_limited_token_its_own(host: ActorHost) -> None:
    for name in ("tenant-a", "tenant-b", "other"):
        await host.scheduler(name).pause(False)
    tokens = [*SINGLE, *LIMITED]
    async with client_of(host.asgi(tokens=tokens)) as client:

        async def names(token: str) -> list[str]:
            answer = await client.get("/instances", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == 200, answer.text
            return [one["name"] for one in answer.json()["instances"]]

        assert await names("limited-admin") == ["tenant-a", "tenant-b"]
        assert await names("secret-admin") == ["other", "tenant-a", "tenant-b"]
        for scope in set(SCOPES) - ADMIN:
            for token in (f"limited-{scope}", f"secret-{scope}"):
                answer = await client.get("/instances", headers={"authorization": f"Bearer {token}"})
                refused(answer, 403, "FORBIDDEN", "admin")


async def test_the_page_about_access_lists_every_route_with_its_scopes(host: ActorHost) -> None:
    listed = {(method, path): words for method, path, words in ROW.findall(PAGE.read_text("utf-8"))}
    wanted = {
        (method, path or "/i/{instance}"): " or ".join(f"`{scope}`" for scope in sorted(scopes - ADMIN))
        or ("`admin`" if scopes else "none: the lease" if (method, path) in BY_LEASE else "none")
        for _, path, method, scopes, _ in routes()
    }
    wanted |= {("GET", "/openapi.json"): "none", ("GET", "/ws"): "`read`"}  # which the document itself leaves out
    assert listed == wanted
    served = {path.removeprefix("/i/{instance}") or path for path in paths_of(host.asgi(tokens=SINGLE))}
    assert {path for _, path in listed} == {path for path in served if not path.startswith("/ui")}


def test_what_a_token_may_not_do_is_said_in_plain_english() -> None:
    assert {one.action for one in OPERATIONS} | {"instances", "metrics", "export", "import", "seal"} == set(DEEDS)
    assert not [words for words in DEEDS.values() if "_" in words or "." in words]


async def test_who_may_not_reads_what(host: ActorHost) -> None:
    async with client_of(host.asgi(tokens=["web:read:hush-hush"])) as client:
        answer = await client.post("/dead/retry", json={"id": "a"}, headers={"authorization": "Bearer hush-hush"})
    refused(answer, 403, "FORBIDDEN", "token 'web' may not retry dead jobs: that needs the scope operate")
