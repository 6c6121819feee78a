"""Schedules over HTTP: what a definition may say, where names come from, revisions, and what is told of occurrences."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.http.http_client import DUE, HttpClient, client_of, open_host, refused

pytestmark = pytest.mark.anyio

DAILY: dict[str, Any] = {"cron": "0 9 * * *", "functionPath": "reports:send"}


async def put(http_client: HttpClient, name: str = "s", place: str = "", **members: Any) -> dict[str, Any]:
    answer = await http_client.client.put(f"{place}/schedules/{name}", json={**DAILY, **members})
    assert answer.status_code == 200, answer.text
    value: dict[str, Any] = answer.json()
    return value


async def test_a_schedule_is_kept_as_it_was_given(http_client_per_store: HttpClient) -> None:
    args = b'{"b": 1.50, "a": [1e2,  null]}'
    body = (
        b'{"cron": "@Daily", "workflow": "w", "catchUpLimit": null, "retry": {"maxAttempts": 2}, "args": ' + args + b"}"
    )
    answer = await http_client_per_store.client.put(
        "/schedules/a.b:c", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200, answer.text
    shown = await http_client_per_store.get("/schedules/a.b:c")
    assert args in shown.content
    record = shown.json()
    assert (record["cron"], record["workflow"], record["catchUpLimit"]) == ("@Daily", "w", None)
    assert record["retry"]["maxRetries"] == 2
    assert "functionPath" not in record


async def test_put_answers_what_it_did_and_the_same_again_is_no_change(http_client_per_store: HttpClient) -> None:
    first = await put(http_client_per_store)
    assert first["revision"] == 1
    assert len(first["preview"]) == 5
    assert first["nextAt"] == first["preview"][0]
    assert await put(http_client_per_store) == first
    assert await put(http_client_per_store, catchUpLimit=100, misfire="one", args={}) == first, (
        "a default that is said is no change"
    )
    assert (await put(http_client_per_store, timezone="Asia/Kolkata"))["revision"] == 2


async def test_catch_up_limit_left_out_is_a_hundred_and_null_is_all(http_client: HttpClient) -> None:
    for given, kept in (({}, 100), ({"catchUpLimit": None}, None), ({"catchUpLimit": 7.0}, 7), ({}, 100)):
        await put(http_client, misfire="all", **given)
        assert (await http_client.get("/schedules/s")).json()["catchUpLimit"] == kept


@pytest.mark.parametrize(
    ("members", "code", "words"),
    [
        ({"cron": None}, "INVALID_INPUT", ["exactly one of cron, everyMs and at"]),
        ({"everyMs": 5_000}, "INVALID_INPUT", ["exactly one of cron, everyMs and at"]),
        ({"workflow": "w"}, "INVALID_INPUT", ["exactly one of functionPath and workflow"]),
        ({"cron": 5}, "INVALID_CRON", ["must be a text"]),
        ({"cron": "0 9 * *"}, "INVALID_CRON", ["4 fields"]),
        ({"cron": "* " * 200}, "INVALID_CRON", ["256"]),
        ({"cron": "0 9 * * *\u00a0"}, "INVALID_CRON", []),
        ({"timezone": "europe/berlin"}, "UNKNOWN_TIMEZONE", ["'Europe/Berlin'"]),
        ({"timezone": 5}, "UNKNOWN_TIMEZONE", []),
        ({"timezone": "../../etc/passwd"}, "UNKNOWN_TIMEZONE", []),
        ({"queue": "a,b"}, "INVALID_INPUT", ["queue must be 1 to 128 characters"]),
        ({"then": [{"queue": "q"}]}, "INVALID_INPUT", ["then[0]: give exactly one of functionPath and workflow"]),
        ({"then": [{"functionPath": "q", "instanceName": "other"}]}, "INVALID_INPUT", ["instanceName must be"]),
        ({"cron": None, "at": 1_900_000_000}, "INVALID_INPUT", ["at looks like seconds"]),
        ({"cron": None, "everyMs": 999}, "INVALID_INPUT", ["everyMs must be 1000"]),
        ({"name": "other"}, "INVALID_INPUT", ["unknown field 'name'"]),
        ({"timezon": "UTC"}, "INVALID_INPUT", ["unknown field 'timezon', do you mean timezone?"]),
        ({"tz": "UTC"}, "INVALID_INPUT", ["unknown field 'tz', there are ", " everyMs, at, timezone, "]),
        ({"retry": {"max_retries": 1}}, "INVALID_INPUT", ["'retry.max_retries', do you mean maxRetries?"]),
        ({"timezone": "Europe/Berln"}, "UNKNOWN_TIMEZONE", ["is not known here: give an IANA name like Europe/Berlin"]),
        ({"instanceName": "other"}, "INVALID_INPUT", ["instanceName"]),
        ({"retry": {"maxRetries": 101}}, "INVALID_INPUT", ["100"]),
        ({"maxConcurrency": 2}, "INVALID_INPUT", ["give pool as well"]),
        ({"revision": -1}, "INVALID_INPUT", ["revision must be 0"]),
        ({"paused": "yes"}, "INVALID_INPUT", ["paused must be true or false"]),
        ({"args": json.loads("[" * 70 + "]" * 70)}, "INVALID_INPUT", ["deeper than 64"]),
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_made(
    http_client: HttpClient, members: dict[str, Any], code: str, words: list[str]
) -> None:
    refused(await http_client.client.put("/schedules/s", json={**DAILY, **members}), 400, code, *words)
    assert (await http_client.get("/schedules")).json() == {"schedules": [], "truncated": False}


@pytest.mark.parametrize("name", ["-a", "a%20b", "%C3%A9", "x" * 129, "a@b", "a%0A"])
async def test_a_wrong_name_is_refused_by_every_route(http_client: HttpClient, name: str) -> None:
    url = f"/schedules/{name}"
    for answer in (
        await http_client.client.put(url, json=DAILY),
        await http_client.get(url),
        await http_client.client.delete(url),
        await http_client.get(f"{url}/occurrences"),
        *[await http_client.post(f"{url}/{action}") for action in ("pause", "resume", "trigger")],
    ):
        refused(answer, 400, "INVALID_INPUT", "name must match")


async def test_what_is_not_there_is_404_and_reading_makes_no_instance(http_client: HttpClient) -> None:
    for path in ("", "/occurrences"):
        refused(await http_client.get(f"/i/never/schedules/s{path}"), 404, "NOT_FOUND", "'s'")
    for action in ("pause", "resume", "trigger"):
        refused(await http_client.post(f"/i/never/schedules/s/{action}"), 404, "NOT_FOUND", "'s'")
    assert (await http_client.client.delete("/i/never/schedules/s")).json() == {"deleted": False}
    assert (await http_client.get("/i/never/schedules")).json() == {"schedules": [], "truncated": False}
    assert not await http_client.host.runtime.provider.exists("scheduler/never")


async def test_a_stale_revision_is_409_and_says_where_it_is(http_client_per_store: HttpClient) -> None:
    await put(http_client_per_store, revision=0)
    await put(http_client_per_store, priority=3, revision=1)
    for answer in (
        await http_client_per_store.client.put("/schedules/s", json={**DAILY, "revision": 1}),
        await http_client_per_store.client.put("/schedules/s", json={**DAILY, "revision": 0}),
        await http_client_per_store.post("/schedules/s/pause", {"revision": 1}),
        await http_client_per_store.post("/schedules/s/resume", {"revision": 3}),
        await http_client_per_store.client.delete("/schedules/s?revision=1"),
    ):
        assert refused(answer, 409, "CONFLICT", "is at revision 2")["revision"] == 2
    refused(
        await http_client_per_store.client.put("/schedules/new", json={**DAILY, "revision": 4}),
        409,
        "CONFLICT",
        "revision 0",
    )
    assert (await http_client_per_store.get("/schedules/s")).json()["priority"] == 3


async def test_pause_and_resume_answer_the_schedule(http_client_per_store: HttpClient) -> None:
    await put(http_client_per_store)
    paused = (await http_client_per_store.post("/schedules/s/pause")).json()
    assert (paused["state"], paused["nextAt"], paused["revision"]) == ("paused", None, 2)
    assert (await http_client_per_store.post("/schedules/s/pause", {})).json() == paused, "already so"
    assert (await put(http_client_per_store, priority=1))["nextAt"] is None, "left out, it stays paused"
    resumed = (await http_client_per_store.post("/schedules/s/resume", {"revision": 3})).json()
    assert (resumed["state"], resumed["paused"]) == ("active", False)
    assert (await put(http_client_per_store, paused=True, priority=1))["nextAt"] is None


async def test_the_same_request_key_is_the_same_run(http_client_per_store: HttpClient) -> None:
    await put(http_client_per_store, paused=True)
    first, again, other = [
        (await http_client_per_store.post("/schedules/s/trigger", body)).json()
        for body in ({"requestKey": "k"}, {"requestKey": "k"}, None)
    ]
    assert (first["created"], again["created"], other["created"]) == (True, False, True)
    assert first["id"] == again["id"] != other["id"]
    await http_client_per_store.until(first["id"], None)
    await http_client_per_store.until(other["id"], None)
    assert [one["schedule"]["name"] for one in http_client_per_store.receiver.bodies] == ["s", "s"]


async def test_concurrent_triggers_of_one_key_are_one_run(http_client_per_store: HttpClient) -> None:
    await put(http_client_per_store)
    answers = await asyncio.gather(
        *(http_client_per_store.post("/schedules/s/trigger", {"requestKey": "k"}) for _ in range(20))
    )
    assert sorted(answer.json()["created"] for answer in answers) == [False] * 19 + [True]
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_of_two_editors_one_wins(http_client_per_store: HttpClient) -> None:
    await put(http_client_per_store)
    answers = await asyncio.gather(
        *(
            http_client_per_store.client.put("/schedules/s", json={**DAILY, "priority": n, "revision": 1})
            for n in range(1, 9)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7


async def test_jobs_show_their_schedule_also_dead_ones(http_client_per_store: HttpClient) -> None:
    await put(http_client_per_store, functionPath="answer:410")
    run = (await http_client_per_store.post("/schedules/s/trigger")).json()
    await http_client_per_store.until(run["id"], "dead")
    told = {"name": "s", "slot": run["slot"], "triggered": True}
    [letter] = (await http_client_per_store.get("/dead")).json()["records"]
    assert (
        letter["schedule"]
        == (await http_client_per_store.get(f"/get?id={run['id']}")).json()["record"]["schedule"]
        == told
    )
    [occurrence] = (await http_client_per_store.get("/schedules/s/occurrences")).json()["occurrences"]
    assert (occurrence["state"], occurrence["jobId"]) == ("dead", run["id"])


async def test_lists_are_paged(http_client_per_store: HttpClient) -> None:
    for name in ("a", "b", "c"):
        await put(http_client_per_store, name)
        await http_client_per_store.post("/schedules/a/trigger")
    for route, member in (("/schedules", "schedules"), ("/schedules/a/occurrences", "occurrences")):
        whole = (await http_client_per_store.get(route)).json()[member]
        found: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            page = (await http_client_per_store.get(route, params={"limit": 1, **cursor})).json()
            found += page[member]
            if not page["truncated"]:
                break
            cursor = {"cursor": page["cursor"]}
        assert [one.get("name", one.get("slot")) for one in found] == [
            one.get("name", one.get("slot")) for one in whole
        ]
        assert len(found) == 3
        refused(await http_client_per_store.get(route, params={"cursor": "forged"}), 400, "INVALID_INPUT", "cursor")
    assert [one["name"] for one in (await http_client_per_store.get("/schedules")).json()["schedules"]] == [
        "a",
        "b",
        "c",
    ]


async def test_deleting_may_cancel_what_is_pending_and_history_stays(http_client_per_store: HttpClient) -> None:
    await http_client_per_store.client.put("/pool", json={"name": "held", "paused": True})
    await put(http_client_per_store, pool="held")
    run = (await http_client_per_store.post("/schedules/s/trigger")).json()
    assert (await http_client_per_store.client.delete("/schedules/s")).json() == {"deleted": True}
    assert (await http_client_per_store.get(f"/get?id={run['id']}")).json()["record"]["state"] in ("pending", "waiting")
    await put(http_client_per_store, pool="held")
    again = (await http_client_per_store.post("/schedules/s/trigger")).json()
    assert (await http_client_per_store.client.delete("/schedules/s?cancelPending=true")).json() == {"deleted": True}
    assert (await http_client_per_store.get(f"/get?id={again['id']}")).json() == {}
    refused(await http_client_per_store.get("/schedules/s"), 404, "NOT_FOUND")
    states = [
        one["state"] for one in (await http_client_per_store.get("/schedules/s/occurrences")).json()["occurrences"]
    ]
    assert states == ["cancelled", "cancelled"]
    refused(
        await http_client_per_store.client.delete("/schedules/s?cancelPending=1"), 400, "INVALID_INPUT", "true or false"
    )


async def test_a_cancel_that_was_cut_short_is_finished_when_it_is_asked_for_again(
    http_client_per_store: HttpClient,
) -> None:
    await http_client_per_store.client.put("/pool", json={"name": "held", "paused": True})
    await put(http_client_per_store, pool="held")
    run = (await http_client_per_store.post("/schedules/s/trigger")).json()
    await http_client_per_store.client.delete("/schedules/s")  # so far it had come
    assert (await http_client_per_store.client.delete("/schedules/s?cancelPending=true")).json() == {"deleted": False}
    assert (await http_client_per_store.get(f"/get?id={run['id']}")).json() == {}


async def test_long_args_are_whole_in_the_schedule_and_in_its_job(http_client_per_store: HttpClient) -> None:
    await http_client_per_store.client.put("/pool", json={"name": "held", "paused": True})
    args = {"text": "x" * 200_000}
    await put(http_client_per_store, pool="held", args=args)
    run = (await http_client_per_store.post("/schedules/s/trigger")).json()
    assert (await http_client_per_store.get("/schedules/s")).json()["args"] == args
    assert (await http_client_per_store.get(f"/get?id={run['id']}")).json()["record"]["args"] == args
    refused(
        await http_client_per_store.client.put("/schedules/s", json={**DAILY, "args": "x" * 300_000}),
        413,
        "PAYLOAD_TOO_LARGE",
    )


async def test_instances_have_their_own_schedules(http_client_per_store: HttpClient) -> None:
    await put(http_client_per_store, place="/i/tenant-a")
    refused(await http_client_per_store.get("/schedules/s"), 404, "NOT_FOUND")
    assert (await http_client_per_store.get("/i/tenant-a/schedules/s")).status_code == 200


# ---- Preview -------------------------------------------------------------------------------------


async def test_preview_marks_changes_of_the_clock(http_client: HttpClient) -> None:
    query = {"expr": "30 2 * * *", "timezone": "America/New_York", "from": "1804939200000", "count": "3"}
    found = (await http_client.get("/i/never/cron/preview", params=query)).json()
    assert [bool(note) for note in found["notes"]] == [True, False, False]
    assert found["notes"][0].startswith("DST: the clock skips from 02:00 to 03:00")
    assert len((await http_client.get("/cron/preview?expr=@hourly")).json()["next"]) == 5


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("", "INVALID_INPUT", ["expr is missing"]),
        ("expr=", "INVALID_INPUT", ["expr is missing"]),
        ("expr=*/90+*+*+*+*", "INVALID_CRON", ["everyMs"]),
        ("expr=@daily&timezone=Mars", "UNKNOWN_TIMEZONE", ["Mars"]),
        ("expr=@daily&timezone=", "UNKNOWN_TIMEZONE", ["not ''"]),
        ("expr=@daily&count=0", "INVALID_INPUT", ["count must be 1..100"]),
        ("expr=@daily&count=101", "INVALID_INPUT", ["count must be 1..100"]),
        ("expr=@daily&from=1900000000", "INVALID_INPUT", ["from", "looks like seconds"]),
        ("expr=@daily&from=soon", "INVALID_INPUT", ["from must be a whole number"]),
        ("expr=@daily&tz=UTC", "INVALID_INPUT", ["this route takes expr, timezone, from, count"]),
    ],
)
async def test_a_preview_is_refused_as_a_definition_is(
    http_client: HttpClient, query: str, code: str, words: list[str]
) -> None:
    refused(await http_client.get(f"/cron/preview?{query}"), 400, code, *words)


# ---- Who -----------------------------------------------------------------------------------------


async def test_occurrences_are_of_who_defined_the_schedule() -> None:
    tokens = ["app:schedule:secret-app", "ops:operate:secret-ops"]
    async with open_host() as (host, _), client_of(host.asgi(tokens=tokens)) as client:
        held = {"pool": "held", "cron": "0 9 * * *", "functionPath": "p"}
        await host.scheduler("default").set_pool("held", paused=True)
        await client.put("/schedules/s", json=held, headers={"authorization": "Bearer secret-app"})
        run = await client.post("/schedules/s/trigger", headers={"authorization": "Bearer secret-ops"})
        record = await host.scheduler("default").get(run.json()["id"])
        assert record is not None and record.initiator is not None and record.initiator.token == "app"
        answer = await client.put("/schedules/t", json=held, headers={"authorization": "Bearer secret-ops"})
        refused(answer, 403, "FORBIDDEN", "schedule")


async def test_a_one_time_rule_is_there_until_it_has_come(http_client: HttpClient) -> None:
    made = await put(http_client, cron=None, at=DUE)
    assert (made["nextAt"], made["preview"]) == (DUE, [DUE])
