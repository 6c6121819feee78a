"""`GET /openapi.json`: valid, complete, and true: its limits are those of the checks, its examples work."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import jsonschema_rs
import openapi_spec_validator
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount

from tests.http.accepting_receiver import AcceptingReceiver, accepted
from tests.http.http_client import HttpClient, client_of, open_host, open_http_client, paths_of, refused
from tests.http.openapi_document import checked_schema, operations
from tocsin.actors.http.app import build_app
from tocsin.actors.http.error_catalog import CODES
from tocsin.actors.http.examples import EXAMPLES, LEASE
from tocsin.actors.http.openapi import TRANSFERS, document
from tocsin.actors.http.operations import OPERATIONS
from tocsin.actors.scheduler.client.groups import Groups
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.client.schedules import Schedules
from tocsin.actors.scheduler.transfer.manifest import MEDIA
from tocsin.dispatch.asgi_transport import AsgiTransport

pytestmark = pytest.mark.anyio

DOCUMENT = {**document(tokens=True), "servers": [{"url": "/"}]}
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


# ---- The document --------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [True, False])
def test_it_is_valid(tokens: bool) -> None:
    openapi_spec_validator.validate({**document(tokens=tokens), "servers": [{"url": "/"}]})


async def test_it_is_there_for_anybody_and_says_where_it_is_mounted() -> None:
    async with open_host() as (host, _):
        app = Starlette(routes=[Mount("/jobs", host.asgi(tokens="ops:admin:sesame-sesame"))])
        async with client_of(app, base="https://tocsin.example") as client:
            answer = await client.get("/jobs/openapi.json")
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert answer.json() == {**document(tokens=True), "servers": [{"url": "/jobs"}]}
            assert (await client.get("/jobs/openapi.json")).content == answer.content
            refused(await client.get("/jobs/i/a/openapi.json"), 404, "NOT_FOUND")
            refused(await client.post("/jobs/openapi.json"), 405, "METHOD_NOT_ALLOWED")


async def test_without_tokens_it_asks_for_none_and_is_for_this_machine_only() -> None:
    async with open_http_client() as http_client:
        shown = (await http_client.get("/openapi.json")).json()
        assert "securitySchemes" not in shown["components"]
        assert not [one for _, _, one in operations(shown) if "security" in one]
        refused(await http_client.get("/openapi.json", headers={"host": "evil.example"}), 403, "FORBIDDEN")


async def test_every_route_of_the_app_is_described_and_no_other() -> None:
    async with open_host() as (host, _):
        app = build_app(host, insecure=True)
    pages = {path for path in paths_of(app) if "/ui" in path}
    sockets = {"/ws", "/i/{instance}/ws"}
    assert paths_of(app) - pages - sockets - {"/openapi.json"} == set(DOCUMENT["paths"])
    for place in ("", "/i/{instance}"):
        described = {(method, path) for method, path, _ in operations(DOCUMENT)}
        assert {(one.method, place + one.path) for one in OPERATIONS if place + one.path} <= described


def test_operations_are_named_once_and_after_the_methods_of_python() -> None:
    names = [one["operationId"] for *_, one in operations(DOCUMENT)]
    assert len(names) == len(set(names))
    methods = {name.removesuffix("_in_instance") for name in names}
    methods -= {"instances", "health", "ready", "metrics", "schedule", "catalog", "ws_token"}
    methods -= {about.name for *_, about in TRANSFERS}  # of `Client`
    methods -= {"clock", "set_clock", "advance_clock", "freeze_clock"}  # of `Scheduler.clock`
    recurring = {name for name in methods if name.startswith("schedules_")}
    methods -= {f"groups_{name}" for name in vars(Groups)}
    assert not [name for name in methods - recurring if not callable(getattr(Scheduler, name, None))]
    assert not [name for name in recurring if not callable(getattr(Schedules, name.removeprefix("schedules_"), None))]


def test_scopes_are_those_of_the_table() -> None:
    for method, path, one in operations(DOCUMENT):
        for operation in OPERATIONS:
            if operation.method == method and path in (operation.path, "/i/{instance}" + operation.path):
                scopes = {scope for way in one.get("security", []) for scope in way["bearer"]}
                assert scopes == operation.scopes, path


async def test_query_parameters_are_those_that_routes_take(http_client: HttpClient) -> None:
    for method, path, one in operations(DOCUMENT):
        known = [parameter["name"] for parameter in one.get("parameters", []) if parameter["in"] == "query"]
        if one["tags"] == ["probes"] or "requestBody" in one:
            assert known == (["sameJobs", "paused"] if path.endswith("/import") else [])
            continue
        answer = await http_client.client.request(
            method,
            path.format(
                instance="tenant-a",
                redriveId="a",
                backfillId="a",
                name="a",
                queue="a",
                queueName="a",
                owner="a",
                group="a",
            )
            + "?unknown=1",
        )
        said = f"this route takes {', '.join(known) if known else 'none'}"
        assert said in refused(answer, 400, "INVALID_INPUT")["message"]


def test_every_answer_names_codes_of_its_status_and_shows_each() -> None:
    for name, one in DOCUMENT["components"]["responses"].items():
        status, *codes = name.split("-")
        media = one["content"]["application/json"]
        assert {CODES[code].status for code in codes} == {int(status)}
        assert list(media["examples"]) == codes
        assert ("Retry-After" in one.get("headers", {})) == (status in ("429", "503"))


# ---- Examples ------------------------------------------------------------------------------------


def test_every_example_fits_its_schema() -> None:
    shown = 0
    for *_, one in operations(DOCUMENT):
        contents = [one["requestBody"]] if "requestBody" in one else []
        for answer in one["responses"].values():
            if ref := answer.get("$ref"):
                answer = DOCUMENT["components"]["responses"][ref.rpartition("/")[2]]
            contents.append(answer)
        for content in contents:
            media = content["content"].get("application/json")
            if media is None:
                assert list(content["content"]) in ([MEDIA], ["text/plain"])
                continue
            for example in media["examples"].values():
                checked_schema(DOCUMENT, media["schema"], closed=True).validate(example["value"])
                shown += 1
        for parameter in one.get("parameters", []):
            if "example" in parameter:
                jsonschema_rs.validate(parameter["schema"], parameter["example"])
    assert shown > 300


async def dead_receiver(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("no such invoice", 410)(scope, receive, send)


async def good_receiver(scope: Any, receive: Any, send: Any) -> None:
    await Response(status_code=204)(scope, receive, send)


def shape_of(value: Any) -> Any:
    """Names and types, without values."""
    if isinstance(value, dict):
        return {name: shape_of(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape_of(one) for one in value]
    return type(value)


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {"export", "import"}))  # in tests/http/test_transfers.py
async def test_every_example_works(name: str) -> None:
    """Sent to a real app that stands as the example supposes, the answer has the shape of the example's."""
    [(method, path, one)] = [found for found in operations(DOCUMENT) if found[2]["operationId"] == name] or [
        found for found in operations(DOCUMENT) if found[2]["operationId"] == f"{name}_in_instance"
    ]
    app = AcceptingReceiver()
    receiver: Any = app if name in ("complete", "extend", "pool", "free_slot") else good_receiver
    if "dead" in name or "redrive" in name:
        receiver = dead_receiver
    [listed] = EXAMPLES["catalog"].answer["entries"]
    catalog = {listed["functionPath"]: listed["args"]} if name == "catalog" else None
    async with open_http_client(transport=AsgiTransport(receiver), catalog=catalog) as http_client:
        given = await stand(http_client, app, name)
        query = {
            parameter["name"]: given.get(parameter["name"], parameter["example"])
            for parameter in one.get("parameters", [])
            if parameter["in"] == "query" and "example" in parameter
        }
        body = EXAMPLES[name].request
        if body is not None and body.get("lease") == LEASE:
            body = {**body, "lease": given["lease"]}
        if name == "undo":
            body = {"actionId": given["actionId"]}
        names = {
            "instance": "tenant-a", "name": "daily-report", "queue": "mail", "queueName": "mail", "owner": "app",
            "group": "import-7",
        }  # fmt: skip
        url = path.format(redriveId=given.get("redriveId", ""), backfillId=given.get("backfillId", ""), **names)
        answer = await http_client.client.request(method, url, params=query, json=body)
        assert answer.status_code == 200, answer.text
        if name == "metrics":
            assert answer.text.startswith("# HELP tocsin_")
            return
        assert shape_of(answer.json()) == shape_of(EXAMPLES[name].answer), answer.text


async def stand(http_client: HttpClient, app: AcceptingReceiver, name: str) -> dict[str, Any]:
    """Make the app stand as an example supposes; what of it only the app knows."""
    job = {**EXAMPLES["schedule"].request}
    if name in ("cancel", "get", "list", "status", "why", "cancel_all", "reschedule"):
        await http_client.schedule(**job)
    elif name in ("clock", "advance_clock", "freeze_clock"):
        await http_client.client.put("/clock", json=EXAMPLES["set_clock"].request)
    elif name == "changes":  # of an instance that was used
        await http_client.schedule(id="before", delayMs=3_600_000)
        await http_client.post("/cancel-all", {"all": True})
    elif name == "seal" or name == "transfer_state":
        await http_client.schedule(**job)
    elif name == "unseal":
        await http_client.schedule(**job)
        await http_client.client.put("/seal", json=EXAMPLES["seal"].request)
    elif name in ("remove", "instances"):
        await http_client.schedule("/i/tenant-a", **job)
    elif name == "history":
        await http_client.schedule(id="invoice-42", delayMs=0)
        await http_client.until("invoice-42", None)
    elif name == "workers":
        await http_client.post("/workers", EXAMPLES["announce"].request)
    elif name in ("claim", "queues", "pending"):
        due: dict[str, Any] = {
            "id": "invoice-42",
            "functionPath": "invoices:send",
            "args": {"invoice": 42},
            "delayMs": 0,
        }
        labels: dict[str, Any] = {"labels": ["tenant-7"], "then": [{"functionPath": "invoices:archive"}]}
        await http_client.schedule(queue="mail", **due, **labels)
        if name == "queues":
            await asyncio.sleep(0.002)  # it is due for some time
    elif name == "result":
        await http_client.schedule(id="invoice-42", delayMs=0, queue="mail", keepResultMs=3_600_000)
        [claimed] = (await http_client.post("/queues/mail/claim")).json()["jobs"]
        await http_client.post("/complete", {"id": "invoice-42", "lease": claimed["lease"], "result": {"sent": True}})
    elif name == "undo":
        await http_client.schedule(**job)
        gone = (await http_client.post("/cancel-all", {"all": True})).json()
        return {"actionId": gone["actionId"]}
    elif name in ("delete_pool", "audit"):
        await http_client.client.put("/pool", json={"name": "stripe", "maxConcurrency": 2})
    elif name == "schedules_register":
        sweep = {"name": "sweep", "functionPath": "sweep:run", "everyMs": 60_000}
        await http_client.client.put("/owners/app/schedules", json={"schedules": [sweep]})
    elif name.startswith("groups_") and name != "groups_open":
        await http_client.post("/groups", EXAMPLES["groups_open"].request)
    elif name.startswith("schedules_") and name not in ("schedules_put", "schedules_preview"):
        return await stand_scheduled(http_client, name)
    elif name in ("complete", "extend"):
        return {"lease": await accepted(http_client, app, "invoice-42")}
    elif name in ("pool", "free_slot"):
        await accepted(http_client, app, "invoice-42", pool="stripe")
    elif "dead" in name or "redrive" in name:
        pool: dict[str, Any] = {"pool": "stripe", "labels": ["tenant-7"]} if name == "dead" else {}
        await http_client.schedule(
            id="invoice-41", functionPath="invoices:send", args={"invoice": 41}, delayMs=0, **pool
        )
        await http_client.until("invoice-41", "dead")
        if "redrive" in name:
            return (await http_client.post("/dead/retry-all", {"all": True})).json()  # type: ignore[no-any-return]
    return {}


async def stand_scheduled(http_client: HttpClient, name: str) -> dict[str, Any]:
    url = "/schedules/daily-report"
    definition = dict(EXAMPLES["schedules_put"].request)
    if name == "schedules_occurrences":  # a slot that is long past, and one that stays live
        del definition["cron"]
        definition |= {"at": 1_700_000_000_000, "misfire": "skip", "pool": "held"}
        await http_client.client.put("/pool", json={"name": "held", "paused": True})
    await http_client.client.put(url, json=definition)
    if name == "schedules_resume":
        await http_client.post(f"{url}/pause")
    if name in ("schedules_backfills", "schedules_backfill_stop"):
        past = EXAMPLES["schedules_backfill"].request
        begun = (await http_client.post(f"{url}/backfill", past)).json()
        async with asyncio.timeout(10):
            while True:
                if "reached" in (await http_client.get(f"{url}/backfills")).json()["backfills"][0]:
                    break
                await asyncio.sleep(0.01)
        return {"backfillId": begun["backfillId"]}
    if name == "schedules_occurrences":
        async with asyncio.timeout(10):
            while True:
                if (await http_client.get(f"{url}/occurrences")).json()["occurrences"]:
                    break
                await asyncio.sleep(0.01)
        await http_client.post(f"{url}/trigger")
    return {}


def test_no_schema_shows_names_of_python() -> None:
    for name, schema in SCHEMAS.items():
        assert not re.search(r"`[a-z]+_[a-z_]+`", schema.get("description", "")), name
        assert not [member for member in schema.get("properties", {}) if "_" in member], name
