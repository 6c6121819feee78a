"""A tour of every route, with good requests and all kinds of bad ones: each answer is one that the document has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.accepting_receiver import AcceptingReceiver, accepted
from tests.http.http_client import DUE, HttpClient, client_of, open_host, open_http_client
from tests.http.openapi_document import BROKEN, Documented, operations
from tests.http.tour_of_groups import group_tour
from tocsin import errors
from tocsin.actors.http import crowd
from tocsin.actors.http.examples import EXAMPLES
from tocsin.actors.http.openapi import PLACES, document
from tocsin.actors.scheduler.client.changes import LocalChanges
from tocsin.actors.scheduler.client.jobs import LocalJobs
from tocsin.actors.scheduler.client.schedules_port import LocalSchedules
from tocsin.actors.scheduler.model.schedule_rows import request_hash, triggered_id
from tocsin.actors.scheduler.transfer.manifest import MEDIA
from tocsin.dispatch.asgi_transport import AsgiTransport

pytestmark = pytest.mark.anyio

DOCUMENT = document(tokens=True)
TOKENS = ["ops:admin:secret-ops", "reader:read:secret-reader", "tenant:admin@tenant-a:secret-tenant"]
JOB = {"functionPath": "p", "scheduledFor": DUE}
WHOLE: dict[str, Any] = {
    **JOB, "args": [1, {"n": None}], "pool": "p", "maxConcurrency": 3, "priority": -4, "timeoutMs": 90_000,
    "retry": {"maxRetries": 2, "backoff": "linear", "baseMs": 0.5, "maxMs": 10, "jitter": 1}, "expiresAt": DUE + 1,
    "shardKey": "k", "labels": ["x", "y"],
}  # fmt: skip
WHOLE_SCHEDULE: dict[str, Any] = {
    "at": 1_700_000_000_000, "timezone": "Asia/Kolkata", "workflow": "w", "catchUpLimit": None, "jitterMs": 5_000,
    "expiresAfterMs": 60_000, "graceMs": 0, "overlap": "queue", "paused": None, "revision": 0,
    **{name: WHOLE[name] for name in (
        "args", "pool", "maxConcurrency", "priority", "timeoutMs", "retry", "shardKey", "labels",
    )},
}  # fmt: skip
Ask = Callable[..., Awaitable[Any]]


def asker(held: Documented, client: httpx.AsyncClient, token: str | None = "secret-ops") -> Ask:
    """Sends a request at both places of a route, and holds the answers; the one of the named place comes back."""

    async def ask(method: str, path: str, json: Any = None, instance: str = "tenant-a", **more: Any) -> Any:
        headers = {**({"authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        named = {one: more.pop(one, "none") for one in ("name", "queue", "queueName", "redrive", "backfill", "group")}
        named |= {"redriveId": named["redrive"], "backfillId": named["backfill"], "owner": more.pop("owner", "app")}
        value = None
        for place in (one for one in more.pop("places", PLACES) if one + path in DOCUMENT["paths"]):
            url = (place + path).format(instance=instance, **named)
            answer = await client.request(method, url, json=json, headers=headers, **more)
            held.hold(method, place + path, answer)
            value = answer.json() if answer.headers["content-type"] == "application/json" else answer.content
        return value

    return ask


def split(path: str) -> tuple[str, str]:
    """Place and route."""
    place = "/i/{instance}" if path.startswith("/i/") else ""
    return place, path.removeprefix(place)


async def clock_tour(ask: Ask) -> None:
    """Of an instance that nobody has used; then it is one on the live clock."""
    for _ in range(2):
        await ask("POST", "/clock/advance", {"byMs": 1_000})
        await ask("POST", "/clock/freeze", {})
        await ask("PUT", "/clock", {"at": 10**12})
        await ask("GET", "/clock")
    await ask("PUT", "/clock", {"at": 10**12 + 5})
    for instance in ("tenant-a", "default"):
        await ask("DELETE", "", instance=instance, params={"confirm": instance})
    await ask("POST", "/schedule", WHOLE)
    await ask("POST", "/clock/advance", {"byMs": 1_000})
    await ask("POST", "/clock/freeze", {})
    await ask("PUT", "/clock", {"at": 10**12})


async def transfer_tour(ask: Ask) -> None:
    """Out, away and in again, for each of two instances; then they are gone."""
    lines = {"content-type": MEDIA}
    for place, name in (("", "default"), ("/i/{instance}", "tenant-a")):
        await ask("POST", "/schedule", WHOLE, places=[place])
        text = await ask("GET", "/export", places=[place])
        await ask("GET", "/import", places=[place])
        for move in ("m", "another"):
            await ask("PUT", "/seal", {"move": move, "to": "there"}, places=[place])
        await ask("DELETE", "/seal", params={"move": "m"}, places=[place])
        for _ in range(2):
            await ask("POST", "/import", content=text, headers=lines, places=[place])
            await ask("DELETE", "", instance=name, params={"confirm": name})
            await ask("POST", "/import", content=text, headers=lines, places=[place])
        await ask("DELETE", "", instance=name, params={"confirm": name})


async def good_tour(ask: Ask) -> None:
    await ask("POST", "/schedule", {**WHOLE, "id": "a"})
    await ask("POST", "/schedule", {**WHOLE, "id": "a", "onConflict": "keep"})
    await ask("POST", "/schedule", {"workflow": "w", "delayMs": 10**7}, headers={"idempotency-key": "k"})
    await ask("POST", "/schedule/batch", {"jobs": [JOB, {**JOB, "id": "a"}, {"functionPath": 5}, {"colour": 1}, 5]})
    await ask("GET", "/get", params={"id": "a"})
    await ask("GET", "/get", params={"id": "nobody"})
    await ask("GET", "/list", params={"limit": 1, "order": "id"})
    await ask("GET", "/list", params={"pool": "p", "state": "pending", "label": "x"})
    await ask("GET", "/status")
    await ask("GET", "/metrics")
    await ask("GET", "/activity")
    await ask("GET", "/activity", params={"minutes": 5})
    await ask("GET", "/activity", params={"minutes": 61})
    await ask("GET", "/why", params={"id": "a"})
    await ask("GET", "/why", params={"id": "nobody"})
    await ask("POST", "/reschedule", {"id": "a", "delayMs": 10**7})
    await ask("POST", "/reschedule", {"id": "nobody", "delayMs": 10**7})
    await ask("PUT", "/pool", {"name": "p", "maxConcurrency": 2, "paused": True})
    await ask("GET", "/why", params={"id": "a"})
    await ask("GET", "/pool", params={"name": "p"})
    await ask("POST", "/cancel", {"id": "a"})
    await ask("GET", "/history", params={"id": "a"})
    await ask("POST", "/cancel-all", {"all": True})
    await ask("DELETE", "/pool", params={"name": "p"})
    await ask("PUT", "/instance", {"paused": True})
    await ask("PUT", "/instance", {"paused": False})
    await ask("GET", "/audit", params={"limit": 3})
    await ask("GET", "/audit", params={"who": "http", "action": "set_pool", "since": 1})
    await ask("GET", "/instances")
    await ask("GET", "/instances", params={"limit": 1})
    await ask("GET", "/healthz")
    await ask("GET", "/readyz")


async def dead_tour(ask: Ask, http_client: HttpClient) -> None:
    for n, place in enumerate(("", "/i/tenant-a") * 2):
        await http_client.schedule(place, id=f"dead-{n}", functionPath="answer:410", delayMs=0)
        while (await http_client.get(f"{place}/get?id=dead-{n}")).json()["record"]["state"] != "dead":
            pass
    await ask("GET", "/dead")
    await ask("GET", "/get", params={"id": "dead-0"})
    await ask("GET", "/why", params={"id": "dead-1"})
    await ask("GET", "/history", params={"id": "dead-1"})
    await ask("POST", "/dead/retry-all", {"all": True, "dryRun": True})
    for place in PLACES:
        started = await ask("POST", "/dead/retry-all", {"all": True, "ratePerSecond": 1}, places=[place])
        await ask("POST", "/dead/retry-all", {"all": True}, places=[place])  # goes on already
        await ask("GET", "/dead/redrives/{redriveId}", redrive=started["redriveId"], places=[place])
        await ask("DELETE", "/dead/redrives/{redriveId}", redrive=started["redriveId"], places=[place])
    await ask("GET", "/dead/groups")
    for place in PLACES:
        await ask("POST", "/dead/cancel-all", {"ids": ["nobody"], "dryRun": True}, places=[place])
        gone = await ask("POST", "/dead/cancel-all", {"all": True}, places=[place])
        for _ in range(2):
            await ask("POST", "/undo", {"actionId": gone["actionId"]}, places=[place])
    for action in ("nobody", "no/id"):
        await ask("POST", "/undo", {"actionId": action})
    for route in ("/dead/retry", "/dead/cancel"):
        for id in ("dead-0", "dead-1", "nobody"):
            await ask("POST", route, {"id": id})


async def recurring_tour(ask: Ask) -> None:
    daily = EXAMPLES["schedules_put"].request
    one = "/schedules/{name}"
    await ask("PUT", one, daily, name="s")
    await ask("PUT", one, {**WHOLE_SCHEDULE, "misfire": "skip"}, name="t")
    await ask("PUT", one, {**daily, "revision": 7}, name="s")
    await ask("PUT", one, {**daily, "cron": "0 22-2 * * *"}, name="s")
    await ask("PUT", one, {**daily, "timezone": "Mars"}, name="s")
    owned = {**EXAMPLES["schedules_register"].request["schedules"][0]}
    await ask("PUT", "/owners/{owner}/schedules", {"schedules": [owned]})
    await ask("PUT", "/owners/{owner}/schedules", {"schedules": [{**owned, "cron": "0 22-2 * * *"}]})
    await ask("PUT", "/owners/{owner}/schedules", {"schedules": [{**owned, "timezone": "Mars"}]})
    await ask("PUT", one, daily, name="web:report")
    await ask("PUT", "/owners/{owner}/schedules", {"schedules": [owned]}, owner="web")
    await ask("GET", "/schedules", params={"limit": 1})
    for name in ("s", "t"):
        await ask("GET", one, name=name)
    for action in ("pause", "resume"):
        await ask("POST", f"{one}/{action}", name="s")
        await ask("POST", f"{one}/{action}", {"revision": 99}, name="s")
    await ask("POST", f"{one}/trigger", name="s")
    await ask("POST", "/schedule", {**JOB, "id": triggered_id("s", request_hash("k"))})
    await ask("POST", f"{one}/trigger", {"requestKey": "k"}, name="s")
    for name in ("s", "t"):
        await ask("GET", f"{one}/occurrences", name=name)
    past = {"start": 1_700_000_000_000, "end": 1_700_900_000_000, "ratePerSecond": 1}
    for n in range(22):  # more than may go on at once
        begun = await ask("POST", f"{one}/backfill", {**past, "dryRun": not n}, name="s")
    await ask("GET", f"{one}/backfills", name="s")
    for id in (begun.get("backfillId", "none"), "-wrong-"):
        await ask("DELETE", one + "/backfills/{backfillId}", name="s", backfill=id)
    await ask("DELETE", one, params={"revision": 99}, name="s")
    await ask("DELETE", one, params={"cancelPending": "true"}, name="s")
    await ask("DELETE", one, params={"cancelPending": "perhaps"}, name="s")
    await ask("GET", "/cron/preview", params={"expr": "*/5 * * * *"})
    await ask("GET", "/cron/preview", params={"expr": "*/90 * * * *"})
    await ask("GET", "/cron/preview", params={"expr": "*/5 * * * *", "timezone": "Mars"})


async def queue_tour(ask: Ask) -> None:
    claim = "/queues/{queue}/claim"
    chain = [{"functionPath": "q", "queue": "q", "delayMs": 5, "then": [{"workflow": "w"}]}]
    await ask("POST", claim, queue="*")
    pulled = {"scheduledFor": 10**12, "queue": "q", "expiresAt": None, "pool": "other", "keepResultMs": 60_000}
    await ask("POST", "/schedule", {**WHOLE, **pulled, "id": "pulled", "then": chain})
    await ask("GET", "/result", params={"id": "pulled"})
    await ask("GET", "/queues")
    await ask("GET", "/why", params={"id": "pulled"})
    await ask("GET", "/list", params={"queue": "q"})
    for asked in ({}, {"prefix": "q"}, {"prefix": "p" * 600}):
        await ask("GET", "/pending", params=asked)
    await ask("GET", "/result", params={"id": "nobody"})
    for place in PLACES:
        worker = {"id": "w", "name": "n", "hostname": "h", "pid": 5}
        [one] = (await ask("POST", claim, {"worker": worker}, queue="a,q", places=[place]))["jobs"]
        await ask("GET", "/get", params={"id": "pulled"}, places=[place])
        await ask("GET", "/why", params={"id": "pulled"}, places=[place])
        for id in ("pulled", "nobody"):
            await ask("POST", "/pool/free", {"id": id}, places=[place])
        named = {"id": "pulled", "lease": one["lease"]}
        await ask("POST", "/extend", {**named, "leaseMs": 5_000}, places=[place])
        await ask("POST", "/complete", {**named, "ok": False, "charge": False, "delayMs": 0}, places=[place])
        [one] = (await ask("POST", claim, {"max": 5}, queue="*", places=[place]))["jobs"]
        await ask("POST", "/complete", {**named, "lease": one["lease"], "result": {"n": 1}}, places=[place])
        [child] = (await ask("POST", claim, {"waitMs": 5_000}, queue="q", places=[place]))["jobs"]
        await ask("GET", "/get", params={"id": child["id"]}, places=[place])
        await ask("POST", "/complete", {"id": child["id"], "lease": child["lease"]}, places=[place])
    await ask("GET", "/result", params={"id": "pulled", "waitMs": 5})
    await group_tour(ask, JOB)
    await ask("GET", "/history", params={"id": "pulled"})
    await ask("POST", claim, {"max": 0}, queue="q")
    await ask("POST", "/workers", EXAMPLES["announce"].request)
    await ask("GET", "/workers")
    await ask("POST", claim, queue="a b")


async def bad_tour(ask: Ask) -> None:
    """The same bad requests to every route."""
    json = {"content-type": "application/json"}
    for method, path, one in operations(DOCUMENT):
        place, route = split(path)
        if place:
            await ask(method, route, instance="-wrong-", places=[place])
        if one["tags"] == ["probes"]:
            continue
        await ask(method, route, places=[place])
        for params in ({"unknown": "1"}, {"id": "a b"}):
            await ask(method, route, params=params, places=[place])
        if "requestBody" in one:
            for body in (b"", b"{", b'{"colour": 1}'):
                await ask(method, route, content=body, headers=json, places=[place])
            example = EXAMPLES[one["operationId"].removesuffix("_in_instance")].request
            if example is not None and route != "/seal":  # that would end the tour
                changed = {name: value for name, value in (("id", "a b"), ("waitMs", 0)) if name in example}
                await ask(method, route, {**example, **changed}, places=[place])
            await ask(method, route, content=b"{}", headers={"content-type": "text/plain"}, places=[place])
            await ask(method, route, content=b" " * (9 * 1024 * 1024), headers=json, places=[place])


async def slow_tour(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that does not end, to every route that takes one."""
    monkeypatch.setattr(crowd, "BODY_S", 0.005)

    async def endless() -> AsyncIterator[bytes]:
        yield b" "
        await asyncio.get_running_loop().create_future()

    for method, path, one in operations(DOCUMENT):
        if "requestBody" in one:
            place, route = split(path)
            kind = MEDIA if route == "/import" else "application/json"
            await ask(method, route, content=endless(), headers={"content-type": kind}, places=[place])
    monkeypatch.undo()


async def test_every_answer_is_one_that_the_document_has(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    held = Documented(DOCUMENT)
    async with open_http_client() as http_client, client_of(http_client.host.asgi(tokens=TOKENS)) as client:
        ask = asker(held, client)
        await transfer_tour(ask)
        await clock_tour(ask)
        await good_tour(ask)
        await dead_tour(ask, http_client)
        await recurring_tour(ask)
        await queue_tour(ask)
        await ask("POST", "/schedule", JOB, headers={"idempotency-key": "k"})  # 422
        for _ in range(2):
            await ask("POST", "/schedule", {**JOB, "id": "taken", "pool": "used"})
        for _ in range(2):
            await ask("POST", "/schedule", {**JOB, "id": "throttled", "throttleMs": 60_000})
        await ask("DELETE", "/pool", params={"name": "used"})
        await ask("POST", "/schedule/batch", {"jobs": [JOB]}, headers={"idempotency-key": "b"})
        await ask("POST", "/schedule/batch", {"jobs": [JOB] * 2}, headers={"idempotency-key": "b"})
        for method in ("GET", "DELETE"):
            for redrive in ("none", "-wrong-"):
                await ask(method, "/dead/redrives/{redriveId}", redrive=redrive)
        for route, more in (("/complete", {}), ("/extend", {"leaseMs": 5_000})):
            await ask("POST", route, {"id": "a", "lease": "1.2.3", **more})
        await bad_tour(ask)
        await slow_tour(ask, monkeypatch)
        for token in (None, "secret-reader", "secret-tenant"):
            for method, path, _ in operations(DOCUMENT):
                place, route = split(path)
                await asker(held, client, token)(method, route, places=[place])
        await ask("DELETE", "", params={"confirm": "tenant-a"})
        with caplog.at_level(logging.CRITICAL, "tocsin.http"):
            await failing_tour(ask, monkeypatch)
    await accepted_tour(held)
    await refused_tour(held, tmp_path)

    met = {(method, path, code) for method, path, code in held.seen}
    assert {(method, path, "200") for method, path, _ in operations(DOCUMENT)} <= met
    unseen = {
        (method, path, code)
        for method, path, one in operations(DOCUMENT)
        for answer in one["responses"].values()
        if "$ref" in answer
        for code in answer["$ref"].rpartition("/")[2].split("-")[1:]
    } - met
    unseen -= {("GET", place + "/export", "CONFLICT") for place in PLACES}  # while it is imported: test_transfer.py
    unmet = [one for one in unseen if one[2] not in {"NOT_FOUND", "FORBIDDEN", "INTERNAL", *BROKEN}]
    assert not unmet, "\n".join(map(str, sorted(unmet)))


async def failing_tour(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server cannot do, at one route that changes something; which routes may say so is in the table."""
    being_removed = errors.ConflictError("instance 'tenant-a' is being removed: try again when that is done")
    for error in (being_removed, *BROKEN.values(), errors.ActorBrokenError("it failed"), RuntimeError("unforeseen")):

        async def fail(*_: Any, error: Exception = error, **__: Any) -> Any:
            raise error

        for port, name in ((LocalJobs, "submit"), (LocalJobs, "submit_many"), (LocalChanges, "set_pool")):
            monkeypatch.setattr(port, name, fail)
        monkeypatch.setattr(LocalSchedules, "put", fail)
        await ask("POST", "/schedule", JOB)
        await ask("POST", "/schedule/batch", {"jobs": [JOB]})
        if error is not being_removed:
            await ask("PUT", "/pool", {"name": "p", "paused": True})
        await ask("PUT", "/schedules/{name}", EXAMPLES["schedules_put"].request)
    monkeypatch.undo()


async def accepted_tour(held: Documented) -> None:
    app = AcceptingReceiver()
    async with open_http_client(transport=AsgiTransport(app)) as http_client:
        lease = await accepted(http_client, app, "a", pool="p")
        ask = asker(held, http_client.client)
        await ask("GET", "/get", params={"id": "a"})
        await ask("GET", "/why", params={"id": "a"})
        await ask("GET", "/pool", params={"name": "p"})
        for place in ("", "/i/default"):
            instance = {"id": "a", "lease": lease}
            route = "/i/{instance}" if place else ""
            extended = await http_client.post(f"{place}/extend", {**instance, "leaseMs": 5_000})
            held.hold("POST", f"{route}/extend", extended)
            settled = await http_client.post(f"{place}/complete", {**instance, "result": {"n": 1}})
            held.hold("POST", f"{route}/complete", settled)
            await accepted_again(http_client, app) if not place else None
            lease = app.leases["a"]
        await ask("GET", "/history", params={"id": "a"})


async def accepted_again(http_client: HttpClient, app: AcceptingReceiver) -> None:
    app.leases.clear()
    await accepted(http_client, app, "a", pool="p")


async def refused_tour(held: Documented, folder: Path) -> None:
    """A server that may hold no job more, one that knows no origin, and one that is closed."""
    async with open_http_client(max_jobs=1) as http_client:
        ask = asker(held, http_client.client)
        for _ in range(2):
            await ask("POST", "/schedule", JOB)
        await ask("PUT", "/schedules/{name}", EXAMPLES["schedules_put"].request)
        await ask("POST", "/schedules/{name}/trigger")
    store = f"sqlite:///{folder / 'jobs.db'}"
    async with open_http_client(store) as http_client:
        await asker(held, http_client.client)("PUT", "/schedules/{name}", EXAMPLES["schedules_put"].request)
    async with open_http_client(store, origin=None) as http_client:
        ask = asker(held, http_client.client)
        await group_tour(ask, JOB)
        await ask("PUT", "/schedules/{name}", EXAMPLES["schedules_put"].request)
        await ask("PUT", "/owners/{owner}/schedules", EXAMPLES["schedules_register"].request)
        await ask("POST", "/schedules/{name}/trigger")
    async with open_host() as (host, _):
        app = host.asgi(insecure=True)
    async with client_of(app) as client:
        await asker(held, client)("GET", "/readyz")
        await asker(held, client)("POST", "/cancel", {"id": "a"})
