"""What pulled work comes to, over HTTP: settlements, chains, results, counts."""

from __future__ import annotations

import asyncio

import pytest

from tests.http.http_client import HttpClient, refused
from tests.http.test_queues import SOON_MS, claim, pulled, waiting_for

pytestmark = pytest.mark.anyio

# ---- Settling ------------------------------------------------------------------------------------


async def test_an_end_that_contradicts_itself_settles_nothing(http_client: HttpClient) -> None:
    await pulled(http_client, "a")
    [one] = await claim(http_client)
    named = {"id": "a", "lease": one["lease"]}
    for said in ({"error": "no"}, {"retryable": False}, {"charge": False}, {"delayMs": 0}):
        [member] = said
        for ok in ({}, {"ok": True}, {"ok": None}):
            wrong = await http_client.post("/complete", {**named, **ok, **said})
            refused(wrong, 400, "INVALID_INPUT", f"{member} goes with ok: false")
    refused(
        await http_client.post("/complete", {**named, "ok": False, "result": 0}),
        400,
        "INVALID_INPUT",
        "result goes with",
    )
    refused(await http_client.post("/extend", named), 400, "INVALID_INPUT", "leaseMs is missing")
    unsaid = {"error": None, "retryable": True, "charge": True, "delayMs": None, "ok": None, "result": None}

    assert (await http_client.post("/complete", {**named, **unsaid})).json() == {"settled": True, "state": "done"}


async def test_a_settlement_says_what_became_of_the_job(http_client: HttpClient) -> None:
    await pulled(http_client, "a", retry={"maxRetries": 1, "baseMs": 0})
    [one] = await claim(http_client)
    back = await http_client.post(
        "/complete", {"id": "a", "lease": one["lease"], "ok": False, "charge": False, "delayMs": 0, "error": "stopped"}
    )
    [two] = await claim(http_client)
    failed = await http_client.post("/complete", {"id": "a", "lease": two["lease"], "ok": False})
    [three] = await claim(http_client, waitMs=SOON_MS)
    dead = await http_client.post("/complete", {"id": "a", "lease": three["lease"], "ok": False, "error": "no"})
    again = await http_client.post("/complete", {"id": "a", "lease": three["lease"], "ok": False, "error": "no"})
    late = await http_client.post("/extend", {"id": "a", "lease": three["lease"], "leaseMs": 5_000})

    assert (back.json()["state"], two["attempts"], three["attempts"]) == ("retrying", 0, 1)
    assert back.json()["nextAttemptAt"] <= failed.json()["nextAttemptAt"]
    assert dead.json() == again.json() == {"settled": True, "state": "dead", "reason": "exhausted"}
    refused(late, 409, "STALE_LEASE")


async def test_who_extends_hears_of_a_cancel(http_client: HttpClient) -> None:
    await pulled(http_client, "a")
    [one] = await claim(http_client)
    await http_client.post("/cancel", {"id": "a"})
    error = refused(
        await http_client.post("/extend", {"id": "a", "lease": one["lease"], "leaseMs": 5_000}),
        409,
        "STALE_LEASE",
        "cancelled",
    )

    assert error["cancelled"] is True
    settled = await http_client.post("/complete", {"id": "a", "lease": one["lease"]})
    assert settled.json() == {"settled": True, "state": "cancelled"}


# ---- Chains and results --------------------------------------------------------------------------


async def test_a_chain_runs_link_by_link_and_each_is_given_the_result_before(http_client_per_store: HttpClient) -> None:
    last = {"functionPath": "c", "queue": "q"}
    middle = {"workflow": "b", "queue": "r", "args": {"n": 2}, "keepResultMs": 60_000, "then": [last]}
    await pulled(http_client_per_store, "a", then=[middle, {"functionPath": "side"}])
    [one] = await claim(http_client_per_store)
    assert (await http_client_per_store.get("/pending?prefix=c")).json() == {"pending": True, "count": 1}
    await http_client_per_store.post("/complete", {"id": "a", "lease": one["lease"], "result": {"sum": 7}})
    [two] = await claim(http_client_per_store)
    assert (two["workflow"], two["args"], two["parent"]) == ("b", {"n": 2}, {"id": "a", "result": {"sum": 7}})
    await http_client_per_store.post("/complete", {"id": two["id"], "lease": two["lease"]})
    [three] = await claim(http_client_per_store)
    await http_client_per_store.post("/complete", {"id": three["id"], "lease": three["lease"]})

    assert (three["functionPath"], three["parent"]) == ("c", {"id": two["id"]})
    await http_client_per_store.until(one["id"], None)
    assert (await http_client_per_store.get("/pending?prefix=c")).json() == {"pending": False, "count": 0}
    [side] = [body for body in http_client_per_store.receiver.bodies if body["functionPath"] == "side"]
    assert side["parent"] == {"id": "a", "result": {"sum": 7}}
    assert (await http_client_per_store.get("/result", params={"id": two["id"]})).json()["state"] == "done"


async def test_who_asks_for_a_result_may_wait_for_it(http_client: HttpClient) -> None:
    await pulled(http_client, "a", keepResultMs=60_000)
    [one] = await claim(http_client)
    waiting = asyncio.create_task(http_client.get("/result", params={"id": "a", "waitMs": SOON_MS}))
    early = await http_client.get("/result", params={"id": "a", "waitMs": 1})
    await http_client.post("/complete", {"id": "a", "lease": one["lease"], "result": [1, {"n": None}]})
    answer = (await asyncio.wait_for(waiting, 5)).json()

    assert early.json() == {"id": "a", "state": "running"}
    assert (answer["state"], answer["result"]) == ("done", [1, {"n": None}])
    assert answer["keptUntil"] == answer["endedAt"] + 60_000
    await pulled(http_client, "b")
    for id, words in (("b", "keepResultMs"), ("nobody", "nothing is known")):
        refused(await http_client.get("/result", params={"id": id}), 404, "NOT_FOUND", words)
    for query, words in ((("id", "a b"), "id must match"), (("waitMs", "-1"), "waitMs"), (("waitMs", "x"), "waitMs")):
        answer_ = await http_client.get("/result", params={"id": "a", query[0]: query[1]})
        assert (answer_.status_code, words in answer_.text) == (400, True)


async def test_a_dead_job_tells_why_where_its_result_is_asked_for(http_client: HttpClient) -> None:
    await pulled(http_client, "a", keepResultMs=60_000)
    [one] = await claim(http_client)
    await http_client.post(
        "/complete", {"id": "a", "lease": one["lease"], "ok": False, "retryable": False, "error": "no"}
    )
    answer = (await http_client.get("/result?id=a")).json()

    assert (answer["state"], answer["error"]) == ("dead", "refused: no")


# ---- Reading -------------------------------------------------------------------------------------


async def test_queues_are_counted(http_client: HttpClient) -> None:
    for n in range(3):
        await pulled(http_client, f"a{n}", "a")
    await http_client.schedule(id="later", queue="a")
    await http_client.schedule(id="b", queue="b")
    await claim(http_client, "a")
    waiting = asyncio.create_task(claim(http_client, "b", waitMs=SOON_MS))
    await waiting_for(http_client, "b", 1)
    first, second = (await http_client.get("/queues")).json()["queues"]

    assert {**first, "oldestDueMs": 0} == {
        "name": "a", "waiting": 3, "due": 2, "inFlight": 1, "workersWaiting": 0, "oldestDueMs": 0,
    }  # fmt: skip
    assert second == {"name": "b", "waiting": 1, "due": 0, "inFlight": 0, "workersWaiting": 1}
    waiting.cancel()


async def test_a_list_may_be_of_one_queue(http_client: HttpClient) -> None:
    for n in range(3):
        await http_client.schedule(id=f"m{n}", queue="mail")
        await http_client.schedule(id=f"c{n}")
    await http_client.schedule(id="other", queue="mai")

    for order in ("due", "id"):
        found = (await http_client.get("/list", params={"queue": "mail", "order": order, "limit": 2})).json()
        more = (
            await http_client.get(
                "/list", params={"queue": "mail", "order": order, "limit": 2, "cursor": found["cursor"]}
            )
        ).json()
        assert [one["id"] for one in (*found["records"], *more["records"])] == ["m0", "m1", "m2"]
        assert not more["truncated"]
    refused(await http_client.get("/list?queue=a,b"), 400, "INVALID_INPUT", "queue must be")


async def test_pending_counts_by_prefix(http_client: HttpClient) -> None:
    await http_client.schedule(id="a", functionPath="mail:send", queue="q", then=[{"functionPath": "mail:note"}])
    await http_client.schedule(id="b", functionPath=None, workflow="mailbox")
    await http_client.bury("dead")

    for prefix, count in (("mail", 3), ("mail:", 2), ("mail:note", 1), ("mail:x", 0), ("answer:", 0), ("", 3)):
        found = (await http_client.get("/pending", params={"prefix": prefix})).json()
        assert found == {"pending": count > 0, "count": count}, prefix
    refused(await http_client.get("/pending", params={"prefix": "x" * 513}), 400, "INVALID_INPUT", "prefix")


async def test_why_names_who_has_it_and_who_is_missing(http_client: HttpClient) -> None:
    await pulled(http_client, "a")
    [missing] = (await http_client.get("/why?id=a")).json()["reasons"]
    await claim(http_client, worker={"id": "w1"})
    [running] = (await http_client.get("/why?id=a")).json()["reasons"]

    assert missing["code"] == "NO_WORKER" and "queue q" in missing["message"]
    assert running["code"] == "RUNNING" and "worker w1" in running["message"]


async def test_a_failure_may_have_a_code_for_programs(http_client: HttpClient) -> None:
    await pulled(http_client, "a", keepResultMs=60_000, retry={"maxRetries": 0})
    [one] = await claim(http_client)
    named = {"id": "a", "lease": one["lease"], "ok": False}
    for error, said in [
        ({"code": "x"}, "message"),
        ({"message": "no", "code": "x y"}, "error.code must match"),
        ({"message": "no", "code": 7}, "error.code must match"),
        ({"message": "no", "status": 302}, "error.status must be 400..599, not 302"),
        ({"message": "no", "data": "x" * 2_047}, "error.data: 2049 bytes of JSON, the limit is 2048"),
        ({"message": "no", "why": "x"}, "why"),
        (7, "error"),
    ]:
        refused(await http_client.post("/complete", {**named, "error": error}), 400, "INVALID_INPUT", said)
    error = {"message": "card declined", "code": "card_declined", "status": 402, "data": {"n": [1, None]}}
    told = await http_client.post("/complete", {**named, "error": error})
    outcome = (await http_client.get("/result?id=a")).json()
    [attempt] = (await http_client.get("/history?id=a")).json()["attempts"]
    record = (await http_client.get("/get?id=a")).json()["record"]

    assert told.json()["state"] == "dead"
    coded = {"code": "card_declined", "status": 402, "data": {"n": [1, None]}}
    assert coded.items() <= outcome.items() and outcome["error"] == "exhausted: card declined"
    assert coded.items() <= attempt.items()
    assert coded.items() <= record["lastError"].items()
