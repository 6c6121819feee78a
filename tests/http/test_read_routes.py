"""GET /get, /list, /dead, /status and the probes; POST /dead/retry and /dead/cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.http_client import (
    DUE,
    PATIENCE_S,
    HttpClient,
    Receiver,
    client_of,
    open_host,
    open_http_client,
    refused,
)
from tocsin.dispatch.asgi_transport import AsgiTransport
from tocsin.dispatch.transport import Answer, NeverConnected
from tocsin.errors import StoreUnavailable
from tocsin.storage.memory import MemoryProvider

pytestmark = pytest.mark.anyio


async def pages(http_client: HttpClient, route: str, **query: Any) -> list[list[str]]:
    """The ids of every page, following cursors."""
    found: list[list[str]] = []
    cursor = None
    while True:
        answer = await http_client.get(route, params={**query, **({"cursor": cursor} if cursor else {})})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found.append([record["id"] for record in page["records"]])
        assert page["truncated"] == ("cursor" in page)
        if not page["truncated"]:
            return found
        cursor = page["cursor"]


# ---- /get ----------------------------------------------------------------------------------------


async def test_get_of_no_job_is_empty_and_creates_nothing(http_client: HttpClient) -> None:
    answer = await http_client.get("/i/never/get?id=a")
    assert (answer.status_code, answer.json()) == (200, {})
    assert not await http_client.host.runtime.provider.exists("scheduler/never")


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("", "INVALID_INPUT", ["id is missing"]),
        ("?id=", "INVALID_INPUT", ["id is missing"]),
        ("?id=a&id=b", "INVALID_INPUT", ["id is given more than once"]),
        ("?id=a&verbose=1", "INVALID_INPUT", ["unknown query parameter 'verbose'", "id"]),
        ("?id=a%20b", "INVALID_SCHEDULE_ID", ["id must match"]),
        ("?id=%FF", "INVALID_INPUT", ["percent-encoded UTF-8"]),
        ("?id=%C3%A9", "INVALID_SCHEDULE_ID", ["id must match"]),
        ("?" + "&".join(f"a{n}=1" for n in range(40)), "INVALID_INPUT", ["more than 32"]),
    ],
)
async def test_get_refuses_a_wrong_query(http_client: HttpClient, query: str, code: str, words: list[str]) -> None:
    refused(await http_client.get("/get" + query), 400, code, *words)


# ---- /list ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["due", "id"])
async def test_250_jobs_are_paged_through_once_and_in_order(http_client_per_store: HttpClient, order: str) -> None:
    ids = [f"j{n:03}" for n in range(250)]
    jobs = [{"functionPath": "p", "scheduledFor": DUE + 250 - n, "id": id} for n, id in enumerate(ids)]
    assert (await http_client_per_store.post("/schedule/batch", {"jobs": jobs})).status_code == 200
    found = await pages(http_client_per_store, "/list", order=order)
    assert [len(page) for page in found] == [100, 100, 50]
    assert [id for page in found for id in page] == (ids if order == "id" else ids[::-1])
    found = await pages(http_client_per_store, "/list", order=order, limit=1_000)
    assert [len(page) for page in found] == [250]


async def test_list_is_by_due_and_filters_by_pool_state_and_label(http_client: HttpClient) -> None:
    await http_client.schedule(id="z", pool="a", labels=["x"])
    await http_client.schedule(id="y", pool="b", labels=["x"], scheduledFor=DUE + 1)
    await http_client.schedule(id="x", scheduledFor=DUE + 2)
    assert await pages(http_client, "/list") == [["z", "y", "x"]]
    assert await pages(http_client, "/list", pool="b") == [["y"]]
    assert await pages(http_client, "/list", label="x") == [["z", "y"]]
    assert await pages(http_client, "/list", state="pending", order="id") == [["x", "y", "z"]]
    assert await pages(http_client, "/list", state="running") == [[]]


async def test_an_empty_cursor_is_the_first_page(http_client: HttpClient) -> None:
    await http_client.schedule(id="a")
    assert len((await http_client.get("/list?cursor=")).json()["records"]) == 1
    assert (await http_client.get("/i/never/list")).json() == {"records": [], "truncated": False}


@pytest.mark.parametrize("route", ["/list", "/dead"])
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=0", ["limit must be 1..1000"]),
        ("limit=1001", ["limit must be 1..1000"]),
        ("limit=", ["limit must be a whole number"]),
        ("limit=ten", ["limit must be a whole number"]),
        ("limit=-1", ["limit must be a whole number"]),
        ("limit=1.0", ["limit must be a whole number"]),
        ("limit=%D9%A1", ["limit must be a whole number"]),
        ("limit=" + "9" * 5_000, ["limit must be a whole number"]),
        ("limit=1&limit=2", ["limit is given more than once"]),
        ("cursor=made-up", ["cursor"]),
        ("cursor=%F0%9F%92%A9", ["cursor"]),
        ("pool=a/b", ["pool must be 1 to 128 characters"]),
        ("sort=up", ["unknown query parameter 'sort'"]),
    ],
)
async def test_lists_refuse_a_wrong_query(http_client: HttpClient, route: str, query: str, words: list[str]) -> None:
    refused(await http_client.get(f"{route}?{query}"), 400, "INVALID_INPUT", *words)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("/list?order=age", ["order must be one of due, id"]),
        ("/list?order=", ["order must be one of due, id"]),
        ("/list?state=dead", ["state must be one of pending, waiting, running"]),
        ("/list?label=", ["label must be 1 to 128"]),
        ("/dead?since=5", ["since looks like seconds"]),
        ("/dead?since=yesterday", ["since must be a whole number"]),
        ("/dead?order=id", ["unknown query parameter 'order'"]),
        ("/status?pool=a", ["unknown query parameter 'pool'", "takes fresh"]),
    ],
)
async def test_each_list_knows_its_own_parameters(http_client: HttpClient, query: str, words: list[str]) -> None:
    refused(await http_client.get(query), 400, "INVALID_INPUT", *words)


async def test_a_cursor_of_another_list_is_refused(http_client: HttpClient) -> None:
    for id in ("a", "b"):
        await http_client.schedule(id=id)
    cursor = (await http_client.get("/list?limit=1")).json()["cursor"]
    assert (await http_client.get("/list", params={"limit": 1, "cursor": cursor})).status_code == 200
    for foreign in ("/list?order=id", "/dead?limit=1", "/i/other/list?limit=1", "/list?pool=p"):
        answer = await http_client.client.get(foreign + ("&" if "?" in foreign else "?") + "cursor=" + cursor)
        refused(answer, 400, "INVALID_INPUT", "cursor")


# ---- The dead ------------------------------------------------------------------------------------


async def test_a_dead_job_is_listed_with_what_killed_it_and_can_be_retried(http_client_per_store: HttpClient) -> None:
    await http_client_per_store.bury("a")
    (record,) = (await http_client_per_store.get("/dead")).json()["records"]
    assert (record["id"], record["state"], record["lastStatus"]) == ("a", "dead", 410)
    assert record["parkedAt"] >= record["enqueuedAt"]
    assert (await http_client_per_store.get("/list")).json()["records"] == []
    answer = (await http_client_per_store.post("/dead/retry", {"id": "a"})).json()
    assert answer.keys() == {"id", "retried", "scheduledFor"}
    assert (answer["id"], answer["retried"]) == ("a", True)
    await http_client_per_store.until("a", "dead")
    assert len(http_client_per_store.receiver.bodies) == 2


async def test_a_dead_job_is_cancelled_by_its_own_route_only(http_client: HttpClient) -> None:
    await http_client.bury("a")
    assert (await http_client.post("/cancel", {"id": "a"})).json()["cancelled"] is False
    body = {"functionPath": "p", "scheduledFor": DUE, "id": "a", "onConflict": "keep"}
    assert refused(await http_client.post("/schedule", body), 409, "DUPLICATE_SCHEDULE_ID")["state"] == "dead"
    assert (await http_client.post("/dead/cancel", {"id": "a"})).json() == {"removed": True}
    assert (await http_client.post("/dead/cancel", {"id": "a"})).json() == {"removed": False}
    assert (await http_client.post("/dead/retry", {"id": "a"})).json() == {"retried": False}
    await http_client.schedule(id="a")


async def test_dead_jobs_are_paged_the_newest_last(http_client: HttpClient) -> None:
    for id in ("c", "a", "b"):
        await http_client.bury(id)
        await asyncio.sleep(0.005)
    assert await pages(http_client, "/dead", limit=2) == [["c", "a"], ["b"]]
    since = (await http_client.get("/get?id=b")).json()["record"]["parkedAt"]
    assert await pages(http_client, "/dead", since=since) == [["b"]]
    assert await pages(http_client, "/dead", pool="none") == [[]]


# ---- /status and the probes ----------------------------------------------------------------------


async def test_status_counts_what_there_is(http_client: HttpClient) -> None:
    await http_client.bury("dead")
    await http_client.schedule(pool="stripe", maxConcurrency=2)
    await http_client.schedule()
    status = (await http_client.get("/status")).json()
    assert (status["backlog"], status["inFlight"], status["dead"], status["due"]) == (2, 0, 1, 0)
    assert status["oldestDueMs"] is None
    assert status["lanes"] == {"inFlight": 0, "limit": 64}
    (pool,) = status["pools"]
    assert pool.items() >= {"name": "stripe", "inFlight": 0, "maxConcurrency": 2, "queued": 1}.items()


async def test_a_paused_instance_shows(http_client: HttpClient) -> None:
    await http_client.schedule("/i/b")
    await http_client.schedule("/i/c")
    said = []
    for paused in (True, False):
        await http_client.client.put("/i/b/instance", json={"paused": paused})
        status = [(await http_client.get(f"/i/{name}/status")).json().get("paused", False) for name in "bc"]
        page = (await http_client.get("/instances")).json()["instances"]
        said.append((status, [one["paused"] for one in page]))

    assert said == [([True, False], [True, False]), ([False, False], [False, False])]


async def test_probes_answer_an_open_host(http_client_per_store: HttpClient) -> None:
    for path, value in (("/healthz", {"ok": True}), ("/readyz", {"ready": True}), ("/i/a/readyz", {"ready": True})):
        answer = await http_client_per_store.get(path)
        assert (answer.status_code, answer.json()) == (200, value)
        assert answer.headers["cache-control"] == "no-store"


async def test_a_host_that_is_not_open_is_healthy_but_not_ready() -> None:
    async with open_host() as (host, _):
        app = host.asgi(insecure=True)
    async with client_of(app) as client:
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/readyz")
        refused(answer, 503, "UNAVAILABLE", "not open")
        assert answer.headers["retry-after"] == "1"
        answer = await client.post("/schedule", json={"functionPath": "p", "delayMs": 0})
        assert answer.status_code == 503


class SilentProvider(MemoryProvider):
    """A store whose reads can be made to fail, or never to answer."""

    failing: Exception | None = None
    silent = False

    async def hop(self) -> None:
        if self.failing is not None:
            raise self.failing
        if self.silent:
            await asyncio.get_running_loop().create_future()
        await super().hop()


async def test_a_store_that_fails_or_is_silent_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.actors.http.probes.PATIENCE_S", 0.05)
    provider = SilentProvider()
    async with open_http_client(provider) as http_client:
        provider.failing = StoreUnavailable("the disk is away")
        refused(await http_client.get("/readyz"), 503, "STORE_UNAVAILABLE", "the disk is away")
        provider.failing = None
        provider.silent = True
        refused(await http_client.get("/readyz"), 503, "STORE_UNAVAILABLE", "did not answer within 0.05 s")
        provider.silent = False
        assert (await http_client.get("/readyz")).status_code == 200


async def test_a_host_whose_callbacks_do_not_get_through_is_ready_and_names_it_by_code() -> None:
    class Away(AsgiTransport):
        async def post(self, *_: Any, **__: Any) -> Answer:
            raise NeverConnected("refused")

    async with open_http_client(transport=Away(Receiver())) as http_client:
        for _ in range(5):
            await http_client.schedule(delayMs=0)
        status: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE_S):
            while not status.get("reasons"):
                await asyncio.sleep(0.01)
                status = (await http_client.get("/status")).json()
        ready = await http_client.get("/readyz")

    (reason,) = status["reasons"]
    assert status["health"] == "red" and reason["code"] == "ORIGIN_UNREACHABLE"
    assert reason["since"] > 1_600_000_000_000 and "refused" in reason["message"]
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": ["ORIGIN_UNREACHABLE"]})


async def test_dead_jobs_are_listed_by_label_and_reason(http_client: HttpClient) -> None:
    for n, labels in enumerate((["eu"], ["us"], ["eu", "us"])):
        await http_client.schedule(id=f"d{n}", functionPath="answer:410", delayMs=0, labels=labels)
        await http_client.until(f"d{n}", "dead")
    assert await pages(http_client, "/dead", label="us") == [["d1", "d2"]]
    assert await pages(http_client, "/dead", label="eu", reason="refused", limit=1) == [["d0"], ["d2"]]
    assert await pages(http_client, "/dead", label="eu", reason="lost") == [[]]
    refused(await http_client.get("/dead?label=a%20b"), 400, "INVALID_INPUT", "label")
    cursor = (await http_client.get("/dead?label=eu&limit=1")).json()["cursor"]
    refused(await http_client.get("/dead", params={"label": "us", "cursor": cursor}), 400, "INVALID_INPUT", "cursor")
