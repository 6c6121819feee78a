"""`/export`, `/import` and `/seal` over HTTP: what streams, who may, and what is refused."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.http_client import DUE, HttpClient, client_of, refused
from tocsin import Client
from tocsin.actors.http import crowd
from tocsin.actors.http.examples import EXAMPLES
from tocsin.errors import ConflictError, InstanceMovedError, NotFoundError

pytestmark = pytest.mark.anyio
JOB = {"functionPath": "p", "scheduledFor": DUE}
LINES = {"content-type": "application/x-ndjson"}


def client_at(http_client: HttpClient) -> Client:
    return Client("http://127.0.0.1", transport=httpx.ASGITransport(http_client.host.asgi(insecure=True)))


async def test_an_instance_goes_out_and_in_again(http_client_per_store: HttpClient, tmp_path: Path) -> None:
    http_client = http_client_per_store
    await http_client.schedule("/i/tenant-a", id="a", scheduledFor=DUE, args={"x": [1.50]})
    answer = await http_client.client.get("/i/tenant-a/export")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == LINES["content-type"]
    assert "tenant-a-" in answer.headers["content-disposition"]

    done = await http_client.client.post("/i/tenant-b/import?paused=true", content=answer.content, headers=LINES)

    assert done.status_code == 200, done.text
    assert done.json().keys() == EXAMPLES["import"].answer.keys()
    assert (done.json()["instance"], done.json()["source"], done.json()["jobs"]) == ("tenant-b", "tenant-a", 1)
    [found] = [one for one in (await http_client.client.get("/instances")).json()["instances"] if one["backlog"]][1:]
    assert (found["name"], found["paused"]) == ("tenant-b", True)
    record = (await http_client.client.get("/i/tenant-b/get?id=a")).json()["record"]
    assert record["args"] == {"x": [1.5]}
    state = (await http_client.client.get("/i/tenant-b/import")).json()
    assert state["imported"]["sha256"] == done.json()["sha256"]


async def test_clients_have_it_too(http_client: HttpClient, tmp_path: Path) -> None:
    await http_client.schedule("/i/tenant-a", id="a", scheduledFor=DUE)
    file = tmp_path / "a.jsonl"
    async with client_at(http_client) as client:
        out = await client.export_instance("tenant-a", file)
        into = await client.import_instance("tenant-b", file, same_jobs=True)
        assert (into.rows, into.sha256) == (out.rows, out.sha256)
        with pytest.raises(NotFoundError, match="no instance 'nobody'"):
            await client.export_instance("nobody", io.BytesIO())
        with pytest.raises(ConflictError, match="exists"):
            await client.import_instance("tenant-b", file)
        sealed = await client.seal("tenant-a", move="m", to="there")
        assert (sealed.move, sealed.sealed) == ("m", False)
        assert await client.unseal("tenant-a", move="m")
        assert not (await client.transfer_state("tenant-a")).move


async def test_callers_and_workers_of_an_instance_that_has_moved_are_told_the_new_place(
    http_client: HttpClient,
) -> None:
    await http_client.schedule("/i/tenant-a", id="a", scheduledFor=DUE, queue="q")
    to = "https://other.example"
    await http_client.client.put("/i/tenant-a/seal", json={"move": "m", "to": to})
    told = refused(await http_client.client.post("/i/tenant-a/schedule", json=JOB), 409, "INSTANCE_MOVING")
    assert told["movedTo"] == to
    await http_client.client.put("/i/tenant-a/seal", json={"move": "m", "to": to, "closed": True})

    for path, body in (
        ("/schedule", JOB),
        ("/cancel", {"id": "a"}),
        ("/queues/q/claim", {"waitMs": 20_000}),
        ("/complete", {"id": "a", "lease": "1.1.aaaaaaaaaaaaaaaaaaaaaaaa"}),
    ):
        answer = await http_client.client.post(f"/i/tenant-a{path}", json=body)
        assert refused(answer, 409, "INSTANCE_MOVED", "has moved to https://other.example")["movedTo"] == to
    batch = await http_client.client.post("/i/tenant-a/schedule/batch", json={"jobs": [JOB]})
    refused(batch, 409, "INSTANCE_MOVED")
    [listed] = (await http_client.client.get("/instances")).json()["instances"]
    assert listed["movedTo"] == to
    assert "movingTo" not in listed
    status = (await http_client.client.get("/i/tenant-a/status")).json()
    assert (status["movedTo"], status["reasons"][0]["code"]) == (to, "INSTANCE_MOVED")
    ready = await http_client.client.get("/readyz")
    assert (ready.status_code, ready.json()["reasons"]) == (200, ["INSTANCE_MOVED"])
    [last, *_] = (await http_client.client.get("/i/tenant-a/audit")).json()["actions"]
    assert (last["action"], last["by"]["via"], last["given"]["to"]) == ("seal", "http", to)

    async with client_at(http_client) as client:
        with pytest.raises(InstanceMovedError, match="use it there") as there:
            await client.scheduler("tenant-a").claim("q", wait=20)
        assert there.value.details["movedTo"] == to


async def test_only_admins_of_an_instance_may(http_client: HttpClient) -> None:
    tokens = ["ops:read+operate+schedule+work:secret-ops", "a:admin@tenant-a:secret-a"]
    async with client_of(http_client.host.asgi(tokens=tokens)) as client:
        for method, path in (
            ("GET", "export"),
            ("GET", "import"),
            ("POST", "import"),
            ("PUT", "seal"),
            ("DELETE", "seal"),
        ):
            for secret, words in (("ops", "needs the scope admin"), ("a", "does not reach")):
                answer = await client.request(
                    method, f"/i/tenant-b/{path}", headers={"authorization": f"Bearer secret-{secret}"}
                )
                assert words in refused(answer, 403, "FORBIDDEN")["message"]
            refused(await client.request(method, f"/i/tenant-b/{path}"), 401, "UNAUTHENTICATED")


async def test_what_is_wrong_with_a_request_is_said(http_client: HttpClient) -> None:
    client = http_client.client
    refused(await client.post("/import", content=b"", headers=LINES), 400, "INVALID_INPUT", "empty")
    refused(await client.post("/import", content=b"{}\n", headers=LINES), 400, "INVALID_INPUT", "not an export")
    refused(await client.post("/import", content=b"{}"), 415, "UNSUPPORTED_MEDIA_TYPE", "x-ndjson")
    refused(await client.post("/import?paused=maybe", content=b"", headers=LINES), 400, "INVALID_INPUT", "paused")
    refused(await client.put("/seal", json={"move": "a/b", "to": "x"}), 400, "INVALID_INPUT", "move")
    refused(await client.put("/seal", json={"move": "a", "to": ""}), 400, "INVALID_INPUT", "to must")
    refused(await client.put("/seal", json={"move": "a", "to": "x"}), 404, "NOT_FOUND", "no instance")
    assert (await client.delete("/seal?move=a")).json() == {"stays": False}
    assert (await client.get("/instances")).json()["instances"] == []


async def test_a_body_that_does_not_end_leaves_nothing(http_client: HttpClient, monkeypatch: Any) -> None:
    await http_client.schedule("/i/tenant-a", id="a", scheduledFor=DUE)
    text = (await http_client.client.get("/i/tenant-a/export")).content
    monkeypatch.setattr(crowd, "BODY_S", 0.05)

    async def stalls() -> AsyncIterator[bytes]:
        yield text[:-50]
        await asyncio.get_running_loop().create_future()

    async with client_at(http_client) as client:
        answer = await http_client.client.post("/i/tenant-b/import", content=stalls(), headers=LINES)
        refused(answer, 408, "REQUEST_TIMEOUT")
        assert not (await client.transfer_state("tenant-b")).exists
