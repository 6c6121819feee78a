"""`GET /catalog`, and what a catalog refuses over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from tests.http.http_client import DUE, HttpClient, client_of, open_host, open_http_client, refused
from tocsin.actors.runtime.clock import SystemClock

pytestmark = pytest.mark.anyio


class Line(msgspec.Struct):
    amount: Annotated[int, Meta(ge=1)] = 4711


class Invoice(msgspec.Struct):
    items: list[Line]


LONG = {"enum": ["x" * 65_000]}
CATALOG: dict[str, Any] = {"send": Invoice, "any": Any, "long": LONG}


@pytest.fixture
async def catalogued() -> AsyncIterator[HttpClient]:
    async with open_http_client(catalog=CATALOG) as http_client:
        yield http_client


async def test_a_refusal_names_the_place(catalogued: HttpClient) -> None:
    bad = {"items": [{"amount": 1}, {}, {"amount": "x"}]}
    job = {"functionPath": "send", "args": bad, "delayMs": 5}
    said = "args.items[2].amount: expected int, got str"
    for place in ("", "/i/tenant-a"):
        refused(await catalogued.post(f"{place}/schedule", job), 400, "INVALID_INPUT", said)
        definition = {"functionPath": "send", "args": bad, "everyMs": 5_000}
        refused(await catalogued.client.put(f"{place}/schedules/s", json=definition), 400, "INVALID_INPUT", said)
    unknown = {"functionPath": "nope", "scheduledFor": DUE}
    refused(await catalogued.post("/schedule", unknown), 400, "INVALID_INPUT", "'nope' is not in the catalog")
    batch = await catalogued.post("/schedule/batch", {"jobs": [job, {**job, "args": {"items": []}}, unknown]})
    results = batch.json()["results"]
    assert [one["error"]["code"] if "error" in one else one["created"] for one in results] == [
        "INVALID_INPUT", True, "INVALID_INPUT",
    ]  # fmt: skip
    assert said in results[0]["error"]["message"]


async def test_a_job_with_a_key_has_its_first_answer_although_the_catalog_has_changed() -> None:
    catalog: dict[str, Any] = {"send": Any, "other": Any}
    async with open_http_client(catalog=lambda: catalog) as http_client:
        job = {"functionPath": "send", "scheduledFor": DUE, "id": "a"}
        batch = {"jobs": [{**job, "id": "b"}, {**job, "id": "c", "functionPath": "other"}]}
        first = await http_client.post("/schedule", job, headers={"idempotency-key": "k"})
        both = await http_client.post("/schedule/batch", batch, headers={"idempotency-key": "k2"})
        catalog = {"other": Any}

        again = await http_client.post("/schedule", job, headers={"idempotency-key": "k"})
        assert (again.status_code, again.content) == (200, first.content)
        again = await http_client.post("/schedule/batch", batch, headers={"idempotency-key": "k2"})
        assert (again.status_code, again.content) == (200, both.content)
        refused(await http_client.post("/schedule", job, headers={"idempotency-key": "new"}), 400, "INVALID_INPUT")
        refused(
            await http_client.post("/schedule", {**job, "id": "d"}, headers={"idempotency-key": "k"}),
            422, "IDEMPOTENCY_KEY_REUSED",
        )  # fmt: skip


async def test_a_key_whose_answer_is_kept_no_more_is_as_a_new_one() -> None:
    catalog: dict[str, Any] = {"send": Any}
    clock = Later()
    async with open_http_client(catalog=lambda: catalog, clock=clock) as http_client:
        job = {"functionPath": "send", "scheduledFor": DUE, "id": "a"}
        keyed = {"headers": {"idempotency-key": "k"}}
        assert (await http_client.post("/schedule", job, **keyed)).status_code == 200
        assert (await http_client.post("/schedule/batch", {"jobs": [job]}, **keyed)).status_code == 200
        catalog = {"other": Any}
        clock.ahead_ms = 24 * 3_600_000 + 1
        for _ in range(2):
            refused(await http_client.post("/schedule", job, **keyed), 400, "INVALID_INPUT", "not in the catalog")
            [result] = (await http_client.post("/schedule/batch", {"jobs": [job]}, **keyed)).json()["results"]
            assert "not in the catalog" in result["error"]["message"]


class Later(SystemClock):
    """Runs ahead by as much as it is told."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def test_the_catalog_is_listed_within_64_kib_without_defaults(catalogued: HttpClient) -> None:
    answer = await catalogued.get("/catalog")
    assert answer.json()["checked"] is True
    assert [(one["functionPath"], one.get("schemaLeftOut")) for one in answer.json()["entries"]] == [
        ("any", None), ("long", None), ("send", True),
    ]  # fmt: skip
    assert len(answer.content) <= 64 * 1024
    assert b"4711" not in answer.content
    assert (await catalogued.get("/i/tenant-a/catalog")).content == answer.content


async def test_a_host_without_a_catalog_says_so(http_client: HttpClient) -> None:
    assert (await http_client.get("/catalog")).json() == {"checked": False, "entries": []}


async def test_it_is_for_tokens_with_read() -> None:
    async with open_host(catalog={"send": Invoice}) as (host, _):
        app = host.asgi(tokens=["r:read:" + "r" * 16, "s:schedule+work:" + "s" * 16])
        async with client_of(app, token="r" * 16) as reader, client_of(app, token="s" * 16) as scheduler:
            assert (await reader.get("/catalog")).status_code == 200
            refused(await scheduler.get("/catalog"), 403, "FORBIDDEN", "read")
            refused(await scheduler.get("/catalog?x=1"), 403, "FORBIDDEN")
            refused(await reader.get("/catalog?x=1"), 400, "INVALID_INPUT")
