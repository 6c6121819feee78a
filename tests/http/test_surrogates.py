"""Half a character at every door: the error says what it is, and names where it stands."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import click.testing
import httpx
import pytest

from tests.http.http_client import HttpClient, refused
from tocsin import Job, RemoteScheduler
from tocsin.cli import main
from tocsin.dispatch.surrogates import UNPAIRED, in_json, where
from tocsin.errors import InvalidInputError

pytestmark = pytest.mark.anyio

HALF = "\ud800"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("members", "place"),
    [
        (rb'"functionPath":"p\ud800"', "functionPath"),
        (rb'"functionPath":"p\udc00x"', "functionPath"),
        (rb'"functionPath":"p","args":"\ud800"', "args"),
        (rb'"functionPath":"p","args":{"items":[1,{"when":"x\ud800y"}]}', "args.items[1].when"),
        (rb'"functionPath":"p","args":{"items":["\ud83d\ude00","\\ud800","\ude00"]}', "args.items[2]"),
        (rb'"functionPath":"p","args":{"a":{"\ud800":1}}', "a key of args.a"),
        (rb'"functionPath":"p","labels":["a","\udfff"]', "labels[1]"),
        (rb'"functionPath":"p","id":"\uDBFF"', "id"),
        (rb'"functionPath":"p","\ud800":1', "a key"),
        (rb'"functionPath":"p","then":[{"functionPath":"\ud800"}]', "then[0].functionPath"),
    ],
)
async def test_in_a_body(http_client: HttpClient, members: bytes, place: str) -> None:
    body = b'{"delayMs":5,' + members + b"}"
    error = refused(
        await http_client.client.post("/schedule", content=body, headers=JSON), 400, "INVALID_INPUT", UNPAIRED
    )
    assert error["message"].startswith(f"{place} {UNPAIRED}: \\u")
    byte = int(error["message"].partition("(byte ")[2].partition(")")[0])
    assert body[byte : byte + 2] == b"\\u"
    batch = await http_client.client.post("/schedule/batch", content=b'{"jobs":[' + body + b"]}", headers=JSON)
    inner = f"a key of jobs[0] {UNPAIRED}" if place == "a key" else f"jobs[0].{place} {UNPAIRED}"
    if not place.startswith("a key of"):
        assert refused(batch, 400, "INVALID_INPUT")["message"].startswith(inner)


async def test_what_is_malformed_besides_is_said_as_before(http_client: HttpClient) -> None:
    for body in (rb'{"functionPath":"p","args":"\ud83d"', b'{"functionPath":"p', rb'{"a":"\ud83d\ude00"'):
        refused(await http_client.client.post("/schedule", content=body, headers=JSON), 400, "INVALID_JSON")


async def test_whole_characters_and_backslashes_are_taken(http_client: HttpClient) -> None:
    for text in (rb'"\ud83d\ude00"', rb'"\\ud800"', rb'"\\\\ud800\n"'):
        body = b'{"functionPath":"p","delayMs":5000,"args":' + text + b"}"
        assert (await http_client.client.post("/schedule", content=body, headers=JSON)).status_code == 200


async def test_in_a_query(http_client: HttpClient) -> None:
    refused(await http_client.get("/get?id=%ED%A0%80"), 400, "INVALID_INPUT", f"query parameter id {UNPAIRED}")
    refused(
        await http_client.get("/list?limit=1&label=a%ED%BF%BF"),
        400,
        "INVALID_INPUT",
        f"query parameter label {UNPAIRED}",
    )
    refused(await http_client.get("/get?id=%ff"), 400, "INVALID_INPUT", "percent-encoded UTF-8")


CALLS: list[tuple[Callable[[Any], Coroutine[Any, Any, Any]], str]] = [
    (lambda jobs: jobs.run_after(5, f"p{HALF}"), "path"),
    (lambda jobs: jobs.run_after(5, "p", {"a": ["x", HALF]}), "args.a[1]"),
    (lambda jobs: jobs.run_after(5, "p", shard_key=f"x{HALF}"), "shard_key"),
    (lambda jobs: jobs.run_after(5, "p", then=[Job(HALF)]), "then[0]"),
]
EMBEDDED: list[tuple[Callable[[Any], Coroutine[Any, Any, Any]], str]] = [
    (lambda jobs: jobs.run_after(5, "p", initiator=HALF), "initiator"),
    (lambda jobs: jobs.pending(HALF), "prefix"),
    (lambda jobs: jobs.cancel_all(path=HALF), "path"),
    (lambda jobs: jobs.dead_retry_all(path=HALF), "path"),
    (lambda jobs: jobs.schedules.put("s", HALF, every=60), "path"),
    (lambda jobs: jobs.schedules.trigger("s", HALF), "request_key"),
    (lambda jobs: jobs.complete("a", "1-2-ab", result=[HALF]), "result[0]"),
]


@pytest.mark.parametrize(("call", "place"), [*CALLS, *EMBEDDED])
async def test_in_python(http_client: HttpClient, call: Callable[[Any], Coroutine[Any, Any, Any]], place: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        await call(http_client.host.scheduler())
    assert UNPAIRED in error.value.message and error.value.message.startswith(place)


@pytest.mark.parametrize(("call", "place"), CALLS)
async def test_in_python_far_away(
    http_client: HttpClient, call: Callable[[Any], Coroutine[Any, Any, Any]], place: str
) -> None:
    app = httpx.ASGITransport(app=http_client.host.asgi(insecure=True))
    async with RemoteScheduler("http://localhost", transport=app) as jobs:
        with pytest.raises(InvalidInputError) as error:
            await call(jobs)
    assert UNPAIRED in error.value.message and error.value.message.startswith(place)


async def test_the_words_of_a_failure_may_hold_one(http_client: HttpClient) -> None:
    jobs = http_client.host.scheduler()
    await jobs.run_after(0, "p", queue="q", id="a")
    [claimed] = await jobs.claim("q")
    assert await jobs.complete("a", claimed.lease, ok=False, error=f"no such file: {HALF}.txt")
    [attempt] = await jobs.history("a")
    assert attempt.error == "no such file: \\ud800.txt"


def test_on_the_command_line() -> None:
    for option in ("--args", "--then"):
        words = ["schedule", "p", option, r'{"a": ["\ud800"]}', "--url", "http://127.0.0.1:9"]
        result = click.testing.CliRunner().invoke(main, words)
        assert result.exit_code == 2
        assert f"{option}: a[0] {UNPAIRED}: \\ud800 (byte 8)" in " ".join(result.stderr.split())


def test_places() -> None:
    assert where({"a": [{"b": HALF}]}) == "a[0].b"
    assert (where(HALF), where(["a"]), where({HALF: 1})) == ("", None, "a key")
    assert in_json(rb'"\ud83d\ude00\\ud800"') is None
    assert in_json(rb'"\ud800"') == f"the text {UNPAIRED}: \\ud800 (byte 1) stands without its pair"
