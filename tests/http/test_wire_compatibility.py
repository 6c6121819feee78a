"""Requests as the client of the older system sends them (seed 001, sections 1 and 6) work unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.http_client import DUE, HttpClient, refused

pytestmark = pytest.mark.anyio


def run_at(instance: str = "default", **more: Any) -> dict[str, Any]:
    """What `runAt` sends: always an instance name, args in wire form, and options if given."""
    return {
        "args": {"invoice": 42},
        "functionPath": "invoices:send",
        "instanceName": instance,
        "scheduledFor": DUE,
        **more,
    }


@pytest.mark.parametrize(("place", "instance"), [("", "default"), ("/i/default", "default"), ("/i/eu", "eu")])
async def test_schedule_get_list_and_cancel(http_client: HttpClient, place: str, instance: str) -> None:
    retry = {"backoff": "linear", "baseMs": 1_000.5, "maxAttempts": 3, "maxMs": 60_000}
    body = run_at(instance, id="job-1", maxConcurrency=2, pool="stripe", retry=retry, shardKey="__root__")
    answer = (await http_client.post(f"{place}/schedule", body)).json()
    assert answer.items() >= {"id": "job-1", "scheduledFor": DUE}.items()
    record = (await http_client.get(f"{place}/get", params={"id": "job-1"})).json()["record"]
    assert record.items() >= {
        "id": "job-1", "functionPath": "invoices:send", "args": {"invoice": 42}, "scheduledFor": DUE,
        "pool": "stripe", "shardKey": "__root__",
    }.items()  # fmt: skip
    assert record["instanceName"] == instance
    assert record["retry"].items() >= retry.items() and "maxRetries" not in record["retry"]
    page = (await http_client.get(f"{place}/list")).json()
    assert (page["records"], page["truncated"], "cursor" in page) == ([record], False, False)
    assert (await http_client.post(f"{place}/cancel", {"id": "job-1"})).json()["cancelled"] is True
    assert (await http_client.get(f"{place}/get", params={"id": "job-1"})).json() == {}


@pytest.mark.parametrize(
    "retry",
    [
        {"maxAttempts": 5}, {"backoff": "exponential"}, {"baseMs": 30_000}, {"maxMs": 3_600_000},
        {"backoff": "linear", "baseMs": 0, "maxAttempts": 0, "maxMs": 0},
        {"backoff": "exponential", "baseMs": 30_000, "maxAttempts": 5, "maxMs": 3_600_000},
    ],
)  # fmt: skip
async def test_a_record_s_retry_says_what_was_sent_in_the_words_it_was_sent_in(
    http_client: HttpClient, retry: dict[str, Any]
) -> None:
    """Also where that is what goes without saying, in every place that shows the record, and fit to be sent again."""
    await http_client.schedule(**run_at(id="live", retry=retry))
    await http_client.schedule(id="gone", functionPath="answer:410", delayMs=0, retry=retry)
    await http_client.until("gone", "dead")
    shown = [
        (await http_client.get("/get", params={"id": "live"})).json()["record"],
        (await http_client.get("/get", params={"id": "gone"})).json()["record"],
        *(await http_client.get("/list")).json()["records"],
        *(await http_client.get("/dead")).json()["records"],
    ]
    assert len(shown) == 4
    for record in shown:
        assert record["retry"].items() >= retry.items()
        assert ("maxAttempts" in record["retry"]) == ("maxAttempts" in retry)
        assert record["instanceName"] == "default"
    again = await http_client.schedule(**run_at(id="again", retry=shown[0]["retry"]))
    assert (await http_client.get("/get", params={"id": again["id"]})).json()["record"]["retry"] == shown[0]["retry"]
    ours = {"maxRetries" if name == "maxAttempts" else name: value for name, value in retry.items()}
    kept = await http_client.schedule(**run_at(id="live", onConflict="keep", retry=ours))
    assert kept["identical"] is True, "the same, whatever the words"


async def test_a_record_without_a_retry_of_its_own_shows_none(http_client: HttpClient) -> None:
    await http_client.schedule(**run_at(id="live"))
    assert "retry" not in (await http_client.get("/get", params={"id": "live"})).json()["record"]


@pytest.mark.parametrize("words", [{"maxAttempts": 2}, {"maxRetries": 2}])
async def test_the_words_outlive_a_retry_from_the_dead_and_a_chain(
    http_client: HttpClient, words: dict[str, int]
) -> None:
    [word] = words
    then = [{"functionPath": "later", "delayMs": 9**9, "retry": words}]
    await http_client.schedule(id="a", functionPath="p", queue="q", delayMs=0, then=then, retry=words)
    [one] = (await http_client.post("/queues/q/claim", {"max": 1, "leaseMs": 9_000})).json()["jobs"]
    failed = {"id": "a", "lease": one["lease"], "ok": False, "retryable": False}
    assert (await http_client.post("/complete", failed)).status_code == 200
    await http_client.post("/dead/retry", {"id": "a"})
    assert word in (await http_client.get("/get", params={"id": "a"})).json()["record"]["retry"]
    [one] = (await http_client.post("/queues/q/claim", {"max": 1, "leaseMs": 9_000})).json()["jobs"]
    assert one["retry"] == {"maxRetries": 2}, "workers are ours"
    await http_client.post("/complete", {"id": "a", "lease": one["lease"]})
    [follower] = (await http_client.get("/list")).json()["records"]
    assert word in follower["retry"]


async def test_a_job_of_the_past_is_due_at_once(http_client: HttpClient) -> None:
    await http_client.schedule(**run_at(id="job-1", scheduledFor=100_000_000_000, shardKey="s"))
    await http_client.until("job-1", None)
    (body,) = http_client.receiver.bodies
    assert body.items() >= {
        "id": "job-1", "functionPath": "invoices:send", "args": {"invoice": 42}, "scheduledFor": 100_000_000_000,
        "instanceName": "default", "shardKey": "s", "attempt": 1,
    }.items()  # fmt: skip


async def test_a_workflow_is_scheduled_by_name(http_client: HttpClient) -> None:
    body = run_at(workflow="WF")
    del body["functionPath"]
    id = (await http_client.post("/schedule", body)).json()["id"]
    assert (await http_client.get("/get", params={"id": id})).json()["record"]["workflow"] == "WF"


async def test_args_left_out_are_an_empty_object(http_client: HttpClient) -> None:
    answer = await http_client.schedule()
    assert (await http_client.get("/get", params={"id": answer["id"]})).json()["record"]["args"] == {}


async def test_the_page_walk_of_the_client_ends(http_client: HttpClient) -> None:
    """It goes on while `truncated` and a cursor that is not empty; a repeated cursor is its error."""
    await http_client.post("/schedule/batch", {"jobs": [run_at(id=f"j{n}") for n in range(250)]})
    found, cursors = [], [""]
    while True:
        page = (await http_client.get("/list", params={"cursor": cursors[-1]} if cursors[-1] else {})).json()
        found += [record["id"] for record in page["records"]]
        if page["truncated"] is not True or not page.get("cursor"):
            break
        assert page["cursor"] not in cursors
        cursors.append(page["cursor"])
    assert len(found) == len(set(found)) == 250


async def test_dead_letters_are_listed_retried_and_dropped(http_client: HttpClient) -> None:
    await http_client.bury("a")
    (record,) = (await http_client.get("/dead")).json()["records"]
    assert record.items() >= {"id": "a", "functionPath": "answer:410"}.items()
    assert record["attempts"] >= 1
    assert (await http_client.post("/dead/retry", {"id": "a"})).json().items() >= {"id": "a", "retried": True}.items()
    await http_client.until("a", "dead")
    assert (await http_client.post("/dead/cancel", {"id": "a"})).json() == {"removed": True}
    assert (await http_client.post("/dead/retry", {"id": "a"})).json() == {"retried": False}


async def test_status_has_at_least_its_fields(http_client: HttpClient) -> None:
    await http_client.schedule(pool="stripe", maxConcurrency=2)
    status = (await http_client.get("/status")).json()
    assert status.keys() >= {"backlog", "inFlight", "pools"}
    assert status["pools"][0].keys() >= {"name", "inFlight", "maxConcurrency", "queued"}


async def test_the_error_envelope_has_code_and_message(http_client: HttpClient) -> None:
    await http_client.schedule(id="a")
    error = refused(await http_client.post("/schedule", run_at(id="a")), 409, "DUPLICATE_SCHEDULE_ID")
    assert isinstance(error["message"], str)
    refused(await http_client.get("/get"), 400, "INVALID_INPUT")
    refused(await http_client.post("/schedule", run_at(id="not an id")), 400, "INVALID_SCHEDULE_ID")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (run_at("eu"), ["instanceName", "'default'"]),
        (run_at(retry={"maxAttempts": 1, "maxRetries": 1}), ["retry.maxAttempts", "retry.maxRetries"]),
        (run_at(retry={"maxAttempts": 1.5}), ["retry.maxRetries"]),
        (run_at(retry={"maxAttempts": True}), ["retry.maxRetries"]),
        (run_at(scheduledFor=1), ["looks like seconds"]),
    ],
)
async def test_what_contradicts_itself_is_refused(
    http_client: HttpClient, body: dict[str, Any], words: list[str]
) -> None:
    refused(await http_client.post("/schedule", body), 400, "INVALID_INPUT", *words)


# ---- createScheduler: every call, in its exact shape ----------------------------------------------


async def test_run_after_is_sent_as_an_instant_and_answered_with_the_id(http_client: HttpClient) -> None:
    """The client adds the delay to its own clock, and gives its caller the id alone."""
    answer = (await http_client.post("/schedule", run_at(scheduledFor=DUE + 5_000))).json()
    assert isinstance(answer["id"], str)
    assert answer["scheduledFor"] == DUE + 5_000


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"id": "job-1"},
        {"pool": "stripe"},
        {"pool": "stripe", "maxConcurrency": 6},
        {"shardKey": "__root__"},
        {"retry": {"maxAttempts": 1}},
        {"retry": {"backoff": "exponential", "baseMs": 0, "maxAttempts": 5, "maxMs": 930_000}},
        {"retry": {"backoff": "linear", "baseMs": 0.5}},
        {"retry": {}},
        {"id": "_x-1", "pool": "p", "maxConcurrency": 1, "retry": {"maxAttempts": 100}, "shardKey": "tenant/7"},
    ],
)
@pytest.mark.parametrize("target", [{"functionPath": "invoices:send"}, {"workflow": "INVOICE_WORKFLOW"}])
async def test_every_option_of_the_client_is_taken(
    http_client: HttpClient, more: dict[str, Any], target: dict[str, str]
) -> None:
    body = {"args": {}, "instanceName": "default", "scheduledFor": DUE, **target, **more}
    answer = await http_client.post("/schedule", body)
    assert answer.status_code == 200, answer.text
    record = (await http_client.get("/get", params={"id": answer.json()["id"]})).json()["record"]
    assert record.items() >= {**target, **{name: one for name, one in more.items() if name != "retry"}}.items()


async def test_args_in_the_wire_form_of_the_older_system_come_back_and_arrive_as_they_were(
    http_client: HttpClient,
) -> None:
    args = {"when": ["$lunora.wire$", "date", 1_900_000_000_000], "n": ["$lunora.wire$", "bigint", "9" * 40]}
    await http_client.schedule(**run_at(id="a", args=args))
    assert (await http_client.get("/get?id=a")).json()["record"]["args"] == args
    await http_client.schedule(**run_at(id="b", args=args, scheduledFor=100_000_000_000))
    await http_client.until("b", None)
    assert http_client.receiver.bodies[0]["args"] == args


async def test_get_and_cancel_of_what_is_not_there(http_client: HttpClient) -> None:
    assert (await http_client.get("/get", params={"id": "nobody"})).json() == {}
    assert (await http_client.post("/cancel", {"id": "nobody"})).json()["cancelled"] is False


async def test_dead_retry_answers_hit_and_miss_as_the_client_reads_them(http_client: HttpClient) -> None:
    await http_client.bury("a")
    hit = (await http_client.post("/dead/retry", {"id": "a"})).json()
    assert hit.keys() >= {"id", "retried", "scheduledFor"}
    assert (hit["id"], hit["retried"]) == ("a", True)
    assert (await http_client.post("/dead/retry", {"id": "nobody"})).json() == {"retried": False}
    assert (await http_client.post("/dead/cancel", {"id": "nobody"})).json() == {"removed": False}


async def test_the_page_walk_over_dead_letters_ends(http_client: HttpClient) -> None:
    ids = [f"d{n}" for n in range(5)]
    for id in ids:
        await http_client.bury(id)
    first = (await http_client.get("/dead", params={"limit": 2})).json()
    assert first["truncated"] is True
    rest = (await http_client.get("/dead", params={"cursor": first["cursor"], "limit": 3})).json()
    assert [one["id"] for one in first["records"] + rest["records"]] == ids
    assert (rest["truncated"], "cursor" in rest) == (False, False)
    assert (await http_client.get("/i/empty/dead")).json() == {"records": [], "truncated": False}


# ---- createWorkpool and createSchedulerHost ------------------------------------------------------


async def test_a_workpool_enqueues_looks_and_cancels(http_client: HttpClient) -> None:
    """It sends its name as pool and its cap with every job, and asks for /pool?name=."""
    for n in range(3):
        job = run_at(
            "pools", pool="mail", maxConcurrency=2, scheduledFor=DUE + n, shardKey="s", retry={"maxAttempts": 2}
        )
        answer = (await http_client.post("/i/pools/schedule", job)).json()
        assert answer.keys() >= {"id", "scheduledFor"}
    status = (await http_client.get("/i/pools/pool", params={"name": "mail"})).json()
    assert status.items() >= {"inFlight": 0, "maxConcurrency": 2, "queued": 3}.items()
    assert (await http_client.post("/i/pools/cancel", {"id": answer["id"]})).json()["cancelled"] is True
    assert (await http_client.get("/i/pools/pool", params={"name": "mail"})).json()["queued"] == 2
    [pool] = (await http_client.get("/i/pools/status")).json()["pools"]
    assert pool.items() >= {"name": "mail", "inFlight": 0, "maxConcurrency": 2, "queued": 2}.items()


async def test_a_pool_nobody_has_named_is_empty_with_a_cap_of_one(http_client: HttpClient) -> None:
    status = (await http_client.get("/pool", params={"name": "nobody"})).json()
    assert status.items() >= {"inFlight": 0, "maxConcurrency": 1, "queued": 0}.items()


async def test_a_host_adapter_lists_what_it_reads_of_live_and_dead_jobs(http_client: HttpClient) -> None:
    """It reads `attempts` (0 if left out), target, id and scheduledFor, and requeues by /dead/retry."""
    await http_client.schedule(**run_at(id="live"))
    await http_client.schedule(**{**run_at(id="flow", workflow="WF"), "functionPath": None})
    await http_client.bury("gone")
    for path, ids in (("/list", {"live", "flow"}), ("/dead", {"gone"})):
        records = (await http_client.get(path)).json()["records"]
        assert {one["id"] for one in records} == ids
        for one in records:
            assert ("functionPath" in one) != ("workflow" in one)
            assert isinstance(one["scheduledFor"], int)
            assert isinstance(one.get("attempts", 0), int)


async def test_errors_are_read_as_the_client_reads_them(http_client: HttpClient) -> None:
    """A status outside 2xx with `error.code` and `error.message` is raised again with all three."""
    for answer, status, code in (
        (await http_client.post("/schedule", run_at(id="bad id")), 400, "INVALID_SCHEDULE_ID"),
        (await http_client.post("/schedule", {**run_at(), "scheduledFor": 10**16}), 400, "INVALID_INPUT"),
        (await http_client.post("/schedule", {**run_at(), "scheduledFor": 1.5}), 400, "INVALID_INPUT"),
        (await http_client.post("/schedule", {**run_at(), "functionPath": None}), 400, "INVALID_INPUT"),
        (await http_client.post("/cancel", {}), 400, "INVALID_INPUT"),
        (await http_client.get("/pool"), 400, "INVALID_INPUT"),
        (await http_client.get("/nothing"), 404, "NOT_FOUND"),
    ):
        refused(answer, status, code)
