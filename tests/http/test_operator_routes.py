"""The routes of operators and of accepted work: a good answer as the contract says, and bad input by name."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.http.accepting_receiver import AcceptingReceiver, accepted
from tests.http.http_client import DUE, HttpClient, activations, client_of, open_host, open_http_client, refused

pytestmark = pytest.mark.anyio

ADMIN = {"authorization": "Bearer sesame-sesame"}


async def bad(http_client: HttpClient, method: str, path: str, bodies: list[tuple[Any, str]]) -> None:
    for body, words in bodies:
        answer = await http_client.client.request(method, path, json=body)
        refused(answer, 400, "INVALID_INPUT", words)


# ---- Accepted work -------------------------------------------------------------------------------


async def test_complete_settles_by_lease_alone_and_says_so_again() -> None:
    from tocsin.dispatch.asgi_transport import AsgiTransport

    app = AcceptingReceiver()
    async with open_http_client(transport=AsgiTransport(app)) as http_client:
        lease = await accepted(http_client, app, "a")
        for _ in range(2):
            answer = await http_client.post("/complete", {"id": "a", "lease": lease, "result": {"rows": 3}})
            assert answer.json() == {"settled": True, "state": "done"}
        history = (await http_client.get("/history?id=a")).json()
        assert [(one["outcome"], one["result"]) for one in history["attempts"]] == [("done", {"rows": 3})]
        assert (await http_client.get("/get?id=a")).json() == {}
        refused(await http_client.post("/complete", {"id": "a", "lease": "1.2.3"}), 409, "STALE_LEASE", "'a'")
        await bad(
            http_client,
            "POST",
            "/complete",
            [
                ({"lease": lease}, "id is missing"),
                ({"id": "a"}, "lease is missing"),
                ({"id": "a", "lease": 5}, "lease must be"),
                ({"id": "a", "lease": lease, "ok": "yes"}, "ok"),
                ({"id": "a", "lease": lease, "ok": False, "delayMs": -1}, "delayMs must be"),
            ],
        )


async def test_extend_says_until_when() -> None:
    from tocsin.dispatch.asgi_transport import AsgiTransport

    app = AcceptingReceiver()
    async with open_http_client(transport=AsgiTransport(app)) as http_client:
        lease = await accepted(http_client, app, "a")
        until = (await http_client.post("/extend", {"id": "a", "lease": lease, "leaseMs": 60_000})).json()["leaseUntil"]
        assert (await http_client.get("/get?id=a")).json()["record"]["lease"]["until"] == until
        refused(await http_client.post("/extend", {"id": "a", "lease": "x", "leaseMs": 1000}), 409, "STALE_LEASE")
        await bad(
            http_client,
            "POST",
            "/extend",
            [
                ({"id": "a", "lease": lease}, "leaseMs is missing"),
                ({"id": "a", "lease": lease, "leaseMs": 3_600_001}, "1000..3600000"),
                ({"id": "a", "lease": lease, "leaseMs": True}, "leaseMs must be an integer"),
            ],
        )
        await http_client.post("/complete", {"id": "a", "lease": lease})


async def test_a_lease_is_leave_enough_where_tokens_are_asked_for() -> None:
    async with open_host() as (host, _), client_of(host.asgi(tokens="ops:admin:sesame-sesame")) as client:
        refused(await client.post("/complete", json={"id": "a", "lease": "1.2.3"}), 409, "STALE_LEASE")
        refused(await client.post("/cancel", json={"id": "a"}), 401, "UNAUTHENTICATED")


# ---- Pools and the instance ----------------------------------------------------------------------


async def test_a_pool_is_set_shown_and_deleted(http_client: HttpClient) -> None:
    answer = await http_client.client.put("/pool", json={"name": "p", "maxConcurrency": 3})
    assert answer.json() == {
        "name": "p",
        "inFlight": 0,
        "maxConcurrency": 3,
        "queued": 0,
        "paused": False,
        "holders": [],
        "created": True,
    }
    await http_client.schedule(id="a", pool="p")
    assert (await http_client.get("/pool?name=p")).json()["queued"] == 1
    refused(await http_client.client.delete("/pool?name=p"), 409, "CONFLICT", "1 waiting")
    await http_client.post("/cancel", {"id": "a"})
    assert (await http_client.client.delete("/pool?name=p")).json() == {"deleted": True}
    await bad(
        http_client,
        "PUT",
        "/pool",
        [
            ({}, "give at least one of maxConcurrency"),
            ({"name": "a/b", "paused": True}, "name must be"),
            ({"name": "p", "maxConcurrency": -1}, "0..10000"),
            ({"name": "p", "paused": "yes"}, "true or false"),
        ],
    )
    refused(await http_client.get("/pool"), 400, "INVALID_INPUT", "name is missing")


async def test_an_instance_is_stopped_started_and_removed(http_client: HttpClient) -> None:
    await http_client.schedule("/i/tenant", id="a")
    paused = (await http_client.client.put("/i/tenant/instance", json={"paused": True})).json()
    assert paused.pop("pausedAt") > 0
    assert paused == {"name": "tenant", "paused": True, "pausedBy": {"via": "http"}}
    assert "INSTANCE_PAUSED" in str((await http_client.get("/i/tenant/why?id=a")).json())
    refused(await http_client.client.put("/instance", json={"paused": 1}), 400, "INVALID_INPUT", "true or false")
    refused(await http_client.client.delete("/i/tenant"), 400, "INVALID_INPUT", "confirm=tenant")
    refused(await http_client.client.delete("/i/tenant?confirm=other"), 400, "INVALID_INPUT", "confirm=tenant")
    removed = (await http_client.client.delete("/i/tenant?confirm=tenant")).json()
    assert removed["jobs"] == 1
    assert (await http_client.get("/i/tenant/status")).json()["backlog"] == 0


async def test_an_instance_s_own_deadline_is_set_shown_and_taken_back(http_client: HttpClient) -> None:
    async def put(**said: Any) -> Any:
        return (await http_client.client.put("/i/tenant/instance", json=said)).json()

    own = {"name": "tenant", "paused": False, "timeoutMs": 900_000}
    assert await put(timeoutMs=900_000) == own
    assert (await put(paused=True)).items() >= (own | {"paused": True}).items()
    [shown] = (await http_client.get("/instances")).json()["instances"]
    assert shown.items() >= (own | {"paused": True}).items()
    assert await put(paused=False, timeoutMs=0) == {"name": "tenant", "paused": False}
    for wrong in (999, 3_600_001, True, "60s"):
        answer = await http_client.client.put("/instance", json={"timeoutMs": wrong})
        refused(answer, 400, "INVALID_INPUT", "timeoutMs must be")
    refused(await http_client.client.put("/instance", json={}), 400, "INVALID_INPUT", "give paused, timeoutMs or both")


# ---- Bulk ----------------------------------------------------------------------------------------


async def test_cancel_all_and_reschedule(http_client: HttpClient) -> None:
    for n in range(3):
        await http_client.schedule(id=f"a{n}", pool="p")
    moved = await http_client.post("/reschedule", {"id": "a0", "scheduledFor": DUE + 5})
    assert moved.json() == {"rescheduled": True, "scheduledFor": DUE + 5}
    assert (await http_client.post("/reschedule", {"id": "nobody", "delayMs": 5})).json() == {"rescheduled": False}
    assert (await http_client.post("/cancel-all", {"pool": "p", "dryRun": True})).json() == {
        "matched": 3,
        "cancelled": 0,
    }
    cancelled = (await http_client.post("/cancel-all", {"all": True})).json()
    assert cancelled.items() >= {"matched": 3, "cancelled": 3}.items() and cancelled["actionId"]
    await bad(
        http_client,
        "POST",
        "/cancel-all",
        [({}, "all: true"), ({"pool": 5}, "pool"), ({"all": True, "pool": "p"}, "none")],
    )
    await bad(
        http_client,
        "POST",
        "/reschedule",
        [
            ({"id": "a"}, "exactly one"),
            ({"id": "a", "delayMs": -1}, "delayMs must be"),
            ({"delayMs": 1}, "id is missing"),
        ],
    )


async def test_dead_letters_are_retried_in_bulk_and_watched(http_client: HttpClient) -> None:
    await http_client.bury("a")
    started = (await http_client.post("/dead/retry-all", {"all": True, "ratePerSecond": 5})).json()
    shown = (await http_client.get(f"/dead/redrives/{started['redriveId']}")).json()
    assert (started["matched"], shown["retried"]) == (1, 1)
    stopped = await http_client.client.delete(f"/dead/redrives/{started['redriveId']}")
    assert stopped.json() == {"stopped": False}  # it had ended
    refused(await http_client.get("/dead/redrives/nobody"), 404, "NOT_FOUND", "nobody")
    await bad(
        http_client,
        "POST",
        "/dead/retry-all",
        [({}, "all: true"), ({"all": True, "ratePerSecond": 0}, "1..1000"), ({"since": 5}, "looks like seconds")],
    )


# ---- Once ----------------------------------------------------------------------------------------


def keyed(key: str) -> dict[str, str]:
    return {"idempotency-key": key}


async def test_a_key_makes_one_job_and_one_answer(http_client: HttpClient) -> None:
    job = {"functionPath": "p", "scheduledFor": DUE}
    answers = await asyncio.gather(*(http_client.post("/schedule", job, headers=keyed("k")) for _ in range(5)))
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["created"] is True
    assert (await http_client.get("/status")).json()["backlog"] == 1
    other = await http_client.post("/schedule", {**job, "scheduledFor": DUE + 1}, headers=keyed("k"))
    refused(other, 422, "IDEMPOTENCY_KEY_REUSED", "another request")
    assert (await http_client.post("/i/tenant/schedule", job, headers=keyed("k"))).json()["created"] is True
    assert (await http_client.post("/schedule", job, headers=keyed("k2"))).content != answers[0].content


async def test_a_conflict_is_an_answer_to_keep_and_bad_input_is_not(http_client: HttpClient) -> None:
    await http_client.schedule(id="a")
    job = {"functionPath": "p", "scheduledFor": DUE, "id": "a"}
    refused(await http_client.post("/schedule", job, headers=keyed("k")), 409, "DUPLICATE_SCHEDULE_ID")
    await http_client.post("/cancel", {"id": "a"})
    refused(await http_client.post("/schedule", job, headers=keyed("k")), 409, "DUPLICATE_SCHEDULE_ID")
    refused(await http_client.post("/schedule", {}, headers=keyed("j")), 400, "INVALID_INPUT")
    assert (await http_client.post("/schedule", job, headers=keyed("j"))).status_code == 200


async def test_a_batch_is_done_once(http_client: HttpClient) -> None:
    body = {"jobs": [{"functionPath": "p", "scheduledFor": DUE}, {"functionPath": "p"}]}
    first = await http_client.post("/schedule/batch", body, headers=keyed("k"))
    again = await http_client.post("/schedule/batch", body, headers=keyed("k"))
    assert first.content == again.content
    assert ["id" in one for one in first.json()["results"]] == [True, False]
    assert (await http_client.get("/status")).json()["backlog"] == 1


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_key_has_bounds(http_client: HttpClient, key: str) -> None:
    answer = await http_client.post("/schedule", {"functionPath": "p", "scheduledFor": DUE}, headers=keyed(key))
    refused(answer, 400, "INVALID_INPUT", "1 to 255")


async def test_an_instance_over_its_quota_is_429() -> None:
    async with open_http_client(max_jobs=2) as http_client:
        for n in range(2):
            await http_client.schedule(id=f"a{n}")
        answer: httpx.Response = await http_client.post("/schedule", {"functionPath": "p", "scheduledFor": DUE})
        refused(answer, 429, "QUOTA_EXCEEDED", "may hold 2")


async def test_wrong_leases_cost_no_activation(http_client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may send them, as these routes need no token."""
    await http_client.schedule(id="a")
    built = activations(monkeypatch)
    for _ in range(5):
        refused(await http_client.post("/complete", {"id": "a", "lease": "wrong"}), 409, "STALE_LEASE")
        refused(await http_client.post("/extend", {"id": "a", "lease": "wrong", "leaseMs": 5_000}), 409, "STALE_LEASE")
    assert built == []


async def test_a_second_bulk_retry_of_the_same_dead_jobs_names_the_one_that_goes_on(http_client: HttpClient) -> None:
    for n in range(3):
        await http_client.bury(f"d{n}")
    started = (await http_client.post("/dead/retry-all", {"all": True, "ratePerSecond": 1})).json()
    said = refused(await http_client.post("/dead/retry-all", {"all": True}), 409, "CONFLICT", started["redriveId"])
    assert said["redriveId"] == started["redriveId"]
    assert (await http_client.client.delete(f"/dead/redrives/{started['redriveId']}")).json() == {"stopped": True}
    assert (await http_client.post("/dead/retry-all", {"all": True})).status_code == 200
