"""Idempotency-Key: for how long, for whom, and what of an answer is kept."""

from __future__ import annotations

import json
from secrets import token_hex
from typing import Any

import pytest

from tests.http.http_client import DUE, activations, client_of, open_host, open_http_client, refused
from tocsin.actors.runtime.clock import SystemClock
from tocsin.storage.memory import MemoryProvider

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
JOB = {"functionPath": "p", "scheduledFor": DUE}
KEY = {"idempotency-key": "k"}


class SteppedClock(SystemClock):
    """The real clock, and a step."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def test_an_answer_is_given_again_for_a_day() -> None:
    clock = SteppedClock()
    async with open_http_client(clock=clock) as http_client:
        first = await http_client.post("/schedule", JOB, headers=KEY)
        clock.ahead_ms = DAY_MS - 60_000
        assert (await http_client.post("/schedule", JOB, headers=KEY)).content == first.content
        clock.ahead_ms = DAY_MS + 60_000
        assert (await http_client.post("/schedule", JOB, headers=KEY)).json()["id"] != first.json()["id"]


async def test_a_key_is_of_one_token_and_one_route() -> None:
    tokens = ["a:schedule:secret-a", "b:schedule:secret-b"]
    async with open_host() as (host, _), client_of(host.asgi(tokens=tokens)) as client:
        found = set()
        for secret in ("secret-a", "secret-b", "secret-a"):
            headers = {**KEY, "authorization": f"Bearer {secret}"}
            found.add((await client.post("/schedule", json=JOB, headers=headers)).json()["id"])
        batch = await client.post("/schedule/batch", json={"jobs": [JOB]}, headers=headers)
        assert batch.status_code == 200
        found.add(batch.json()["results"][0]["id"])
    assert len(found) == 3


class User:
    def __init__(self, name: str) -> None:
        self.display_name = name


async def test_a_key_is_of_one_user_of_the_embedding_app() -> None:
    async with open_host() as (host, _):
        app = host.asgi(authorize=lambda *_: True)

        def of(user: str) -> Any:
            async def inner(scope: Any, receive: Any, send: Any) -> None:
                await app({**scope, "user": User(user)}, receive, send)

            return inner

        found = []
        for user in ("ann", "ben", "ann"):
            async with client_of(of(user)) as client:
                found.append((await client.post("/schedule", json=JOB, headers=KEY)).json()["id"])
    assert found[0] == found[2] != found[1]


async def test_the_answer_to_the_largest_batch_is_kept() -> None:
    async with open_http_client() as http_client:
        body = {"jobs": [{**JOB, "id": f"{n:04}".ljust(64, "x")} for n in range(1_000)]}
        first = await http_client.post("/schedule/batch", body, headers=KEY)
        assert first.status_code == 200, first.text
        assert (await http_client.post("/schedule/batch", body, headers=KEY)).content == first.content


async def test_a_full_quota_is_not_kept() -> None:
    async with open_http_client(max_jobs=1) as http_client:
        await http_client.schedule(id="a")
        refused(await http_client.post("/schedule", JOB, headers=KEY), 429, "QUOTA_EXCEEDED")
        await http_client.post("/cancel", {"id": "a"})
        assert (await http_client.post("/schedule", JOB, headers=KEY)).status_code == 200


async def test_a_batch_without_an_origin_is_not_kept() -> None:
    origin: list[str | None] = [None]
    async with open_http_client(origin=lambda: origin[0]) as http_client:
        await http_client.post("/schedule/batch", {"jobs": [JOB]}, headers=KEY)
        origin[0] = "http://127.0.0.1:9"
        answer = await http_client.post("/schedule/batch", {"jobs": [JOB]}, headers=KEY)
        assert "id" in answer.json()["results"][0]


@pytest.mark.parametrize("headers", [[("idempotency-key", "  ")], [("idempotency-key", "k")] * 2])
async def test_a_blank_or_doubled_key_is_refused(headers: Any) -> None:
    async with open_http_client() as http_client:
        refused(await http_client.client.post("/schedule", json=JOB, headers=headers), 400, "INVALID_INPUT", "1 to 255")


@pytest.mark.parametrize(
    ("route", "body"),
    [("/cancel-all", {"all": True, "dryRun": None}), ("/dead/retry-all", {"all": True, "ratePerSecond": None})],
)
async def test_null_is_left_out_in_bulk_too(route: str, body: Any) -> None:
    async with open_http_client() as http_client:
        assert (await http_client.post(route, body)).status_code == 200


async def test_a_wrong_result_is_named() -> None:
    async with open_http_client() as http_client:
        body = {"id": "a", "lease": "1.2.3", "result": "x" * 70_000}
        error = refused(await http_client.post("/complete", body), 413, "PAYLOAD_TOO_LARGE", "result", "65536")
        assert error["limit"] == 65_536
        deep = json.loads("[" * 66 + "]" * 66)
        body = {"id": "a", "lease": "1.2.3", "result": deep}
        refused(
            await http_client.post("/complete", body), 400, "INVALID_INPUT", "result is nested deeper than 64 levels"
        )


async def test_refusals_too_long_to_keep_are_413_and_nothing_is_done() -> None:
    """Each refusal names what it refuses; a thousand long ones do not fit one row of the store."""
    unlike = [{"functionPath": "p", "scheduledFor": DUE, f"{n:04}" + token_hex(30): 1} for n in range(1_000)]
    async with open_http_client() as http_client:
        body = {"jobs": [{**JOB, "id": "good"}, *unlike[1:]]}
        refused(await http_client.post("/schedule/batch", body, headers=KEY), 413, "PAYLOAD_TOO_LARGE", "999", "fewer")
        assert (await http_client.get("/get?id=good")).json() == {}
        fewer = {"jobs": [{**JOB, "id": "good"}, *unlike[:100]]}
        first = await http_client.post("/schedule/batch", fewer, headers=KEY)
        assert first.status_code == 200, "a refused key is free"
        assert (await http_client.post("/schedule/batch", fewer, headers=KEY)).content == first.content
        alone = await http_client.post("/schedule/batch", body)
        assert alone.status_code == 200, "nothing of it is kept without a key"


async def test_a_key_used_again_and_a_full_quota_cost_no_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_http_client(max_jobs=1) as http_client:
        await http_client.post("/schedule", {**JOB, "pool": "p"}, headers=KEY)
        built = activations(monkeypatch)
        for n in range(5):
            refused(
                await http_client.post("/schedule", {**JOB, "id": "b"}, headers=KEY),
                422,
                "IDEMPOTENCY_KEY_REUSED",
                "new",
            )
            key = {"idempotency-key": str(n)}
            refused(await http_client.post("/schedule", JOB, headers=key), 429, "QUOTA_EXCEEDED")
            refused(await http_client.client.delete("/pool?name=p"), 409, "CONFLICT")
        assert built == []
        assert (await http_client.get("/status")).json()["backlog"] == 1


async def test_a_full_store_still_gives_an_answer_again_and_takes_nothing_new() -> None:
    async with open_http_client() as http_client:
        first = await http_client.post("/schedule", JOB, headers=KEY)
        provider = http_client.host.runtime.provider
        assert isinstance(provider, MemoryProvider)
        provider.full = True
        again = await http_client.post("/schedule", JOB, headers=KEY)
        new = await http_client.post("/schedule", JOB, headers={"idempotency-key": "another"})

    assert (again.status_code, again.content) == (200, first.content)
    assert refused(new, 507, "STORE_FULL")
