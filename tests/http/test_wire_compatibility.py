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
    assert record["retry"] == {"maxRetries": 3, "backoff": "linear", "baseMs": 1_000.5, "maxMs": 60_000}
    page = (await face.get(f"{place}/list")).json()
    assert (page["records"], page["truncated"], "cursor" in page) == ([record], False, False)
    assert (await face.post(f"{place}/cancel", {"id": "job-1"})).json()["cancelled"] is True
    assert (await face.get(f"{place}/get", params={"id": "job-1"})).json() == {}


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
