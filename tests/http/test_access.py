"""Who is let in: tokens and their scopes and instances, and loopback without any."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.http.http_client import HttpClient, client_of, refused
from tests.http.route_requests import ABSENT, ANSWERED, BY_LEASE, FROZEN, JOB, LIMITED, REQUESTS, SCOPES, TOKENS, ask
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http import parse_token
from tocsin.actors.http.operations import OPERATIONS
from tocsin.errors import SettingsError

pytestmark = pytest.mark.anyio


def test_every_operation_is_asked_for_here() -> None:
    asked = [
        (
            method,
            re.sub(
                "/s(?=$|/)",
                "/{name}",
                re.sub(
                    "/[xy]$",
                    "/{redriveId}",
                    path.partition("?")[0]
                    .replace("/z", "/{backfillId}")
                    .replace("/groups/g", "/groups/{group}")
                    .replace("/groups/h", "/groups/{group}")
                    .replace("/queues/q/", "/queues/{queue}/")
                    .replace("/queues/q", "/queues/{queueName}")
                    .replace("/o/", "/{owner}/"),
                ),
            ),
        )
        for path, (method, *_) in REQUESTS.items()
    ]
    assert sorted(asked) == sorted((one.method, one.path) for one in OPERATIONS if one.path not in BY_LEASE)


# ---- Building ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"tokens": []}, {"tokens": ""}, {"tokens": None, "insecure": False}])
async def test_an_app_that_anyone_could_use_is_not_built(host: ActorHost, options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"tokens=.*authorize=.*insecure=True"):
        host.asgi(**options)


async def test_a_wrong_token_is_refused_when_the_app_is_built(host: ActorHost) -> None:
    with pytest.raises(SettingsError, match="everything") as caught:
        host.asgi(tokens=["a:everything:hush"])
    assert "hush" not in str(caught.value)


# ---- Tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REQUESTS)
async def test_each_route_needs_its_scope(host: ActorHost, path: str) -> None:
    async with client_of(host.asgi(tokens=TOKENS), base="https://tocsin.example") as client:
        if path in ABSENT:
            await ask(client, "/schedules/s", "secret-schedule")
            await ask(client, "/groups", "secret-schedule")
        if path in FROZEN:
            await ask(client, "/clock", "secret-admin")
        for scope in SCOPES:
            answer = await ask(client, path, f"secret-{scope}")
            if scope in REQUESTS[path][2] | {"admin"}:
                assert answer.status_code == ANSWERED.get(path, 200), answer.text
                if path in FROZEN:
                    await ask(client, "/clock/freeze", "secret-admin")  # another advance is not refused
            else:
                refused(answer, 403, "FORBIDDEN", f"'{scope}er'", *REQUESTS[path][2])


@pytest.mark.parametrize("path", REQUESTS)
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer wrong")],
        [("authorization", "Bearer secret-admi")],
        [("authorization", "Bearer secret-adminn")],
        [("authorization", "Bearer ")],
        [("authorization", "secret-admin")],
        [("authorization", "Basic secret-admin")],
        [("authorization", "Bearer adminer:admin:secret-admin")],
        [("authorization", b"Bearer \xff\xfe")],
        [("authorization", "Bearer secret-admin"), ("authorization", "Bearer secret-admin")],
        [("cookie", "token=secret-admin")],
    ],
)
async def test_without_a_known_token_it_is_401(host: ActorHost, path: str, headers: list[tuple[str, Any]]) -> None:
    method, body, _ = REQUESTS[path]
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        for place in ("/i/t" if path.startswith("?") else "", "/i/-wrong-"):
            answer = await client.request(method, place + path, json=body, headers=[("x", "y"), *headers])
            refused(answer, 401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"] == 'Bearer realm="tocsin"'
            assert "secret" not in answer.text.replace("<secret>", "")


async def test_a_token_in_the_url_is_no_token(host: ActorHost) -> None:
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        refused(await client.get("/status?token=secret-admin"), 401, "UNAUTHENTICATED")


async def test_the_scheme_may_be_written_in_any_case(host: ActorHost) -> None:
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        answer = await client.get("/status", headers={"authorization": "bearer  secret-read"})
        assert answer.status_code == 200


async def test_an_unauthenticated_body_is_not_read(host: ActorHost) -> None:
    taken: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        taken.append(b" ")
        yield taken[-1]

    async with client_of(host.asgi(tokens=TOKENS)) as client:
        refused(await client.post("/schedule", content=body()), 401, "UNAUTHENTICATED")
    assert taken == []


async def test_an_instance_limited_token_reaches_its_instances_only(host: ActorHost) -> None:
    async with client_of(host.asgi(tokens=[LIMITED])) as client:
        for path, (_, _, scopes) in REQUESTS.items():
            if scopes & {"read", "schedule"}:
                answer = await ask(client, path, "secret-tenant", "/i/tenant-a")
                assert answer.status_code == ANSWERED.get(path, 200)
                for place in ("", "/i/default", "/i/other", "/i/Tenant-a"):
                    refused(await ask(client, path, "secret-tenant", place), 403, "FORBIDDEN", "does not reach")


async def test_probes_need_no_token(host: ActorHost) -> None:
    for options in ({"tokens": TOKENS}, {"authorize": lambda *_: False}):
        async with client_of(host.asgi(**options)) as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/readyz")).status_code == 200


async def test_with_tokens_any_host_header_will_do(host: ActorHost) -> None:
    async with client_of(host.asgi(tokens=TOKENS, insecure=True), base="http://app.example") as client:
        refused(await ask(client, "/status"), 401, "UNAUTHENTICATED")
        assert (await ask(client, "/status", "secret-read")).status_code == 200


# ---- Loopback without either ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "host_header", ["localhost", "LOCALHOST:8321", "127.0.0.1", "127.0.0.1:8321", "127.9.9.9:1", "[::1]", "[::1]:8321"]
)
async def test_loopback_names_are_answered(http_client: HttpClient, host_header: str) -> None:
    assert (await http_client.get("/status", headers={"host": host_header})).status_code == 200


@pytest.mark.parametrize(
    "host_header",
    [
        "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8321", "10.0.0.1",
        "localhost@evil.example", "evil.example#localhost", "localhost:80:80", "[::2]", "::1", "", "0.0.0.0",
        "localhost.", "testserver",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/status", "/schedule", "/healthz", "/readyz"])
async def test_other_names_are_refused_as_rebound(http_client: HttpClient, path: str, host_header: str) -> None:
    method = "POST" if path == "/schedule" else "GET"
    answer = await http_client.client.request(method, path, json=JOB, headers={"host": host_header})
    refused(answer, 403, "FORBIDDEN", "Host header")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://[bad"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/status", "/schedule"])
async def test_pages_of_other_origins_are_refused(http_client: HttpClient, path: str, headers: dict[str, str]) -> None:
    method = "POST" if path == "/schedule" else "GET"
    refused(await http_client.client.request(method, path, json=JOB, headers=headers), 403, "FORBIDDEN", "web pages")


async def test_a_preflight_of_another_origin_gets_no_leave(http_client: HttpClient) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = await http_client.client.options("/schedule", headers=headers)
    refused(answer, 403, "FORBIDDEN")
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_pages_of_the_same_origin_are_answered(http_client: HttpClient) -> None:
    for headers in ({"origin": "http://localhost"}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        assert (await http_client.post("/schedule", JOB, headers=headers)).status_code == 200


@pytest.mark.parametrize("peer", ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "fe80::1%eth0", "0.0.0.0", "::"])
async def test_other_machines_are_refused_whatever_they_call_us(host: ActorHost, peer: str) -> None:
    """An app may be mounted on a server that others reach, and anybody can write a Host header."""
    app = host.asgi(insecure=True)
    transport = httpx.ASGITransport(app=app, client=(peer, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in ("/status", "/healthz"):
            refused(await client.get(path), 403, "FORBIDDEN", "this machine")


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "testclient", ""])
async def test_this_machine_is_answered_over_either_family_and_a_socket_in_the_file_system(
    host: ActorHost, peer: str
) -> None:
    transport = httpx.ASGITransport(app=host.asgi(insecure=True), client=(peer, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://[::1]:8321") as client:
        assert (await client.get("/status")).status_code == 200


PROXIED = [
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-host": "localhost"},
    {"x-forwarded-proto": "http"},
    {"x-real-ip": "127.0.0.1"},
    {"forwarded": "for=127.0.0.1;host=localhost"},
    {"via": "1.1 proxy"},
]


@pytest.mark.parametrize("headers", PROXIED, ids=lambda headers: next(iter(headers)))
async def test_what_a_proxy_passes_on_may_come_from_anywhere(host: ActorHost, headers: dict[str, str]) -> None:
    """Some proxies send on the address they connect to as the Host."""
    async with client_of(host.asgi(insecure=True)) as client:
        refused(await client.get("/status", headers=headers), 403, "FORBIDDEN", "proxy")
        refused(await client.get("/status", headers={**headers, "host": "evil.example"}), 403, "FORBIDDEN")
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        refused(await client.get("/status", headers=headers), 401, "UNAUTHENTICATED")
        assert (await client.get("/status", headers={**headers, "authorization": "Bearer secret-read"})).is_success


async def test_a_second_fetch_site_header_does_not_hide_behind_the_first(http_client: HttpClient) -> None:
    headers = [("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]
    refused(await http_client.client.get("/status", headers=headers), 403, "FORBIDDEN", "Sec-Fetch-Site")


async def test_on_loopback_with_tokens_it_is_the_token_that_counts(host: ActorHost) -> None:
    """A rebound name and a foreign page come in like anybody else, without a token; no page is given leave to read."""
    foreign = {"host": "evil.example", "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        refused(await client.get("/status", headers=foreign), 401, "UNAUTHENTICATED")
        answer = await client.get("/status", headers={**foreign, "authorization": "Bearer secret-read"})
        assert answer.status_code == 200
        preflight = await client.options("/schedule", headers={**foreign, "access-control-request-method": "POST"})
        for one in (answer, preflight):
            assert not any(name.startswith("access-control") for name in one.headers)


async def test_ready_made_tokens_are_taken_too(host: ActorHost) -> None:
    token = parse_token("eye:read:secret-eye")
    async with client_of(host.asgi(tokens=[token])) as client:
        assert (await ask(client, "/status", "secret-eye")).status_code == 200
