"""What differs from the older system on purpose: docs/compatibility.md names each with its test here."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.http.http_client import DUE, HttpClient, open_http_client, refused
from tests.http.test_wire_compatibility import run_at
from tocsin.dispatch.asgi_transport import AsgiTransport
from tocsin.dispatch.retry import Retry

pytestmark = pytest.mark.anyio

NOW = 100_000_000_000
"""Past, so due at once."""
PAGE = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text("utf-8")


def test_the_page_names_every_difference_and_its_test() -> None:
    named = re.findall(r"\| `(test_[a-z0-9_]+)` \|$", PAGE, re.MULTILINE)
    here = [
        name
        for name in globals()
        if name.startswith("test_") and name != "test_the_page_names_every_difference_and_its_test"
    ]
    assert named == here


# ---- Settling ------------------------------------------------------------------------------------


async def test_settlement_needs_a_lease(http_client: HttpClient) -> None:
    """There a slot was freed by its pool's name, by anybody, and of whatever attempt."""
    await http_client.client.put("/pool", json={"name": "p", "maxConcurrency": 2})
    refused(await http_client.post("/complete", {"pool": "p", "id": "a"}), 400, "INVALID_INPUT", "'pool'")
    refused(await http_client.post("/complete", {"id": "a"}), 400, "INVALID_INPUT", "lease is missing")
    refused(await http_client.post("/complete", {"id": "a", "lease": "1.2.3"}), 409, "STALE_LEASE")


class Answering:
    """Answers each callback as told."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers, self.asked = status, headers, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await Request(scope, receive).body()
        self.asked += 1
        body = b'{"error": {"code": "DISPATCH_IN_PROGRESS"}}'
        await Response(body, self.status, self.headers)(scope, receive, send)


async def attempted(http_client: HttpClient, **members: Any) -> dict[str, Any]:
    """The record of a job after its first attempt; empty if that was the end of it."""
    await http_client.schedule(**run_at(id="a", scheduledFor=http_client.host.runtime.clock.now_ms(), **members))
    async with asyncio.timeout(10):
        while True:
            record: dict[str, Any] = (await http_client.get("/get?id=a")).json().get("record", {})
            if not record or (record["attempt"] and record["state"] != "running"):
                return record
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("header", "charged"), [("x-lunora-dispatch-declined", 1), ("tocsin-declined", 0)])
async def test_the_header_that_declines_is_ours(header: str, charged: int) -> None:
    """And it alone decides: no code in the body is asked for."""
    async with open_http_client(transport=AsgiTransport(Answering(409, {header: "1"}))) as http_client:
        assert (await attempted(http_client))["attempts"] == charged


async def test_a_slot_is_free_when_the_callback_is_answered(http_client: HttpClient) -> None:
    """There 2xx kept it until /complete. Here that is `tocsin-accepted: 1`."""
    assert await attempted(http_client, pool="p", maxConcurrency=1) == {}
    assert (await http_client.get("/pool?name=p")).json()["inFlight"] == 0


# ---- What is refused -----------------------------------------------------------------------------


async def test_unknown_fields_are_refused(http_client: HttpClient) -> None:
    refused(await http_client.post("/schedule", run_at(colour="red")), 400, "INVALID_INPUT", "'colour'")
    refused(await http_client.get("/list?page=2"), 400, "INVALID_INPUT", "'page'")


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"pool": ""}, "pool"),
        ({"pool": "a b"}, "pool"),
        ({"retry": {"maxAttempts": 1.5}}, "retry.maxRetries"),
        ({"retry": {"maxAttempts": 101}}, "0..100"),
        ({"retry": {"backoff": "none"}}, "retry.backoff"),
        ({"pool": "p", "maxConcurrency": 0}, "maxConcurrency"),
        ({"maxConcurrency": 2}, "give pool as well"),
        ({"shardKey": 5}, "shardKey"),
    ],
)
async def test_a_wrong_option_is_refused_not_dropped(
    http_client: HttpClient, members: dict[str, Any], words: str
) -> None:
    refused(await http_client.post("/schedule", run_at(**members)), 400, "INVALID_INPUT", words)


async def test_one_target_not_two(http_client: HttpClient) -> None:
    refused(await http_client.post("/schedule", run_at(workflow="WF")), 400, "INVALID_INPUT", "exactly one")


async def test_instants_before_1973_look_like_seconds(http_client: HttpClient) -> None:
    for instant in (1, 1_900_000_000):
        refused(
            await http_client.post("/schedule", run_at(scheduledFor=instant)),
            400,
            "INVALID_INPUT",
            "looks like seconds",
        )


async def test_an_instance_is_addressed_by_the_path(http_client: HttpClient) -> None:
    refused(await http_client.post("/schedule", run_at("eu")), 400, "INVALID_INPUT", "instanceName")
    assert (await http_client.post("/i/eu/schedule", run_at("eu"))).status_code == 200


async def test_ids_of_the_system_are_refused(http_client: HttpClient) -> None:
    refused(await http_client.post("/schedule", run_at(id="__x")), 400, "INVALID_SCHEDULE_ID", "start with __")


async def test_args_have_a_limit(http_client: HttpClient) -> None:
    refused(await http_client.post("/schedule", run_at(args="x" * 300_000)), 413, "PAYLOAD_TOO_LARGE", "262144")


async def test_cursors_are_checked(http_client: HttpClient) -> None:
    refused(await http_client.get("/list?cursor=id:abc"), 400, "INVALID_INPUT", "cursor")


# ---- Errors --------------------------------------------------------------------------------------


async def test_a_body_that_does_not_parse_says_so(http_client: HttpClient) -> None:
    headers = {"content-type": "application/json"}
    refused(await http_client.client.post("/schedule", content=b"{", headers=headers), 400, "INVALID_JSON", "not JSON")


async def test_a_body_says_that_it_is_json(http_client: HttpClient) -> None:
    refused(
        await http_client.client.post("/cancel", content=b'{"id": "a"}'),
        415,
        "UNSUPPORTED_MEDIA_TYPE",
        "application/json",
    )


async def test_another_method_is_405(http_client: HttpClient) -> None:
    answer = await http_client.get("/schedule")
    refused(answer, 405, "METHOD_NOT_ALLOWED", "POST")
    assert answer.headers["allow"] == "POST, OPTIONS"


async def test_an_unknown_route_has_a_message(http_client: HttpClient) -> None:
    assert refused(await http_client.get("/nothing"), 404, "NOT_FOUND")["message"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"pool": "p", "maxConcurrency": 10_001}, "maxConcurrency must be 1..10000"),
        ({"pool": "a/b"}, "pool must be"),
        ({"pool": "two words"}, "pool must be"),
        ({"pool": "p" * 129}, "pool must be"),
        ({"functionPath": "p" * 513}, "at most 512"),
        ({"shardKey": "s" * 513}, "at most 512"),
        ({"retry": {"maxAttempts": 101}}, "0..100"),
    ],
)
async def test_names_and_numbers_have_limits(http_client: HttpClient, members: dict[str, Any], words: str) -> None:
    """There none had any, but for ids. What is on the limit is taken."""
    refused(await http_client.post("/schedule", run_at(**members)), 400, "INVALID_INPUT", words)
    at_most: dict[str, Any] = {"pool": "p" * 128, "maxConcurrency": 10_000, "shardKey": "s" * 512}
    await http_client.schedule(**run_at(functionPath="p" * 512, retry={"maxAttempts": 100}, **at_most))


# ---- Retries and deadlines -----------------------------------------------------------------------


async def test_no_attempts_more_than_none_is_none(http_client: HttpClient) -> None:
    """There `maxAttempts: 0` was dropped, and the default of five retries held."""
    await http_client.schedule(**run_at(id="a", functionPath="answer:500", scheduledFor=NOW, retry={"maxAttempts": 0}))
    await http_client.until("a", "dead")
    assert [record["attempts"] for record in (await http_client.get("/dead")).json()["records"]] == [1]


async def test_a_delay_without_a_most_is_an_hour_at_most(http_client: HttpClient) -> None:
    """There it grew without end, and then the job was given up."""
    assert Retry(base_ms=3_000_000).delay_ms(50, Random(1)) == 3_600_000
    await http_client.schedule(**run_at(id="a", retry={"baseMs": 3_000_000}))
    record = (await http_client.get("/get?id=a")).json()["record"]
    assert record["retry"]["maxMs"] == 3_600_000, "and the record says so"


async def test_a_delay_is_100_ms_at_least(http_client: HttpClient) -> None:
    """There `baseMs: 0` called a failing receiver in a tight loop."""
    await http_client.schedule(
        **run_at(id="a", functionPath="answer:500", scheduledFor=NOW, retry={"baseMs": 0, "maxAttempts": 2})
    )
    await http_client.until("a", "dead")
    history = (await http_client.get("/history?id=a")).json()["attempts"]
    gaps = [later["started"] - one["ended"] for one, later in pairwise(history)]
    assert len(gaps) == 2 and min(gaps) >= 100


@pytest.mark.parametrize("said", ["nobody", "the server", "the instance"])
async def test_a_callback_has_a_deadline(said: str) -> None:
    """There it had none, and a lease of 15 minutes. The server's deadline, or the instance's, gives as much."""
    seen: list[float] = []

    async def receiver(scope: Any, receive: Any, send: Any) -> None:
        headers = Request(scope, receive).headers
        seen.append(int(headers["tocsin-deadline"]) / 1000 - int(headers["webhook-timestamp"]))
        await Response(status_code=204)(scope, receive, send)

    options: dict[str, Any] = {"timeout_ms": 900_000} if said == "the server" else {}
    async with open_http_client(transport=AsgiTransport(receiver), **options) as http_client:
        if said == "the instance":
            await http_client.client.put("/instance", json={"timeoutMs": 900_000})
        await http_client.schedule(**run_at(id="a", scheduledFor=NOW))
        await http_client.until("a", None)

    wanted = 60 if said == "nobody" else 900
    assert len(seen) == 1 and wanted <= seen[0] < wanted + 1


# ---- Reading -------------------------------------------------------------------------------------


async def test_lists_are_by_due_instant(http_client: HttpClient) -> None:
    await http_client.schedule(id="a", scheduledFor=DUE + 1)
    await http_client.schedule(id="b", scheduledFor=DUE)
    assert [one["id"] for one in (await http_client.get("/list")).json()["records"]] == ["b", "a"]
    assert [one["id"] for one in (await http_client.get("/list?order=id")).json()["records"]] == ["a", "b"]
    for id in ("z", "y"):
        await http_client.bury(id)
        await asyncio.sleep(0.002)
    assert [one["id"] for one in (await http_client.get("/dead")).json()["records"]] == ["z", "y"]


async def test_status_counts_jobs_without_a_pool(http_client: HttpClient) -> None:
    await http_client.schedule(id="a")
    assert (await http_client.get("/status")).json()["backlog"] == 1


async def test_pools_are_listed_the_longest_first(http_client: HttpClient) -> None:
    """There by name."""
    for n, pool in enumerate(("a", "b", "b", "c", "c", "c")):
        await http_client.schedule(id=f"j{n}", pool=pool)
    assert [pool["name"] for pool in (await http_client.get("/status")).json()["pools"]] == ["c", "b", "a"]


async def test_a_retry_keeps_the_due_instant(http_client: HttpClient) -> None:
    """There `scheduledFor` became now. Here it is the original one, and `nextAttemptAt` is now."""
    await http_client.bury("a")
    due = (await http_client.get("/dead")).json()["records"][0]["scheduledFor"]
    before = http_client.host.runtime.clock.now_ms()
    assert (await http_client.post("/dead/retry", {"id": "a"})).json()["scheduledFor"] == due < before
    await http_client.until("a", "dead")


async def test_what_jobs_are_called_back_with_is_ours(http_client: HttpClient) -> None:
    """Another path, Standard Webhooks instead of one header, and `scheduledFor` is the original due instant."""
    await http_client.schedule(**run_at(id="a", scheduledFor=100_000_000_000))
    await http_client.until("a", None)
    [body] = http_client.receiver.bodies
    assert body.keys() >= {"args", "functionPath", "id", "instanceName", "scheduledFor", "attempt", "lease"}
    refused(await http_client.get("/_lunora/scheduler/dispatch"), 404, "NOT_FOUND")
