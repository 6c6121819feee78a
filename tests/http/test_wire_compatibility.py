"""Requests as the client of the older system sends them (seed 001, sections 1 and 6) work unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.face import DUE, Face, refused

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
async def test_schedule_get_list_and_cancel(face: Face, place: str, instance: str) -> None:
    retry = {"backoff": "linear", "baseMs": 1_000.5, "maxAttempts": 3, "maxMs": 60_000}
    body = run_at(instance, id="job-1", maxConcurrency=2, pool="stripe", retry=retry, shardKey="__root__")
    answer = (await face.post(f"{place}/schedule", body)).json()
    assert answer.items() >= {"id": "job-1", "scheduledFor": DUE}.items()
    record = (await face.get(f"{place}/get", params={"id": "job-1"})).json()["record"]
    assert record.items() >= {
        "id": "job-1", "functionPath": "invoices:send", "args": {"invoice": 42}, "scheduledFor": DUE,
        "pool": "stripe", "shardKey": "__root__",
    }.items()  # fmt: skip
    assert record["instanceName"] == instance
    assert record["retry"].items() >= retry.items() and "maxRetries" not in record["retry"]
    page = (await face.get(f"{place}/list")).json()
    assert (page["records"], page["truncated"], "cursor" in page) == ([record], False, False)
    assert (await face.post(f"{place}/cancel", {"id": "job-1"})).json()["cancelled"] is True
    assert (await face.get(f"{place}/get", params={"id": "job-1"})).json() == {}


@pytest.mark.parametrize(
    "retry",
    [
        {"maxAttempts": 5}, {"backoff": "exponential"}, {"baseMs": 30_000}, {"maxMs": 3_600_000},
        {"backoff": "linear", "baseMs": 0, "maxAttempts": 0, "maxMs": 0},
        {"backoff": "exponential", "baseMs": 30_000, "maxAttempts": 5, "maxMs": 3_600_000},
    ],
)  # fmt: skip
async def test_a_record_s_retry_says_what_was_sent_in_the_words_it_was_sent_in(
    face: Face, retry: dict[str, Any]
) -> None:
    """Also where that is what goes without saying, in every place that shows the record, and fit to be sent again."""
    await face.schedule(**run_at(id="live", retry=retry))
    await face.schedule(id="gone", functionPath="answer:410", delayMs=0, retry=retry)
    await face.until("gone", "dead")
    shown = [
        (await face.get("/get", params={"id": "live"})).json()["record"],
        (await face.get("/get", params={"id": "gone"})).json()["record"],
        *(await face.get("/list")).json()["records"],
        *(await face.get("/dead")).json()["records"],
    ]
    assert len(shown) == 4
    for record in shown:
        assert record["retry"].items() >= retry.items()
        assert ("maxAttempts" in record["retry"]) == ("maxAttempts" in retry)
        assert record["instanceName"] == "default"
    again = await face.schedule(**run_at(id="again", retry=shown[0]["retry"]))
    assert (await face.get("/get", params={"id": again["id"]})).json()["record"]["retry"] == shown[0]["retry"]
    ours = {"maxRetries" if name == "maxAttempts" else name: value for name, value in retry.items()}
    kept = await face.schedule(**run_at(id="live", onConflict="keep", retry=ours))
    assert kept["identical"] is True, "the same, whatever the words"


async def test_a_record_without_a_retry_of_its_own_shows_none(face: Face) -> None:
    await face.schedule(**run_at(id="live"))
    assert "retry" not in (await face.get("/get", params={"id": "live"})).json()["record"]


@pytest.mark.parametrize("words", [{"maxAttempts": 2}, {"maxRetries": 2}])
async def test_the_words_outlive_a_retry_from_the_dead_and_a_chain(face: Face, words: dict[str, int]) -> None:
    [word] = words
    then = [{"functionPath": "later", "delayMs": 9**9, "retry": words}]
    await face.schedule(id="a", functionPath="p", queue="q", delayMs=0, then=then, retry=words)
    [one] = (await face.post("/queues/q/claim", {"max": 1, "leaseMs": 9_000})).json()["jobs"]
    failed = {"id": "a", "lease": one["lease"], "ok": False, "retryable": False}
    assert (await face.post("/complete", failed)).status_code == 200
    await face.post("/dead/retry", {"id": "a"})
    assert word in (await face.get("/get", params={"id": "a"})).json()["record"]["retry"]
    [one] = (await face.post("/queues/q/claim", {"max": 1, "leaseMs": 9_000})).json()["jobs"]
    assert one["retry"] == {"maxRetries": 2}, "workers are ours"
    await face.post("/complete", {"id": "a", "lease": one["lease"]})
    [follower] = (await face.get("/list")).json()["records"]
    assert word in follower["retry"]


async def test_a_job_of_the_past_is_due_at_once(face: Face) -> None:
    await face.schedule(**run_at(id="job-1", scheduledFor=100_000_000_000, shardKey="s"))
    await face.until("job-1", None)
    (body,) = face.receiver.bodies
    assert body.items() >= {
        "id": "job-1", "functionPath": "invoices:send", "args": {"invoice": 42}, "scheduledFor": 100_000_000_000,
        "instanceName": "default", "shardKey": "s", "attempt": 1,
    }.items()  # fmt: skip


async def test_a_workflow_is_scheduled_by_name(face: Face) -> None:
    body = run_at(workflow="WF")
    del body["functionPath"]
    id = (await face.post("/schedule", body)).json()["id"]
    assert (await face.get("/get", params={"id": id})).json()["record"]["workflow"] == "WF"


async def test_args_left_out_are_an_empty_object(face: Face) -> None:
    answer = await face.schedule()
    assert (await face.get("/get", params={"id": answer["id"]})).json()["record"]["args"] == {}


async def test_the_page_walk_of_the_client_ends(face: Face) -> None:
    """It goes on while `truncated` and a cursor that is not empty; a repeated cursor is its error."""
    await face.post("/schedule/batch", {"jobs": [run_at(id=f"j{n}") for n in range(250)]})
    found, cursors = [], [""]
    while True:
        page = (await face.get("/list", params={"cursor": cursors[-1]} if cursors[-1] else {})).json()
        found += [record["id"] for record in page["records"]]
        if page["truncated"] is not True or not page.get("cursor"):
            break
        assert page["cursor"] not in cursors
        cursors.append(page["cursor"])
    assert len(found) == len(set(found)) == 250


async def test_dead_letters_are_listed_retried_and_dropped(face: Face) -> None:
    await face.bury("a")
    (record,) = (await face.get("/dead")).json()["records"]
    assert record.items() >= {"id": "a", "functionPath": "answer:410"}.items()
    assert record["attempts"] >= 1
    assert (await face.post("/dead/retry", {"id": "a"})).json().items() >= {"id": "a", "retried": True}.items()
    await face.until("a", "dead")
    assert (await face.post("/dead/cancel", {"id": "a"})).json() == {"removed": True}
    assert (await face.post("/dead/retry", {"id": "a"})).json() == {"retried": False}


async def test_status_has_at_least_its_fields(face: Face) -> None:
    await face.schedule(pool="stripe", maxConcurrency=2)
    status = (await face.get("/status")).json()
    assert status.keys() >= {"backlog", "inFlight", "pools"}
    assert status["pools"][0].keys() >= {"name", "inFlight", "maxConcurrency", "queued"}


async def test_the_error_envelope_has_code_and_message(face: Face) -> None:
    await face.schedule(id="a")
    error = refused(await face.post("/schedule", run_at(id="a")), 409, "DUPLICATE_SCHEDULE_ID")
    assert isinstance(error["message"], str)
    refused(await face.get("/get"), 400, "INVALID_INPUT")
    refused(await face.post("/schedule", run_at(id="not an id")), 400, "INVALID_SCHEDULE_ID")


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
async def test_what_contradicts_itself_is_refused(face: Face, body: dict[str, Any], words: list[str]) -> None:
    refused(await face.post("/schedule", body), 400, "INVALID_INPUT", *words)


# ---- createScheduler: every call, in its exact shape ----------------------------------------------


async def test_run_after_is_sent_as_an_instant_and_answered_with_the_id(face: Face) -> None:
    """The client adds the delay to its own clock, and gives its caller the id alone."""
    answer = (await face.post("/schedule", run_at(scheduledFor=DUE + 5_000))).json()
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
async def test_every_option_of_the_client_is_taken(face: Face, more: dict[str, Any], target: dict[str, str]) -> None:
    body = {"args": {}, "instanceName": "default", "scheduledFor": DUE, **target, **more}
    answer = await face.post("/schedule", body)
    assert answer.status_code == 200, answer.text
    record = (await face.get("/get", params={"id": answer.json()["id"]})).json()["record"]
    assert record.items() >= {**target, **{name: one for name, one in more.items() if name != "retry"}}.items()


async def test_args_in_the_wire_form_of_the_older_system_come_back_and_arrive_as_they_were(face: Face) -> None:
    args = {"when": ["$lunora.wire$", "date", 1_900_000_000_000], "n": ["$lunora.wire$", "bigint", "9" * 40]}
    await face.schedule(**run_at(id="a", args=args))
    assert (await face.get("/get?id=a")).json()["record"]["args"] == args
    await face.schedule(**run_at(id="b", args=args, scheduledFor=100_000_000_000))
    await face.until("b", None)
    assert face.receiver.bodies[0]["args"] == args


async def test_get_and_cancel_of_what_is_not_there(face: Face) -> None:
    assert (await face.get("/get", params={"id": "nobody"})).json() == {}
    assert (await face.post("/cancel", {"id": "nobody"})).json()["cancelled"] is False


async def test_dead_retry_answers_hit_and_miss_as_the_client_reads_them(face: Face) -> None:
    await face.bury("a")
    hit = (await face.post("/dead/retry", {"id": "a"})).json()
    assert hit.keys() >= {"id", "retried", "scheduledFor"}
    assert (hit["id"], hit["retried"]) == ("a", True)
    assert (await face.post("/dead/retry", {"id": "nobody"})).json() == {"retried": False}
    assert (await face.post("/dead/cancel", {"id": "nobody"})).json() == {"removed": False}


async def test_the_page_walk_over_dead_letters_ends(face: Face) -> None:
    ids = [f"d{n}" for n in range(5)]
    for id in ids:
        await face.bury(id)
    first = (await face.get("/dead", params={"limit": 2})).json()
    assert first["truncated"] is True
    rest = (await face.get("/dead", params={"cursor": first["cursor"], "limit": 3})).json()
    assert [one["id"] for one in first["records"] + rest["records"]] == ids
    assert (rest["truncated"], "cursor" in rest) == (False, False)
    assert (await face.get("/i/empty/dead")).json() == {"records": [], "truncated": False}


# ---- createWorkpool and createSchedulerHost ------------------------------------------------------


async def test_a_workpool_enqueues_looks_and_cancels(face: Face) -> None:
    """It sends its name as pool and its cap with every job, and asks for /pool?name=."""
    for n in range(3):
        job = run_at(
            "pools", pool="mail", maxConcurrency=2, scheduledFor=DUE + n, shardKey="s", retry={"maxAttempts": 2}
        )
        answer = (await face.post("/i/pools/schedule", job)).json()
        assert answer.keys() >= {"id", "scheduledFor"}
    status = (await face.get("/i/pools/pool", params={"name": "mail"})).json()
    assert status.items() >= {"inFlight": 0, "maxConcurrency": 2, "queued": 3}.items()
    assert (await face.post("/i/pools/cancel", {"id": answer["id"]})).json()["cancelled"] is True
    assert (await face.get("/i/pools/pool", params={"name": "mail"})).json()["queued"] == 2
    [pool] = (await face.get("/i/pools/status")).json()["pools"]
    assert pool.items() >= {"name": "mail", "inFlight": 0, "maxConcurrency": 2, "queued": 2}.items()


async def test_a_pool_nobody_has_named_is_empty_with_a_cap_of_one(face: Face) -> None:
    status = (await face.get("/pool", params={"name": "nobody"})).json()
    assert status.items() >= {"inFlight": 0, "maxConcurrency": 1, "queued": 0}.items()


async def test_a_host_adapter_lists_what_it_reads_of_live_and_dead_jobs(face: Face) -> None:
    """It reads `attempts` (0 if left out), target, id and scheduledFor, and requeues by /dead/retry."""
    await face.schedule(**run_at(id="live"))
    await face.schedule(**{**run_at(id="flow", workflow="WF"), "functionPath": None})
    await face.bury("gone")
    for path, ids in (("/list", {"live", "flow"}), ("/dead", {"gone"})):
        records = (await face.get(path)).json()["records"]
        assert {one["id"] for one in records} == ids
        for one in records:
            assert ("functionPath" in one) != ("workflow" in one)
            assert isinstance(one["scheduledFor"], int)
            assert isinstance(one.get("attempts", 0), int)


async def test_errors_are_read_as_the_client_reads_them(face: Face) -> None:
    """A status outside 2xx with `error.code` and `error.message` is raised again with all three."""
    for answer, status, code in (
        (await face.post("/schedule", run_at(id="bad id")), 400, "INVALID_SCHEDULE_ID"),
        (await face.post("/schedule", {**run_at(), "scheduledFor": 10**16}), 400, "INVALID_INPUT"),
        (await face.post("/schedule", {**run_at(), "scheduledFor": 1.5}), 400, "INVALID_INPUT"),
        (await face.post("/schedule", {**run_at(), "functionPath": None}), 400, "INVALID_INPUT"),
        (await face.post("/cancel", {}), 400, "INVALID_INPUT"),
        (await face.get("/pool"), 400, "INVALID_INPUT"),
        (await face.get("/nothing"), 404, "NOT_FOUND"),
    ):
        refused(answer, status, code)
