"""What holds for every route: methods, paths, instances, bodies and their limits, and errors nobody foresaw."""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.http.http_client import DUE, HttpClient, client_of, open_host, open_http_client, refused
from tocsin.actors.http.body import BATCH_BODY, SCHEDULE_BODY, SMALL_BODY
from tocsin.actors.http.operations import OPERATIONS
from tocsin.actors.scheduler.client.reads import LocalReads
from tocsin.errors import OverloadedError, StoreCorrupt, StoreFull, StoreUnavailable

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
ROUTES = [(one.method, re.sub(r"\{[a-zA-Z]+\}", "x", one.path)) for one in OPERATIONS if one.path]
ALLOWED = {path: [method for method, other in ROUTES if other == path] for _, path in ROUTES}
POSTS = [path for method, path in ROUTES if method == "POST"]
WITHOUT_BODY = {re.sub(r"\{[a-zA-Z]+\}", "x", one.path) for one in OPERATIONS if one.body_optional}


def said_nothing(path: str, answer: httpx.Response) -> None:
    """Where a body may be left out: there is no job to claim, and no such schedule or clock."""
    if path == "/queues/x/claim":
        assert (answer.status_code, answer.json()) == (200, {"jobs": []})
    else:
        refused(answer, 404, "NOT_FOUND")


# ---- Paths, methods, instances -------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/schedule/", "//schedule", "/Schedule", "/i", "/i//get", "/i/a/nothing"]
)
async def test_an_unknown_route_is_404_whatever_the_method(http_client: HttpClient, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = await http_client.client.request(method, path)
        error = refused(answer, 404, "NOT_FOUND", method)
        assert "there is no route" in error["message"]


@pytest.mark.parametrize("place", ["", "/i/default", "/i/tenant-a:1"])
@pytest.mark.parametrize(("method", "path"), [*ROUTES, ("GET", "/healthz"), ("GET", "/readyz")])
async def test_another_method_is_405_with_allow(http_client: HttpClient, place: str, method: str, path: str) -> None:
    methods = ALLOWED.get(path, [method])
    allow = ", ".join([*(name for one in methods for name in (("GET", "HEAD") if one == "GET" else (one,))), "OPTIONS"])
    for other in {"PUT", "PATCH", "DELETE", "POST", "GET", "TRACE", "PROPFIND"} - set(methods):
        answer = await http_client.client.request(other, place + path)
        refused(answer, 405, "METHOD_NOT_ALLOWED", place + path, other)
        assert answer.headers["allow"] == allow
    options = await http_client.client.options(place + path)
    assert (options.status_code, options.headers["allow"], options.content) == (204, allow, b"")
    assert not any(name.startswith("access-control") for name in options.headers)


async def test_head_is_get_without_the_body(http_client: HttpClient) -> None:
    for path in ("/status", "/healthz", "/get"):
        got, headed = await http_client.get(path), await http_client.client.head(path)
        assert (headed.status_code, headed.content) == (got.status_code, b"")
        assert headed.headers == got.headers
    assert (await http_client.client.head("/schedule")).status_code == 405


async def test_instances_are_apart_and_default_is_the_root(http_client: HttpClient) -> None:
    await http_client.schedule("/i/default", id="a")
    await http_client.schedule("/i/tenant-a", id="b")
    assert (await http_client.get("/get?id=a")).json() == (await http_client.get("/i/default/get?id=a")).json() != {}
    assert (await http_client.get("/get?id=b")).json() == {} != (await http_client.get("/i/tenant-a/get?id=b")).json()


@pytest.mark.parametrize("name", ["-a", ".a", "a%20b", "%C3%A9", "x" * 129, "a@b", "%2e%2e"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_wrong_instance_name_is_refused(http_client: HttpClient, name: str, method: str, path: str) -> None:
    refused(await http_client.client.request(method, f"/i/{name}{path}"), 400, "INVALID_INPUT", "instance name")


# ---- Bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ["empty"]),
        (b" \n", ["empty"]),
        (b"{", ["not JSON"]),
        (b"{} {}", ["not JSON"]),
        (b"{'id': 1}", ["not JSON"]),
        (b'{"id": NaN}', ["not JSON"]),
        (b'\xef\xbb\xbf{"id": "a"}', ["not JSON"]),
        (b'{"id": "\xff"}', ["not UTF-8 (byte 8)"]),
        (b'{"args": "\xc3("}', ["not UTF-8 (byte 10)"]),
        ('{"id": "a"}'.encode("utf-16-le"), ["not JSON"]),
    ],
)
async def test_a_body_that_does_not_parse_is_invalid_json(
    http_client: HttpClient, path: str, body: bytes, words: list[str]
) -> None:
    answer = await http_client.client.post(path, content=body, headers=JSON)
    if path in WITHOUT_BODY and not body:
        said_nothing(path, answer)
    else:
        refused(answer, 400, "INVALID_JSON", *words)


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("body", [b"null", b"1", b'"a"', b"[]", b"true"])
async def test_a_body_that_is_no_object_is_invalid_input(http_client: HttpClient, path: str, body: bytes) -> None:
    answer = await http_client.client.post(path, content=body, headers=JSON)
    refused(answer, 400, "INVALID_INPUT", "the body must be an object")


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": ""},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/jsonp"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "text/plain; application/json"},
        {**JSON, "content-encoding": "gzip"},
    ],
)
async def test_another_content_type_is_415(http_client: HttpClient, path: str, headers: dict[str, str]) -> None:
    body = gzip.compress(b"{}") if "content-encoding" in headers else b'{"id": "a"}'
    answer = await http_client.client.post(path, content=body, headers=headers)
    refused(answer, 415, "UNSUPPORTED_MEDIA_TYPE", "content-")


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=utf-8", 'application/json;charset="UTF-8"']
)
async def test_json_may_say_that_it_is_utf8(http_client: HttpClient, kind: str) -> None:
    answer = await http_client.client.post("/cancel", content=b'{"id": "a"}', headers={"content-type": kind})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", POSTS)
async def test_query_parameters_beside_a_body_are_refused(http_client: HttpClient, path: str) -> None:
    refused(await http_client.post(path + "?id=a", {"id": "a"}), 400, "INVALID_INPUT", "unknown query parameter 'id'")


class CountedBody:
    """A body in pieces, as a chunked request; counts what was taken of it."""

    def __init__(self, pieces: int, size: int) -> None:
        self.pieces, self.size, self.taken = pieces, size, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.pieces):
            self.taken += 1
            yield b" " * self.size


BODIES = {
    "/schedule": SCHEDULE_BODY,
    "/schedule/batch": BATCH_BODY,
    "/complete": SCHEDULE_BODY,
    "/groups": BATCH_BODY,
    "/dead/retry-all": SCHEDULE_BODY,  # of as many ids
    "/dead/cancel-all": SCHEDULE_BODY,
}
LIMITS = [(path, BODIES.get(path, SMALL_BODY)) for path in POSTS]


@pytest.mark.parametrize(("path", "limit"), LIMITS)
async def test_a_body_over_the_limit_is_413_before_it_is_read_whole(
    http_client: HttpClient, path: str, limit: int
) -> None:
    declared = CountedBody(100, limit)
    answer = await http_client.client.post(path, content=declared, headers={**JSON, "content-length": str(100 * limit)})
    error = refused(answer, 413, "PAYLOAD_TOO_LARGE", str(limit))
    assert (error["limit"], declared.taken) == (limit, 0)
    for lie in ({}, {"content-length": "5"}, {"content-length": "-1"}, {"content-length": "x"}):
        stream = CountedBody(100, limit // 2 + 1)
        answer = await http_client.client.post(path, content=stream, headers={**JSON, **lie})
        refused(answer, 413, "PAYLOAD_TOO_LARGE", str(limit))
        assert stream.taken <= 3


@pytest.mark.parametrize(("path", "limit"), LIMITS)
async def test_a_body_at_the_limit_is_read(http_client: HttpClient, path: str, limit: int) -> None:
    answer = await http_client.client.post(path, content=b"{}".ljust(limit), headers=JSON)
    if path in WITHOUT_BODY:
        said_nothing(path, answer)
    else:
        refused(answer, 400, "INVALID_INPUT")


async def test_args_have_their_own_limit_alone_and_in_a_batch(http_client: HttpClient) -> None:
    fits, large = "x" * (256 * 1024 - 2), "x" * (256 * 1024 - 1)
    await http_client.schedule(id="a", args=fits)
    assert (await http_client.get("/get?id=a")).json()["record"]["args"] == fits
    job = {"functionPath": "p", "scheduledFor": DUE, "args": large}
    assert refused(await http_client.post("/schedule", job), 413, "PAYLOAD_TOO_LARGE", "262144")["limit"] == 262_144
    results = (await http_client.post("/schedule/batch", {"jobs": [job, {**job, "args": 1, "id": "b"}]})).json()[
        "results"
    ]
    assert results[0]["error"]["code"] == "PAYLOAD_TOO_LARGE"
    assert results[1]["id"] == "b"


# ---- Failures of the server ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (OverloadedError("the mailbox is full"), 503, "OVERLOADED", "1"),
        (StoreUnavailable("the disk is away"), 503, "STORE_UNAVAILABLE", "1"),
        (StoreCorrupt("the store is damaged"), 503, "STORE_UNAVAILABLE", "1"),
        (StoreFull("no space is left"), 507, "STORE_FULL", None),
    ],
)
async def test_what_the_server_cannot_do_now_says_so(
    http_client: HttpClient,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    code: str,
    retry_after: str | None,
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(LocalReads, "status", fail)
    answer = await http_client.get("/status")
    refused(answer, status, code, str(error))
    assert answer.headers.get("retry-after") == retry_after


async def test_a_full_mailbox_is_503_with_retry_after() -> None:
    async with open_http_client(mailbox_limit=1) as http_client:
        job = {"functionPath": "p", "scheduledFor": DUE}
        answers = await asyncio.gather(*(http_client.post("/schedule", job) for _ in range(50)))
        late = [answer for answer in answers if answer.status_code != 200]
        assert 0 < len(late) < 50
        for answer in late:
            refused(answer, 503, "OVERLOADED")
            assert answer.headers["retry-after"] == "1"


async def test_an_unforeseen_error_is_logged_and_tells_nothing(
    http_client: HttpClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the password is hush")

    monkeypatch.setattr(LocalReads, "status", fail)
    with caplog.at_level(logging.ERROR, "tocsin.http"):
        answer = await http_client.get("/status")
    assert "hush" not in answer.text
    refused(answer, 500, "INTERNAL", "its log says why")
    assert "GET /status failed" in caplog.text
    assert "the password is hush" in caplog.text


async def test_it_works_mounted_in_another_app() -> None:
    async with open_host() as (host, _):
        outer = Starlette(routes=[Mount("/jobs", host.asgi(insecure=True))])
        async with client_of(outer) as client:
            assert (await client.get("/jobs/status")).status_code == 200
            assert (await client.get("/jobs/i/a/status")).status_code == 200
            refused(await client.get("/jobs/nothing"), 404, "NOT_FOUND")
            refused(await client.post("/jobs/status"), 405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/status", 200), ("/jobs/i/a/status", 200), ("/jobs/i/i/status", 200), ("/jobs/i/a/schedules/s", 404),
        ("/jobs/", 404), ("/jobs/i", 404), ("/jobs/i/", 404), ("/jobs/i//status", 404), ("/jobs/i/a/", 404),
        ("/jobs/i/a", 405), ("/jobs/i/a/b/status", 404), ("/jobs/status/", 404), ("/jobs//status", 404),
    ],
)  # fmt: skip
async def test_an_app_that_is_mounted_answers_its_paths_and_no_others(path: str, status: int) -> None:
    async with open_host() as (host, _):
        app = Starlette(routes=[Mount("/jobs", host.asgi(insecure=True))])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            assert (await client.get(path)).status_code == status
