"""`GET /openapi.json`: valid, complete, and true: its limits are those of the checks, its examples work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import openapi_spec_validator
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount

from tests.http.accepting import Accepting, accepted
from tests.http.documented import checked_schema, operations
from tests.http.face import DUE, Face, client_of, open_face, open_host, refused
from tocsin.actors.http.app import build_app
from tocsin.actors.http.codes import CODES
from tocsin.actors.http.examples import EXAMPLES, LEASE
from tocsin.actors.http.openapi import document
from tocsin.actors.http.operations import OPERATIONS
from tocsin.actors.http.parameters import KEY_MAX
from tocsin.actors.http.shapes import NOT_BLANK
from tocsin.actors.scheduler import arguments
from tocsin.actors.scheduler.handle import Scheduler
from tocsin.actors.scheduler.recurring.handle import Schedules
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
    async with open_face() as face:
        shown = (await face.get("/openapi.json")).json()
        assert "securitySchemes" not in shown["components"]
        assert not [one for _, _, one in operations(shown) if "security" in one]
        refused(await face.get("/openapi.json", headers={"host": "evil.example"}), 403, "FORBIDDEN")


async def test_every_route_of_the_app_is_described_and_no_other() -> None:
    async with open_host() as (host, _):
        app = build_app(host, insecure=True)
    routes = {getattr(route, "path", "") for route in app.routes} - {"/openapi.json"}
    assert routes == set(DOCUMENT["paths"])
    for place in ("", "/i/{instance}"):
        described = {(method, path) for method, path, _ in operations(DOCUMENT)}
        assert {(one.method, place + one.path) for one in OPERATIONS if place + one.path} <= described


def test_operations_are_named_once_and_after_the_methods_of_python() -> None:
    names = [one["operationId"] for *_, one in operations(DOCUMENT)]
    assert len(names) == len(set(names))
    methods = {name.removesuffix("_in_instance") for name in names}
    methods -= {"instances", "health", "ready", "schedule", "catalog"}
    recurring = {name for name in methods if name.startswith("schedules_")}
    assert not [name for name in methods - recurring if not callable(getattr(Scheduler, name, None))]
    assert not [name for name in recurring if not callable(getattr(Schedules, name.removeprefix("schedules_"), None))]


def test_scopes_are_those_of_the_table() -> None:
    for method, path, one in operations(DOCUMENT):
        for operation in OPERATIONS:
            if operation.method == method and path in (operation.path, "/i/{instance}" + operation.path):
                scopes = {scope for way in one.get("security", []) for scope in way["bearer"]}
                assert scopes == operation.scopes, path


async def test_query_parameters_are_those_that_routes_take(face: Face) -> None:
    for method, path, one in operations(DOCUMENT):
        known = [parameter["name"] for parameter in one.get("parameters", []) if parameter["in"] == "query"]
        if one["tags"] == ["probes"] or "requestBody" in one:
            assert known == []
            continue
        answer = await face.client.request(
            method, path.format(instance="tenant-a", redriveId="a", name="a") + "?unknown=1"
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


# ---- Limits --------------------------------------------------------------------------------------


ELSEWHERE = {"instanceName", "retry", "jobs", "args", "result", "cron", "timezone"}
"""Members whose limits no schema holds: other tests ask for them."""


def fields() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, schema in SCHEMAS.items():
        if name.endswith("Request"):
            for member, one in schema["properties"].items():
                if member not in ELSEWHERE:
                    yield name, member, one


BODIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ScheduleRequest": ("POST", "/schedule", {"functionPath": "p", "scheduledFor": DUE}),
    "RescheduleRequest": ("POST", "/reschedule", {"id": "a", "scheduledFor": DUE}),
    "CancelAllRequest": ("POST", "/cancel-all", {"pool": "p"}),
    "RetryAllRequest": ("POST", "/dead/retry-all", {"pool": "p"}),
    "IdRequest": ("POST", "/cancel", {"id": "a"}),
    "CompleteRequest": ("POST", "/complete", {"id": "a", "lease": "1.2.3"}),
    "ExtendRequest": ("POST", "/extend", {"id": "a", "lease": "1.2.3", "leaseMs": 5_000}),
    "DefinitionRequest": ("PUT", "/schedules/a", {"functionPath": "p", "cron": "0 9 * * *"}),
    "RevisionRequest": ("POST", "/schedules/a/pause", {}),
    "TriggerRequest": ("POST", "/schedules/a/trigger", {}),
    "PoolRequest": ("PUT", "/pool", {"name": "p", "maxConcurrency": 1}),
    "InstanceRequest": ("PUT", "/instance", {"paused": False}),
}
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("ScheduleRequest", "delayMs"): {"scheduledFor": None},
    ("ScheduleRequest", "workflow"): {"functionPath": None},
    ("ScheduleRequest", "maxConcurrency"): {"pool": "p"},
    ("DefinitionRequest", "everyMs"): {"cron": None},
    ("DefinitionRequest", "at"): {"cron": None},
    ("DefinitionRequest", "workflow"): {"functionPath": None},
    ("DefinitionRequest", "maxConcurrency"): {"pool": "p"},
    ("RescheduleRequest", "delayMs"): {"scheduledFor": None},
    ("CancelAllRequest", "all"): {"pool": None},
    ("RetryAllRequest", "all"): {"pool": None},
}
"""What else stands in the body while a member is tried."""


def edges(schema: dict[str, Any]) -> Iterator[Any]:
    """Values at the limits of a schema, just beyond them, and of other types."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "minimum" in schema:
        yield from (schema["minimum"], schema["minimum"] - 1, schema["maximum"], schema["maximum"] + 1, 1.5)
    if "string" in kinds:
        most = schema.get("maxLength", 300)
        yield from (*(one for one in schema.get("enum", ()) if one), "x", "x" * most, "x" * (most + 1))
        yield from ("", " ", "a b", "-a", "__a", "_a", ".a", "a:b", "é", "a\n", "a/b", "\u00a0", "\ufeff", "\x1c")
    if "array" in kinds:
        yield from (["x"] * schema["maxItems"], ["x"] * (schema["maxItems"] + 1), ["a b"], [], [5])
    yield from (True, False, "true", 5, None, {}, [[]])


@pytest.mark.parametrize(("name", "member", "schema"), list(fields()))
async def test_each_member_is_taken_up_to_its_limit_and_no_further(
    face: Face, name: str, member: str, schema: dict[str, Any]
) -> None:
    """The app takes what the document allows, and nothing else: no limit stands in two places."""
    request = "ScheduleRequest" if name == "RetryRequest" else name
    method, path, body = BODIES[request]
    allows = checked_schema(DOCUMENT, {"$ref": f"#/components/schemas/{request}"}).is_valid
    found = set()
    for n, value in enumerate(edges(schema)):
        sent = {**body, **BESIDE.get((request, member), {}), member: value}
        if name == "RetryRequest":
            sent = {**body, "retry": {member: value}}
        answer = await face.client.request(method, f"/i/{n}{path}", json=sent)
        # Nobody has that lease (409), no schedule is at that revision (409), or there is none (404).
        assert answer.status_code in ((200, 404, 409) if allows(sent) else (400,)), (sent, answer.text)
        found.add(allows(sent))
    assert found == {True, False}


def test_what_is_blank_to_the_check_is_blank_to_the_document() -> None:
    blank = {chr(one) for one in range(0x110000) if chr(one).isspace()}
    assert {chr(one) for one in range(0x110000) if not re.match(NOT_BLANK, chr(one))} == blank


async def test_the_idempotency_key_has_the_documented_length(face: Face) -> None:
    [schema] = [
        parameter["schema"]
        for parameter in DOCUMENT["paths"]["/schedule"]["post"]["parameters"]
        if parameter["name"] == "Idempotency-Key"
    ]
    assert schema["maxLength"] == KEY_MAX
    for size, status in ((1, 200), (KEY_MAX, 200), (KEY_MAX + 1, 400)):
        body = {"functionPath": "p", "scheduledFor": DUE}
        answer = await face.post("/schedule", body, headers={"idempotency-key": "k" * size})
        assert answer.status_code == status


async def test_query_parameters_have_the_documented_limits(face: Face) -> None:
    await face.client.put("/schedules/daily-report", json=EXAMPLES["schedules_put"].request)
    for method, path, one in operations(DOCUMENT):
        if method != "GET" or path.startswith("/i/"):
            continue
        path = path.format(redriveId="a", name="daily-report")
        required = {
            parameter["name"]: parameter["example"]
            for parameter in one.get("parameters", [])
            if parameter["in"] == "query" and parameter.get("required")
        }
        for parameter in one.get("parameters", []):
            if parameter["in"] != "query" or parameter["name"] in {"cursor", *ELSEWHERE, "expr"}:
                continue
            for value in map(str, edges(parameter["schema"])):
                digits = value.isascii() and value.isdecimal() and "minimum" in parameter["schema"]
                fits = jsonschema_rs.is_valid(parameter["schema"], int(value) if digits else value)
                answer = await face.get(path, params={**required, parameter["name"]: value})
                assert (answer.status_code == 200) == fits, (path, parameter["name"], value, answer.text)


async def test_a_batch_has_the_documented_length(face: Face) -> None:
    most = SCHEMAS["BatchRequest"]["properties"]["jobs"]["maxItems"]
    assert most == arguments.MAX_BATCH
    assert (await face.post("/schedule/batch", {"jobs": [{}] * most})).status_code == 200
    refused(await face.post("/schedule/batch", {"jobs": [{}] * (most + 1)}), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("name", "body", "fits"),
    [
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1}, True),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "workflow": None, "scheduledFor": None}, True),
        ("ScheduleRequest", {"functionPath": "p", "workflow": "w", "delayMs": 1}, False),
        ("ScheduleRequest", {"delayMs": 1}, False),
        ("ScheduleRequest", {"functionPath": "p"}, False),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "scheduledFor": DUE}, False),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "maxConcurrency": 1}, False),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "maxConcurrency": None}, True),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "retry": {"maxRetries": 1, "maxAttempts": 1}}, False),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "retry": {"maxRetries": 1, "maxAttempts": None}}, True),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "colour": 1}, False),
        ("DefinitionRequest", {"functionPath": "p", "everyMs": 1_000, "cron": None}, True),
        ("DefinitionRequest", {"functionPath": "p", "everyMs": 1_000, "cron": "* * * * *"}, False),
        ("DefinitionRequest", {"functionPath": "p", "everyMs": 1_000, "at": DUE}, False),
        ("DefinitionRequest", {"functionPath": "p"}, False),
        ("DefinitionRequest", {"everyMs": 1_000}, False),
        ("DefinitionRequest", {"workflow": "w", "at": DUE, "catchUpLimit": None, "misfire": "all"}, True),
        ("DefinitionRequest", {"workflow": "w", "at": DUE, "maxConcurrency": 1}, False),
        ("RescheduleRequest", {"id": "a"}, False),
        ("RescheduleRequest", {"id": "a", "delayMs": 1, "scheduledFor": DUE}, False),
        ("CancelAllRequest", {}, False),
        ("CancelAllRequest", {"all": False}, False),
        ("CancelAllRequest", {"all": True}, True),
        ("CancelAllRequest", {"all": True, "pool": "p"}, False),
        ("CancelAllRequest", {"all": False, "label": "p"}, True),
        ("RetryAllRequest", {"all": True, "since": None}, True),
        ("RetryAllRequest", {"all": True, "since": DUE}, False),
        ("PoolRequest", {"name": "p"}, False),
        ("PoolRequest", {"name": "p", "paused": None, "maxConcurrency": 0}, True),
    ],
)
async def test_members_belong_together_as_documented(face: Face, name: str, body: Any, fits: bool) -> None:
    method, path, _ = BODIES[name]
    answer = await face.client.request(method, path, json=body)
    assert (answer.status_code == 200) == fits, answer.text
    assert checked_schema(DOCUMENT, {"$ref": f"#/components/schemas/{name}"}).is_valid(body) == fits


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
            media = content["content"]["application/json"]
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


@pytest.mark.parametrize("name", EXAMPLES)
async def test_every_example_works(name: str) -> None:
    """Sent to a real app that stands as the example supposes, the answer has the shape of the example's."""
    [(method, path, one)] = [found for found in operations(DOCUMENT) if found[2]["operationId"] == name] or [
        found for found in operations(DOCUMENT) if found[2]["operationId"] == f"{name}_in_instance"
    ]
    app = Accepting()
    receiver: Any = app if name in ("complete", "extend", "pool") else good_receiver
    if "dead" in name or "redrive" in name:
        receiver = dead_receiver
    [listed] = EXAMPLES["catalog"].answer["entries"]
    catalog = {listed["functionPath"]: listed["args"]} if name == "catalog" else None
    async with open_face(transport=AsgiTransport(receiver), catalog=catalog) as face:
        given = await stand(face, app, name)
        query = {
            parameter["name"]: given.get(parameter["name"], parameter["example"])
            for parameter in one.get("parameters", [])
            if parameter["in"] == "query" and "example" in parameter
        }
        body = EXAMPLES[name].request
        if body is not None and body.get("lease") == LEASE:
            body = {**body, "lease": given["lease"]}
        url = path.format(instance="tenant-a", redriveId=given.get("redriveId", ""), name="daily-report")
        answer = await face.client.request(method, url, params=query, json=body)
        assert answer.status_code == 200, answer.text
        assert shape_of(answer.json()) == shape_of(EXAMPLES[name].answer), answer.text


async def stand(face: Face, app: Accepting, name: str) -> dict[str, Any]:
    """Make the app stand as an example supposes; what of it only the app knows."""
    job = {**EXAMPLES["schedule"].request}
    if name in ("cancel", "get", "list", "status", "why", "cancel_all", "reschedule"):
        await face.schedule(**job)
    elif name in ("remove", "instances"):
        await face.schedule("/i/tenant-a", **job)
    elif name == "history":
        await face.schedule(id="invoice-42", delayMs=0)
        await face.until("invoice-42", None)
    elif name == "delete_pool":
        await face.client.put("/pool", json={"name": "stripe", "maxConcurrency": 2})
    elif name.startswith("schedules_") and name not in ("schedules_put", "schedules_preview"):
        await stand_scheduled(face, name)
    elif name in ("complete", "extend"):
        return {"lease": await accepted(face, app, "invoice-42")}
    elif name == "pool":
        await accepted(face, app, "invoice-42", pool="stripe")
    elif "dead" in name or "redrive" in name:
        pool = {"pool": "stripe"} if name == "dead" else {}
        await face.schedule(id="invoice-41", functionPath="invoices:send", args={"invoice": 41}, delayMs=0, **pool)
        await face.until("invoice-41", "dead")
        if "redrive" in name:
            return (await face.post("/dead/retry-all", {"all": True})).json()  # type: ignore[no-any-return]
    return {}


async def stand_scheduled(face: Face, name: str) -> None:
    url = "/schedules/daily-report"
    definition = dict(EXAMPLES["schedules_put"].request)
    if name == "schedules_occurrences":  # a slot that is long past, and one that stays live
        del definition["cron"]
        definition |= {"at": 1_700_000_000_000, "misfire": "skip", "pool": "held"}
        await face.client.put("/pool", json={"name": "held", "paused": True})
    await face.client.put(url, json=definition)
    if name == "schedules_resume":
        await face.post(f"{url}/pause")
    if name == "schedules_occurrences":
        async with asyncio.timeout(10):
            while True:
                if (await face.get(f"{url}/occurrences")).json()["occurrences"]:
                    break
                await asyncio.sleep(0.01)
        await face.post(f"{url}/trigger")


def test_no_schema_shows_names_of_python() -> None:
    for name, schema in SCHEMAS.items():
        assert not re.search(r"`[a-z]+_[a-z_]+`", schema.get("description", "")), name
        assert not [member for member in schema.get("properties", {}) if "_" in member], name
