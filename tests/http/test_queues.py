"""Pulled work over HTTP: claims that wait, what a worker that hangs up gets, chains, results, and who may do what."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.http.http_client import DUE, HttpClient, client_of, open_http_client, refused
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http import Caller
from tocsin.actors.http.openapi import document
from tocsin.actors.scheduler.client import queues as handle_queues
from tocsin.actors.scheduler.model.records import Firing

pytestmark = pytest.mark.anyio

SOON_MS = 10_000
"""Longer than any test waits: what is answered before was woken."""


async def claim(http_client: HttpClient, queue: str = "*", **members: Any) -> list[dict[str, Any]]:
    answer = await http_client.post(f"/queues/{queue}/claim", {"waitMs": 0, **members})
    assert answer.status_code == 200, answer.text
    jobs: list[dict[str, Any]] = answer.json()["jobs"]
    return jobs


async def pulled(http_client: HttpClient, id: str, queue: str = "q", **members: Any) -> None:
    await http_client.schedule(**{"id": id, "queue": queue, "delayMs": 0, **members})


async def waiting_for(http_client: HttpClient, queue: str, count: int) -> None:
    """Until so many claims wait for a queue that holds a job."""
    async with asyncio.timeout(10):
        while True:
            queues = (await http_client.get("/queues")).json()["queues"]
            if [one["workersWaiting"] for one in queues if one["name"] == queue] == [count]:
                return
            await asyncio.sleep(0.005)


def ids(jobs: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in jobs]


# ---- Claims --------------------------------------------------------------------------------------


async def test_a_claim_answers_all_that_a_worker_needs(http_client_per_store: HttpClient) -> None:
    args = {"n": 1, "at": {"$date": "2030-01-01T00:00:00Z"}}
    retry, then = {"maxRetries": 2, "baseMs": 5}, [{"workflow": "w"}]
    await pulled(
        http_client_per_store, "a", args=args, pool="p", priority=3, labels=["x"], retry=retry, timeoutMs=5_000,
        shardKey="k", expiresAt=DUE, then=then,
    )  # fmt: skip
    [one] = await claim(
        http_client_per_store, "q", leaseMs=30_000, worker={"id": "w1", "name": "n", "hostname": "h", "pid": 1}
    )
    record = (await http_client_per_store.get("/get?id=a")).json()["record"]

    assert {name: one[name] for name in ("id", "functionPath", "queue", "instanceName", "pool", "priority")} == {
        "id": "a", "functionPath": "p", "queue": "q", "instanceName": "default", "pool": "p", "priority": 3,
    }  # fmt: skip
    assert (one["args"], one["labels"], one["shardKey"], one["timeoutMs"]) == (args, ["x"], "k", 5_000)
    assert (one["retry"]["maxRetries"], one["expiresAt"], one["then"]) == (2, DUE, True)
    assert (one["attempt"], one["attempts"], one["leaseMs"], one["incarnation"]) == (
        1,
        0,
        30_000,
        record["incarnation"],
    )
    assert record["lease"] == {"until": one["leaseUntil"], "kind": "pulled", "worker": "w1"}
    assert (record["state"], record["queue"], [one["workflow"] for one in record["then"]]) == ("running", "q", ["w"])


async def test_a_claim_that_waits_is_woken_by_a_job(http_client: HttpClient) -> None:
    waiting = asyncio.create_task(claim(http_client, "q", waitMs=SOON_MS))
    await http_client.schedule(queue="q", id="later")  # there, but not due
    await waiting_for(http_client, "q", 1)
    assert not waiting.done()
    await pulled(http_client, "a")

    assert ids(await asyncio.wait_for(waiting, 5)) == ["a"]
    assert await claim(http_client, "q") == []


async def test_the_default_wait_is_the_documented_one() -> None:
    schema = document(tokens=True)["components"]["schemas"]["ClaimRequest"]["properties"]

    assert schema["waitMs"]["default"] == handle_queues.CLAIM_WAIT_S * 1_000
    assert schema["leaseMs"]["default"] == handle_queues.CLAIM_LEASE_MS


async def test_all_queues_but_some_and_several_by_name(http_client: HttpClient) -> None:
    for queue in ("a", "b", "c", "d"):
        await pulled(http_client, queue, queue)

    assert sorted(ids(await claim(http_client, "*", max=9, exclude=["b", "d"]))) == ["a", "c"]
    assert await claim(http_client, "a,c", max=9) == []
    assert sorted(ids(await claim(http_client, "b,x,d,b", max=9))) == ["b", "d"]


async def test_the_body_may_be_left_out(http_client: HttpClient) -> None:
    await pulled(http_client, "a")
    answer = await http_client.client.post("/queues/q/claim")

    assert ids(answer.json()["jobs"]) == ["a"]


@pytest.mark.parametrize(
    ("queue", "members", "words"),
    [
        ("q", {"max": 0}, ["max must be 1..100"]),
        ("q", {"max": 101}, ["max must be 1..100"]),
        ("q", {"max": "5"}, ["max must be an integer"]),
        ("q", {"leaseMs": 999}, ["leaseMs must be 1000..3600000"]),
        ("q", {"waitMs": 300_001}, ["waitMs must be 0..300000"]),
        ("q", {"waitMs": -1}, ["waitMs must be 0..300000"]),
        ("q", {"exclude": ["a"]}, ["exclude goes with queue"]),
        ("*", {"exclude": "a"}, ["exclude must be an array"]),
        ("*", {"exclude": ["a", "b/c"]}, ["exclude[1] must be"]),
        ("*", {"exclude": ["a"] * 101}, ["exclude: 101 given, at most 100"]),
        ("*", {"worker": {}}, ["worker.id is missing"]),
        ("*", {"worker": {"id": "a b"}}, ["worker.id must be"]),
        ("*", {"worker": {"id": "w", "pid": "5"}}, ["worker.pid must be an integer"]),
        ("*", {"worker": {"id": "w", "name": 5}}, ["worker.name must be a text"]),
        ("*", {"worker": {"id": "w", "colour": 5}}, ["unknown field 'worker.colour'"]),
        ("*", {"colour": 5}, ["unknown field 'colour'"]),
        ("a%20b", {}, ["queue[0] must be 1 to 128 characters"]),
        ("a,,b", {}, ["queue[1] must be 1 to 128 characters"]),
        ("a,*", {}, ["queue[1] must be"]),
        ("x" * 129, {}, ["queue[0] must be"]),
        (",".join("x" * 101), {}, ["queue: 101 given, at most 100"]),
    ],
)
async def test_a_wrong_claim_is_named_and_takes_nothing(
    http_client: HttpClient, queue: str, members: dict[str, Any], words: list[str]
) -> None:
    await pulled(http_client, "a")
    refused(await http_client.post(f"/queues/{queue}/claim", {"waitMs": 0, **members}), 400, "INVALID_INPUT", *words)

    assert ids(await claim(http_client)) == ["a"]


# ---- Who hangs up --------------------------------------------------------------------------------


class RawCall:
    """A request without an HTTP client between: it can hang up when it likes."""

    def __init__(self, app: Any, method: str, path: str, body: bytes = b"", query: bytes = b"") -> None:
        self.gone = asyncio.Event()
        self.sent: list[Any] = []
        self._begun = False
        self._body = body
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "root_path": "", "query_string": query, "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("localhost", 80), "state": {},
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        """Of its answer, if there is one; 499 is for nobody."""
        return self.sent[0]["status"] if self.sent else None


async def test_a_worker_that_hangs_up_is_given_nothing(
    http_client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    await http_client.schedule(queue="q", id="later")
    app = http_client.host.asgi(insecure=True)
    call = RawCall(app, "POST", "/queues/q/claim", b'{"waitMs": 10000}')
    await waiting_for(http_client, "q", 1)
    call.gone.set()
    await asyncio.wait_for(call.task, 5)  # quietly: a server logs what is raised here
    await waiting_for(http_client, "q", 0)
    await pulled(http_client, "a")

    assert call.status == 499
    assert ids(await claim(http_client, "q")) == ["a"]
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("cancelled", [False, True], ids=["hangs up", "is cancelled"])
async def test_what_comes_in_the_moment_of_hanging_up_goes_back_uncharged(
    http_client: HttpClient, cancelled: bool
) -> None:
    """At every step between the job and the answer: the job is answered, or goes to the next who asks at once. Requests
    are cancelled by servers that stop, and by clients in the same process."""
    app = http_client.host.asgi(insecure=True)
    given = 0
    for steps in range(40):
        call = RawCall(app, "POST", "/queues/q/claim", b'{"waitMs": 10000, "leaseMs": 3600000}')
        await asyncio.sleep(0.001)
        job = await http_client.host.scheduler("default").run_after(0, "p", queue="q")
        for _ in range(steps):
            await asyncio.sleep(0)
        if cancelled:
            call.task.cancel()
        else:
            call.gone.set()
        await asyncio.wait([call.task], timeout=5)
        if call.status == 200:
            given += 1
            await http_client.post("/cancel", {"id": job})
            continue
        [one] = await claim(http_client, "q", waitMs=SOON_MS)
        assert (one["id"], one["attempts"]) == (job, 0)
        record = (await http_client.get(f"/get?id={job}")).json()["record"]
        assert "losses" not in record
        await http_client.post("/complete", {"id": job, "lease": one["lease"]})
    assert given < 40, "nobody ever hung up in time"


async def test_who_waits_for_a_result_may_hang_up_too(http_client: HttpClient) -> None:
    await http_client.schedule(queue="q", id="a", keepResultMs=60_000)
    call = RawCall(http_client.host.asgi(insecure=True), "GET", "/result", query=b"id=a&waitMs=300000")
    await asyncio.sleep(0.01)
    assert not call.task.done()
    call.gone.set()
    await asyncio.wait_for(call.task, 5)

    assert call.status == 499


# ---- Who may -------------------------------------------------------------------------------------


async def test_the_rule_is_asked_for_every_target_of_a_chain(host: ActorHost) -> None:
    asked: list[tuple[str, str | None]] = []

    def rule(caller: Caller, action: str, instance: str, resource: str | None) -> bool:
        asked.append((action, resource))
        return resource != "secret"

    chain = [{"functionPath": "b", "then": [{"workflow": "secret"}]}, {"functionPath": "c"}]
    job = {"functionPath": "a", "scheduledFor": DUE, "then": chain, "id": "x"}
    async with client_of(host.asgi(authorize=rule)) as client:
        refused(await client.post("/schedule", json=job), 403, "FORBIDDEN")
        [batch] = (await client.post("/schedule/batch", json={"jobs": [job]})).json()["results"]
        del job["id"], job["scheduledFor"]
        refused(await client.put("/schedules/s", json={**job, "cron": "* * * * *"}), 403, "FORBIDDEN")
        assert (await client.get("/get?id=x")).json() == {}
        refused(await client.get("/schedules/s"), 404, "NOT_FOUND")
    assert batch["error"]["code"] == "FORBIDDEN"
    assert asked[:3] == [("schedule", "a"), ("schedule", "b"), ("schedule", "secret")]
    assert asked.count(("schedule", "secret")) == 3


async def test_the_rule_is_asked_for_every_queue_of_a_claim(host: ActorHost) -> None:
    await host.scheduler("default").run_after(0, "p", id="x", queue="secret")
    asked: list[str | None] = []

    def rule(caller: Caller, action: str, instance: str, resource: str | None) -> bool:
        asked.append(resource)
        return resource not in ("secret", "*")

    async with client_of(host.asgi(authorize=rule)) as client:
        for queue in ("secret", "mail,secret", "*", "mail,*"):
            refused(await client.post(f"/queues/{queue}/claim", json={"waitMs": 0}), 403, "FORBIDDEN")
        assert (await client.post("/queues/mail,pdf/claim", json={"waitMs": 0})).json() == {"jobs": []}
    assert asked == ["secret", "mail", "secret", "*", "mail", "*", "mail", "pdf"]


async def test_a_token_to_work_pulls_and_does_nothing_else_in_its_instances(host: ActorHost) -> None:
    for tenant in ("tenant-a", "other"):
        await host.scheduler(tenant).run_after(0, "p", id="x", queue="q")
    async with client_of(host.asgi(tokens="box:work@tenant-*:sesame-sesame"), token="sesame-sesame") as client:
        [one] = (await client.post("/i/tenant-a/queues/*/claim", json={})).json()["jobs"]
        for place in ("/i/other", ""):
            refused(await client.post(f"{place}/queues/*/claim", json={}), 403, "FORBIDDEN", "does not reach")
        for path in ("/queues", "/list", "/pending", "/result?id=x"):
            refused(await client.get(f"/i/tenant-a{path}"), 403, "FORBIDDEN", "needs the scope read")
        refused(await client.post("/i/tenant-a/cancel", json={"id": "x"}), 403, "FORBIDDEN")
        settled = await client.post("/i/tenant-a/complete", json={"id": "x", "lease": one["lease"]})
    assert settled.json() == {"settled": True, "state": "done"}


async def test_authorize_fire_is_asked_before_a_worker_gets_a_job() -> None:
    asked: list[Firing] = []

    async def may(job: Firing) -> bool:
        asked.append(job)
        await asyncio.sleep(0)
        return job.id != "locked"

    async with open_http_client(authorize_fire=may) as http_client:
        await pulled(http_client, "locked", keepResultMs=60_000)
        await pulled(http_client, "free", args={"n": 1})
        assert ids(await claim(http_client, max=5, waitMs=SOON_MS)) == ["free"]
        await http_client.until("locked", "dead")
        dead = (await http_client.get("/get?id=locked")).json()["record"]
        assert (dead["reason"], dead["attempts"]) == ("blocked", 0)
        assert {(job.id, job.state, job.instance, job.queue) for job in asked} == {
            ("locked", "running", "default", "q"), ("free", "running", "default", "q"),
        }  # fmt: skip


async def test_a_claim_whose_only_job_is_blocked_goes_on_waiting() -> None:
    async with open_http_client(authorize_fire=lambda job: job.id != "locked") as http_client:
        waiting = asyncio.create_task(claim(http_client, "q", waitMs=SOON_MS))
        await pulled(http_client, "locked")
        await http_client.until("locked", "dead")
        assert not waiting.done()
        await pulled(http_client, "free")

        assert ids(await asyncio.wait_for(waiting, 5)) == ["free"]


async def test_a_rule_that_fails_gives_the_job_to_nobody_and_charges_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def may(job: Firing) -> bool:
        raise RuntimeError("the database is away")

    async with open_http_client(authorize_fire=may) as http_client:
        await pulled(http_client, "a")
        with caplog.at_level(logging.CRITICAL, "tocsin.scheduler"):
            assert await claim(http_client, waitMs=50) == []
        await http_client.until("a", "pending")
        record = (await http_client.get("/get?id=a")).json()["record"]
        assert (record["attempts"], "authorize_fire raised" in record["lastError"]["message"]) == (0, True)


# ---- Without an origin ---------------------------------------------------------------------------


async def test_a_host_without_an_origin_takes_jobs_with_queues() -> None:
    async with open_http_client(origin=None) as http_client:
        await pulled(http_client, "a", then=[{"functionPath": "b", "queue": "q"}])
        called = {"functionPath": "p"}
        refused(await http_client.post("/schedule", {**called, "delayMs": 0}), 500, "ORIGIN_NOT_CONFIGURED", "queue")
        chained = {"functionPath": "p", "queue": "q", "delayMs": 0, "then": [called]}
        refused(await http_client.post("/schedule", chained), 500, "ORIGIN_NOT_CONFIGURED", "then[0]")
        assert (
            await http_client.client.put("/schedules/s", json={"functionPath": "p", "everyMs": 10**9, "queue": "q"})
        ).is_success
        [one] = await claim(http_client)
        await http_client.post("/complete", {"id": "a", "lease": one["lease"]})

        assert [one["functionPath"] for one in await claim(http_client)] == ["b"]
