"""POST /schedule, /schedule/batch and /cancel: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.http_client import DUE, HttpClient, open_http_client, refused

pytestmark = pytest.mark.anyio


# ---- /schedule -----------------------------------------------------------------------------------


async def test_a_job_is_accepted_and_read_back_with_all_its_members(http_client_per_store: HttpClient) -> None:
    members: dict[str, Any] = {
        "id": "a", "args": {"n": [1, None]}, "pool": "stripe", "maxConcurrency": 3, "priority": -4,
        "retry": {"maxRetries": 2, "backoff": "linear", "baseMs": 0.5, "maxMs": 10, "jitter": 1},
        "timeoutMs": 90_000, "expiresAt": DUE + 1, "shardKey": "k", "labels": ["x", "y"],
    }  # fmt: skip
    answer = await http_client_per_store.post(
        "/schedule", {"functionPath": "invoices:send", "scheduledFor": DUE, **members}
    )
    assert (answer.status_code, answer.json()) == (200, {"id": "a", "scheduledFor": DUE, "created": True})
    record = (await http_client_per_store.get("/get?id=a")).json()["record"]
    assert record.items() >= {**members, "functionPath": "invoices:send", "scheduledFor": DUE}.items()
    assert (record["state"], record["attempts"], record["nextAttemptAt"]) == ("pending", 0, DUE)


async def test_a_delay_counts_from_now_and_a_minted_id_is_answered(http_client: HttpClient) -> None:
    before = http_client.host.runtime.clock.now_ms()
    answer = await http_client.schedule(delayMs=60_000, workflow="wf", functionPath=None)
    assert before + 60_000 <= answer["scheduledFor"] <= http_client.host.runtime.clock.now_ms() + 60_000
    record = (await http_client.get("/get", params={"id": answer["id"]})).json()["record"]
    assert (record["workflow"], record["args"]) == ("wf", {})


async def test_a_due_job_is_called_back_with_the_bytes_of_its_args(http_client: HttpClient) -> None:
    args = b'{ "n" : 1.50, "big": 123456789012345678901234567890, "t":"\\u00e9\xc3\xa9" }'
    body = b'{"functionPath": "p", "id": "a", "delayMs": 0, "shardKey": "k", "args": ' + args + b"}"
    answer = await http_client.client.post("/schedule", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    await http_client.until("a", None)
    assert args in http_client.receiver.raw[0]
    assert (http_client.receiver.bodies[0]["instanceName"], http_client.receiver.bodies[0]["shardKey"]) == (
        "default",
        "k",
    )


async def test_a_taken_id_is_refused_kept_or_replaced(http_client: HttpClient) -> None:
    await http_client.schedule(id="a", args=[1])
    again = {"functionPath": "p", "scheduledFor": DUE, "id": "a", "args": [1]}
    error = refused(await http_client.post("/schedule", again), 409, "DUPLICATE_SCHEDULE_ID", "pending")
    assert error["state"] == "pending"
    kept = (await http_client.post("/schedule", {**again, "onConflict": "keep"})).json()
    assert kept == {"id": "a", "scheduledFor": DUE, "created": False, "identical": True, "state": "pending"}
    other = (await http_client.post("/schedule", {**again, "args": [2], "onConflict": "keep"})).json()
    assert (other["created"], other["identical"]) == (False, False)
    replaced = await http_client.post("/schedule", {**again, "scheduledFor": DUE + 1, "onConflict": "replace"})
    assert replaced.json() == {"id": "a", "scheduledFor": DUE + 1, "created": True}


def nested(levels: int) -> dict[str, Any]:
    """A chain of so many."""
    chain: dict[str, Any] = {"functionPath": "q"}
    for _ in range(levels - 1):
        chain = {"functionPath": "q", "then": [chain]}
    return chain


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"functionPath": None}, ["functionPath", "workflow"]),
        ({"workflow": "w"}, ["exactly one of functionPath and workflow"]),
        ({"functionPath": ""}, ["functionPath must be a text that is not empty"]),
        ({"functionPath": 5}, ["functionPath"]),
        ({"functionPath": ["p"]}, ["functionPath must not be an array"]),
        ({"functionPath": "p" * 513}, ["functionPath", "512"]),
        ({"scheduledFor": None}, ["exactly one of scheduledFor and delayMs"]),
        ({"delayMs": 5}, ["exactly one of scheduledFor and delayMs"]),
        ({"scheduledFor": 1_900_000_000}, ["scheduledFor looks like seconds"]),
        ({"scheduledFor": 99_999_999_999}, ["scheduledFor looks like seconds"]),
        ({"scheduledFor": 10**15}, ["scheduledFor must be 100000000000..999999999999999"]),
        ({"scheduledFor": 10**40}, ["scheduledFor must be 100000000000..999999999999999"]),
        ({"scheduledFor": -1}, ["scheduledFor must be 100000000000..999999999999999"]),
        ({"scheduledFor": DUE + 0.5}, ["scheduledFor must be an integer"]),
        ({"scheduledFor": True}, ["scheduledFor must be an integer"]),
        ({"scheduledFor": str(DUE)}, ["scheduledFor must be an integer"]),
        ({"scheduledFor": {}}, ["scheduledFor must not be an object"]),
        ({"scheduledFor": None, "delayMs": -1}, ["delayMs"]),
        ({"scheduledFor": None, "delayMs": 1.5}, ["delayMs must be an integer"]),
        ({"scheduledFor": None, "delayMs": True}, ["delayMs must be an integer"]),
        ({"scheduledFor": None, "delayMs": 10**15}, ["delayMs must be 0..900000000000000"]),
        ({"onConflict": "merge"}, ["onConflict must be one of error, keep, replace"]),
        ({"pool": ""}, ["pool"]),
        ({"pool": "a/b"}, ["pool must be 1 to 128 characters"]),
        ({"pool": True}, ["pool"]),
        ({"maxConcurrency": 1}, ["maxConcurrency", "pool"]),
        ({"pool": "p", "maxConcurrency": 0}, ["maxConcurrency must be 1..10000"]),
        ({"pool": "p", "maxConcurrency": True}, ["maxConcurrency must be an integer"]),
        ({"priority": 10}, ["priority must be -9..9"]),
        ({"priority": "high"}, ["priority must be an integer"]),
        ({"timeoutMs": 999}, ["timeoutMs must be 1000..3600000"]),
        ({"expiresAt": 5}, ["expiresAt looks like seconds"]),
        ({"expiresAt": 1_000_000_000_000}, ["expiresAt must be after the due instant", "never run"]),
        ({"shardKey": 5}, ["shardKey"]),
        ({"labels": "x"}, ["labels must be a list"]),
        ({"labels": ["x"] * 21}, ["labels", "20"]),
        ({"labels": ["x", "y z"]}, ["labels[1]"]),
        ({"labels": [["x"]]}, ["labels[0] must not be an array"]),
        ({"retry": 3}, ["retry must be an object"]),
        ({"retry": {"maxRetries": 101}}, ["retry.maxRetries must be 0..100"]),
        ({"retry": {"maxRetries": True}}, ["retry.maxRetries must be an integer"]),
        ({"retry": {"baseMs": -1}}, ["retry.baseMs"]),
        ({"retry": {"jitter": 2}}, ["retry.jitter must be 0..1"]),
        ({"retry": {"backoff": "fibonacci"}}, ["retry.backoff must be one of"]),
        ({"retry": {"tries": 1}}, ["unknown field 'retry.tries'"]),
        ({"function_path": "p"}, ["unknown field 'function_path'"]),
        ({"x" * 500: 1}, ["unknown field 'xxx", "..."]),
        ({"queue": "a,b"}, ["queue must be 1 to 128 characters"]),
        ({"queue": ["mail"]}, ["queue must not be an array"]),
        ({"keepResultMs": 999}, ["keepResultMs must be 1000..604800000"]),
        ({"then": {"functionPath": "q"}}, ["then must not be an object"]),
        ({"then": [{"functionPath": "q"}, 5]}, ["then[1] must be an object"]),
        ({"then": [{"functionPath": "q", "id": "a"}]}, ["unknown field 'then[0].id'"]),
        ({"then": [{"functionPath": "q", "scheduledFor": DUE}]}, ["unknown field 'then[0].scheduledFor'"]),
        ({"then": [{"functionPath": "q", "queue": "a/b"}]}, ["then[0]: queue must be"]),
        ({"then": [{"functionPath": "q", "delayMs": -1}]}, ["then[0]: delayMs must be"]),
        ({"then": [{"functionPath": "q"}, {}]}, ["then[1]: give exactly one of functionPath and workflow"]),
        ({"then": [{"functionPath": "q", "then": [{"workflow": ""}]}]}, ["then[0]: then[0]: workflow must be"]),
        ({"then": [{"functionPath": "q", "then": [{"colour": 1}]}]}, ["unknown field 'then[0].then[0].colour'"]),
        ({"then": [{"functionPath": "q", "retry": {"maxRetries": 101}}]}, ["then[0]: retry.maxRetries must be 0..100"]),
        ({"then": [{"functionPath": "q"}] * 21}, ["then starts 21 jobs, at most 20 are allowed"]),
        ({"then": [nested(60)]}, ["then is nested deeper than 50 levels"]),
        ({"then": [nested(200)]}, ["then is nested deeper than 50 levels"]),
        ({"then": [{"functionPath": "q", "then": [{"functionPath": "r"}] * 20}] * 5}, ["the chain has 105 jobs"]),
        ({"then": [{"functionPath": "q", "instanceName": "other"}]}, ["instanceName"]),
        ({"then": [{"functionPath": "q", "maxConcurrency": 2}]}, ["then[0]: maxConcurrency", "give pool"]),
        ({"instanceName": "other"}, ["instanceName must be the instance that the path addresses, 'default'"]),
        ({"instanceName": 5}, ["instanceName"]),
    ],
)  # fmt: skip
async def test_a_wrong_member_is_named_and_nothing_is_kept(
    http_client: HttpClient, members: dict[str, Any], words: list[str]
) -> None:
    body = {"functionPath": "p", "scheduledFor": DUE, **members}
    refused(await http_client.post("/schedule", body), 400, "INVALID_INPUT", *words)
    assert (await http_client.get("/status")).json()["backlog"] == 0


async def test_a_whole_number_may_be_written_as_a_float(http_client: HttpClient) -> None:
    """In JSON 5.0 is an integer, and some clients write large ones with an exponent. Schemathesis found it."""
    body = b"""{"functionPath": "p", "id": "a", "scheduledFor": 1.9e12, "pool": "p", "maxConcurrency": 2.0,
        "priority": -1.0, "timeoutMs": 2e3, "expiresAt": 1900000000001.0, "retry": {"maxRetries": 1.0}}"""
    answer = await http_client.client.post("/schedule", content=body, headers={"content-type": "application/json"})
    assert answer.json() == {"id": "a", "scheduledFor": DUE, "created": True}
    record = (await http_client.get("/get?id=a")).json()["record"]
    assert (record["priority"], record["timeoutMs"], record["expiresAt"]) == (-1, 2_000, DUE + 1)
    assert (record["maxConcurrency"], record["retry"]["maxRetries"]) == (2, 1)
    moved = await http_client.post("/reschedule", {"id": "a", "scheduledFor": DUE - 2.0})
    assert moved.json()["scheduledFor"] == DUE - 2
    for infinite in (b"1e999", b"-1e999"):
        body = b'{"functionPath": "p", "delayMs": ' + infinite + b"}"
        answer = await http_client.client.post("/schedule", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("id", ["", "-a", "a b", "x" * 65, "é", "__system", 5, True])
async def test_a_wrong_id_is_refused_never_replaced(http_client: HttpClient, id: Any) -> None:
    body = {"functionPath": "p", "scheduledFor": DUE, "id": id}
    refused(await http_client.post("/schedule", body), 400, "INVALID_SCHEDULE_ID", "id")


async def test_args_deeper_than_64_levels_are_refused(http_client: HttpClient) -> None:
    for depth in (66, 200, *range(800, 1_020), 5_000, 100_000):
        body = b'{"functionPath": "p", "delayMs": 0, "args": ' + b"[" * depth + b"]" * depth + b"}"
        answer = await http_client.client.post("/schedule", content=body, headers={"content-type": "application/json"})
        refused(answer, 400, "INVALID_INPUT", "64 levels")


async def test_typed_args_must_say_something_and_ride_along_as_they_came(http_client: HttpClient) -> None:
    typed = {"when": {"$tocsin": "date", "v": "2027-01-01"}}
    await http_client.schedule(id="a", args=typed)
    assert (await http_client.get("/get?id=a")).json()["record"]["args"] == typed
    for wrong in ({"$tocsin": "date", "v": "2027-02-29"}, {"$tocsin": "mine"}):
        body = {"functionPath": "p", "id": "b", "scheduledFor": DUE, "args": {"x": [wrong]}}
        refused(await http_client.post("/schedule", body), 400, "INVALID_INPUT", "args.x[0]", "$tocsin")
    assert (await http_client.get("/get?id=b")).json() == {}


async def test_args_that_cannot_be_read_again_are_refused_each_for_itself(http_client: HttpClient) -> None:
    args = b"[" + b"[]," * 70 + b"1e999]"
    job = b'{"functionPath": "p", "delayMs": 99999, "args": ' + args + b"}"
    headers = {"content-type": "application/json"}
    refused(await http_client.client.post("/schedule", content=job, headers=headers), 400, "INVALID_INPUT", "args")
    good = b'{"functionPath": "p", "delayMs": 99999, "id": "good"}'
    batch = b'{"jobs": [' + job + b"," + good + b"]}"
    results = (await http_client.client.post("/schedule/batch", content=batch, headers=headers)).json()["results"]
    assert (results[0]["error"]["code"], results[1]["id"]) == ("INVALID_INPUT", "good")


async def test_null_is_the_same_as_left_out(http_client: HttpClient) -> None:
    names = ("id", "onConflict", "pool", "retry", "priority", "labels", "queue", "then", "instanceName", "workflow")
    nulls: dict[str, Any] = dict.fromkeys((*names, "delayMs"))
    answer = await http_client.post("/schedule", {**nulls, "functionPath": "p", "scheduledFor": DUE})
    assert answer.status_code == 200, answer.text


async def test_without_an_origin_a_job_is_refused_as_a_fault_of_the_server() -> None:
    async with open_http_client(origin=None) as http_client:
        answer = await http_client.post("/schedule", {"functionPath": "p", "delayMs": 0})
        refused(answer, 500, "ORIGIN_NOT_CONFIGURED", "TOCSIN_ORIGIN_URL")


# ---- /schedule/batch -----------------------------------------------------------------------------


async def test_a_batch_answers_each_job_in_order_and_keeps_the_good_ones(http_client_per_store: HttpClient) -> None:
    await http_client_per_store.schedule(id="taken")
    jobs: list[Any] = [
        {"functionPath": "p", "scheduledFor": DUE, "id": "a"},
        {"functionPath": "p", "scheduledFor": DUE, "id": "taken"},
        {"functionPath": "p", "scheduledFor": 5},
        {"functionPath": "p", "scheduledFor": DUE, "colour": "red"},
        {"functionPath": "p", "scheduledFor": DUE, "instanceName": "other"},
        5,
        {"functionPath": "p", "scheduledFor": DUE, "id": "a"},
        {"functionPath": "p", "scheduledFor": DUE, "id": "b", "args": [1]},
    ]
    answer = await http_client_per_store.post("/schedule/batch", {"jobs": jobs})
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert [one.get("id") or one["error"]["code"] for one in results] == [
        "a", "DUPLICATE_SCHEDULE_ID", "INVALID_INPUT", "INVALID_INPUT", "INVALID_INPUT", "INVALID_INPUT",
        "DUPLICATE_SCHEDULE_ID", "b",
    ]  # fmt: skip
    assert "scheduledFor looks like seconds" in results[2]["error"]["message"]
    assert "'colour'" in results[3]["error"]["message"]
    assert results[5]["error"]["message"] == "the job must be an object, not an int"
    listed = (await http_client_per_store.get("/list?order=id")).json()["records"]
    assert [one["id"] for one in listed] == ["a", "b", "taken"]


async def test_a_batch_is_one_commit(http_client: HttpClient) -> None:
    await http_client.schedule()
    before = http_client.host.runtime.provider.stats()
    jobs = [{"functionPath": "p", "scheduledFor": DUE, "id": f"j{n}"} for n in range(1_000)]
    answer = await http_client.post("/schedule/batch", {"jobs": jobs})
    assert [one["id"] for one in answer.json()["results"]] == [job["id"] for job in jobs]
    assert http_client.host.runtime.provider.stats().batches - before.batches == 1


async def test_the_loop_goes_on_while_a_large_batch_is_checked(http_client: HttpClient) -> None:
    """Leases are renewed and callbacks end meanwhile."""
    args = "[" + ",".join(["[]"] * 22_000) + "]"
    body = b'{"jobs": [%b]}' % b",".join([b'{"functionPath": "p", "delayMs": 60000, "args": %b}' % args.encode()] * 20)
    asking = asyncio.create_task(
        http_client.client.post("/schedule/batch", content=body, headers={"content-type": "application/json"})
    )
    turns = 0
    while not asking.done():
        turns += 1
        await asyncio.sleep(0)
    batches = http_client.host.runtime.provider.stats().batches
    assert len((await asking).json()["results"]) == 20
    idle = asyncio.create_task(
        http_client.post("/schedule/batch", {"jobs": [{"functionPath": "p", "delayMs": 60_000}] * 20})
    )
    fewer = 0
    while not idle.done():
        fewer += 1
        await asyncio.sleep(0)
    assert turns >= fewer + 19
    assert http_client.host.runtime.provider.stats().batches - batches == 1


async def test_an_empty_batch_is_answered_and_creates_nothing(http_client: HttpClient) -> None:
    answer = await http_client.post("/i/never/schedule/batch", {"jobs": []})
    assert (answer.status_code, answer.json()) == (200, {"results": []})
    assert not await http_client.host.runtime.provider.exists("scheduler/never")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["jobs is missing"]),
        ({"jobs": None}, ["jobs must be an array"]),
        ({"jobs": {}}, ["jobs must be an array, not an object"]),
        ({"jobs": [{}] * 1_001}, ["jobs holds more than 1000"]),
        ({"jobs": [], "dryRun": True}, ["unknown field 'dryRun'"]),
        ({"jobs": [], "instanceName": "other"}, ["instanceName"]),
    ],
)
async def test_a_wrong_batch_is_refused_as_a_whole(http_client: HttpClient, body: Any, words: list[str]) -> None:
    refused(await http_client.post("/schedule/batch", body), 400, "INVALID_INPUT", *words)


# ---- /cancel -------------------------------------------------------------------------------------


async def test_cancel_removes_a_job_once_and_frees_its_id(http_client_per_store: HttpClient) -> None:
    await http_client_per_store.schedule(id="a")
    assert (await http_client_per_store.post("/cancel", {"id": "a"})).json() == {"cancelled": True, "wasRunning": False}
    assert (await http_client_per_store.get("/get?id=a")).json() == {}
    assert (await http_client_per_store.post("/cancel", {"id": "a"})).json() == {
        "cancelled": False,
        "wasRunning": False,
    }
    await http_client_per_store.schedule(id="a")


async def test_cancel_in_an_instance_that_never_was_does_not_create_it(http_client: HttpClient) -> None:
    answer = await http_client.post("/i/never/cancel", {"id": "a"})
    assert answer.json() == {"cancelled": False, "wasRunning": False}
    assert not await http_client.host.runtime.provider.exists("scheduler/never")


@pytest.mark.parametrize("route", ["/cancel", "/dead/retry", "/dead/cancel"])
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({}, "INVALID_INPUT", ["id is missing"]),
        ({"id": None}, "INVALID_INPUT", ["id is missing"]),
        ({"id": ""}, "INVALID_INPUT", ["id is missing"]),
        ({"id": "a b"}, "INVALID_SCHEDULE_ID", ["id must match"]),
        ({"id": 7}, "INVALID_SCHEDULE_ID", ["id must match"]),
        ({"id": ["a"]}, "INVALID_INPUT", ["id must not be an array"]),
        ({"id": "a", "all": True}, "INVALID_INPUT", ["unknown field 'all'"]),
        ({"id": "a", "instanceName": "other"}, "INVALID_INPUT", ["instanceName"]),
        ([], "INVALID_INPUT", ["the body must be an object, not an array"]),
    ],
)
async def test_routes_of_one_job_refuse_a_wrong_body(
    http_client: HttpClient, route: str, body: Any, code: str, words: list[str]
) -> None:
    refused(await http_client.post(route, body), 400, code, *words)
