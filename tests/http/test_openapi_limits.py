"""`GET /openapi.json` says what requests may hold: its limits are those of the checks, tried on both sides of each."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import jsonschema_rs
import pytest

from tests.http.http_client import DUE, SECRET, HttpClient, open_http_client, refused
from tests.http.openapi_document import checked_schema, operations
from tocsin import Origin
from tocsin.actors.http.examples import EXAMPLES
from tocsin.actors.http.openapi import document
from tocsin.actors.http.parameters import KEY_MAX
from tocsin.actors.http.shapes import NOT_BLANK, ORIGIN
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.dispatch.instants import SMALLEST_MS

pytestmark = pytest.mark.anyio

DOCUMENT = {**document(tokens=True), "servers": [{"url": "/"}]}
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
ELSEWHERE = {
    "schedules",
    "instanceName",
    "retry",
    "error",
    "jobs",
    "args",
    "result",
    "cron",
    "timezone",
    "then",
    "group",
    "worker",
    "queues",
    "rate",
    "per",
    "start",
    "end",
}
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
    "DeadCancelAllRequest": ("POST", "/dead/cancel-all", {"pool": "p"}),
    "UndoRequest": ("POST", "/undo", {"actionId": "a"}),
    "IdRequest": ("POST", "/cancel", {"id": "a"}),
    "CompleteRequest": ("POST", "/complete", {"id": "a", "lease": "1.2.3"}),
    "ExtendRequest": ("POST", "/extend", {"id": "a", "lease": "1.2.3", "leaseMs": 5_000}),
    "DefinitionRequest": ("PUT", "/schedules/a", {"functionPath": "p", "cron": "0 9 * * *"}),
    "RegisterRequest": (
        "PUT",
        "/owners/a/schedules",
        {"schedules": [{"name": "a", "functionPath": "p", "cron": "0 9 * * *"}]},
    ),
    "RevisionRequest": ("POST", "/schedules/a/pause", {}),
    "TriggerRequest": ("POST", "/schedules/a/trigger", {}),
    "BackfillRequest": ("POST", "/schedules/a/backfill", {"start": DUE, "end": DUE + 1}),
    "ClaimRequest": ("POST", "/queues/*/claim", {}),
    "SnapshotRequest": ("POST", "/workers", EXAMPLES["announce"].request),
    "GroupRequest": ("POST", "/groups", {"name": "p"}),
    "PoolRequest": ("PUT", "/pool", {"name": "p", "maxConcurrency": 1}),
    "QueueRequest": ("PUT", "/queues/p", {"fair": True}),
    "ClockRequest": ("PUT", "/clock", {"at": DUE}),
    "AdvanceRequest": ("POST", "/clock/advance", {"byMs": 0}),
    "InstanceRequest": ("PUT", "/instance", {"paused": False}),
    "SealRequest": ("PUT", "/seal", {"move": "m", "to": "https://other.example"}),
}
BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("ScheduleRequest", "delayMs"): {"scheduledFor": None},
    ("ScheduleRequest", "expiresAt"): {"scheduledFor": SMALLEST_MS},
    ("ScheduleRequest", "workflow"): {"functionPath": None},
    ("ScheduleRequest", "maxConcurrency"): {"pool": "p"},
    ("ScheduleRequest", "debounceMs"): {"scheduledFor": None, "id": "a"},
    ("ScheduleRequest", "maxWaitMs"): {"scheduledFor": None, "id": "a", "debounceMs": 5},
    ("ScheduleRequest", "throttleMs"): {"id": "a"},
    ("ScheduleRequest", "onThrottle"): {"id": "a", "throttleMs": 5},
    ("FollowingRequest", "workflow"): {"functionPath": None},
    ("FollowingRequest", "maxConcurrency"): {"pool": "p"},
    ("DefinitionRequest", "everyMs"): {"cron": None},
    ("DefinitionRequest", "at"): {"cron": None},
    ("DefinitionRequest", "workflow"): {"functionPath": None},
    ("DefinitionRequest", "maxConcurrency"): {"pool": "p"},
    ("OwnedRequest", "everyMs"): {"cron": None},
    ("OwnedRequest", "at"): {"cron": None},
    ("OwnedRequest", "workflow"): {"functionPath": None},
    ("OwnedRequest", "maxConcurrency"): {"pool": "p"},
    ("CompleteRequest", "error"): {"ok": False},
    ("RescheduleRequest", "delayMs"): {"scheduledFor": None},
    ("AdvanceRequest", "to"): {"byMs": None},
    ("CancelAllRequest", "all"): {"pool": None},
    ("RetryAllRequest", "all"): {"pool": None},
    ("DeadCancelAllRequest", "all"): {"pool": None},
}
"""What else stands in the body while a member is tried."""


INSIDE = {
    "RetryRequest": "ScheduleRequest",
    "FollowingRequest": "ScheduleRequest",
    "OwnedRequest": "RegisterRequest",
    "RateRequest": "PoolRequest",
    "WorkerRequest": "ClaimRequest",
    "WorkerJobRequest": "SnapshotRequest",
}
"""Which body a part of one is tried in."""


def edges(schema: dict[str, Any]) -> Iterator[Any]:
    """Values at the limits of a schema, just beyond them, and of other types."""
    for one in schema.get("oneOf", ()):
        yield from edges(one)
    if "oneOf" in schema:
        return
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "minimum" in schema:
        yield from (schema["minimum"], schema["minimum"] - 1, schema["maximum"], schema["maximum"] + 1, 1.5)
    if "string" in kinds:
        most = schema.get("maxLength", 300)
        yield from (*(one for one in schema.get("enum", ()) if one), "x", "x" * most, "x" * (most + 1))
        yield from ("", " ", "a b", "-a", "__a", "_a", ".a", "a:b", "é", "a\n", "a/b", "\u00a0", "\ufeff", "\x1c")
    if "array" in kinds:
        yield from (["x"] * schema["maxItems"], ["x"] * (schema["maxItems"] + 1), ["a b"], [], [5])
    if "properties" in schema:
        inner = schema["properties"]
        needed = dict.fromkeys(schema["required"], "x")
        yield from (needed, {**needed, "unknown": 1})
        yield from ({**needed, name: value} for name, one in inner.items() if "type" in one for value in edges(one))
    yield from (True, False, "true", 5, None, {}, [[]])


@pytest.fixture
async def http_client() -> AsyncIterator[HttpClient]:
    """Of a host that has an origin of each name that the document allows and a test tries."""
    names = [one for one in edges(ORIGIN) if jsonschema_rs.is_valid(ORIGIN, one)]
    origins = {name: Origin(url="https://origin.example", secrets=[SECRET]) for name in names}
    async with open_http_client(origins=origins) as opened:
        yield opened


@pytest.mark.parametrize(("name", "member", "schema"), list(fields()))
async def test_each_member_is_taken_up_to_its_limit_and_no_further(
    http_client: HttpClient, name: str, member: str, schema: dict[str, Any]
) -> None:
    """The app takes what the document allows, and nothing else: no limit stands in two places."""
    request = INSIDE.get(name, name)
    method, path, body = BODIES[request]
    allows = checked_schema(DOCUMENT, {"$ref": f"#/components/schemas/{request}"}).is_valid
    found = set()
    for n, value in enumerate(edges(schema)):
        if (request, member, value) == ("ScheduleRequest", "expiresAt", SMALLEST_MS):
            continue  # it must be after the due instant, which no schema can say
        sent = {**body, **BESIDE.get((request, member), {}), member: value}
        if name == "RetryRequest":
            sent = {**body, "retry": {member: value}}
        elif name == "FollowingRequest":
            follower = {"functionPath": "q", **BESIDE.get((name, member), {}), member: value}
            sent = {**body, "then": [{"functionPath": "q", "then": [follower]}]}
        elif name == "RateRequest":
            sent = {**body, "rate": {"limit": 5, member: value}}
        elif name == "OwnedRequest":
            owned = {**body["schedules"][0], **BESIDE.get((name, member), {}), member: value}
            sent = {"schedules": [owned]}
        elif name == "WorkerJobRequest":
            sent = {**body, "jobs": [{"id": "a", "attempt": 1, "startedAt": DUE, member: value}]}
        elif name == "WorkerRequest":
            sent = {**body, "worker": {"id": "w", member: value}}
        if request == "ClaimRequest":  # so that it waits for nothing
            await http_client.schedule(f"/i/{n}", queue="there-is-one", delayMs=0)
        answer = await http_client.client.request(method, f"/i/{n}{path}", json=sent)
        # Nobody has that lease (409), no schedule is at that revision (409), or there is none (404).
        assert answer.status_code in ((200, 404, 409) if allows(sent) else (400,)), (sent, answer.text)
        found.add(allows(sent))
    assert found == {True, False}


def test_what_is_blank_to_the_check_is_blank_to_the_document() -> None:
    blank = {chr(one) for one in range(0x110000) if chr(one).isspace()}
    assert {chr(one) for one in range(0x110000) if not re.match(NOT_BLANK, chr(one))} == blank


async def test_the_idempotency_key_has_the_documented_length(http_client: HttpClient) -> None:
    [schema] = [
        parameter["schema"]
        for parameter in DOCUMENT["paths"]["/schedule"]["post"]["parameters"]
        if parameter["name"] == "Idempotency-Key"
    ]
    assert schema["maxLength"] == KEY_MAX
    for size, status in ((1, 200), (KEY_MAX, 200), (KEY_MAX + 1, 400)):
        body = {"functionPath": "p", "scheduledFor": DUE}
        answer = await http_client.post("/schedule", body, headers={"idempotency-key": "k" * size})
        assert answer.status_code == status


def as_sent(value: str, schema: dict[str, Any]) -> str | int | bool:
    """The value that the text of a query parameter stands for."""
    if "minimum" in schema and value.isascii() and value.isdecimal():
        return int(value)
    flags = {"true": True, "false": False} if schema.get("type") == "boolean" else {}
    return flags.get(value, value)


async def test_query_parameters_have_the_documented_limits(http_client: HttpClient) -> None:
    await http_client.client.put("/schedules/daily-report", json=EXAMPLES["schedules_put"].request)
    for method, path, one in operations(DOCUMENT):
        if method != "GET" or path.startswith("/i/"):
            continue
        path = path.format(redriveId="a", backfillId="a", name="daily-report", group="a")
        required = {
            parameter["name"]: parameter["example"]
            for parameter in one.get("parameters", [])
            if parameter["in"] == "query" and parameter.get("required")
        }
        for parameter in one.get("parameters", []):
            if parameter["in"] != "query" or parameter["name"] in {"cursor", *ELSEWHERE, "expr"}:
                continue
            for value in (*map(str, edges(parameter["schema"])), "false"):
                fits = jsonschema_rs.is_valid(parameter["schema"], as_sent(value, parameter["schema"]))
                answer = await http_client.get(path, params={**required, parameter["name"]: value})
                nobody = path in ("/result", "/dead/redrives/a", "/groups/a")  # of which nothing is known
                taken = answer.status_code in ((200, 404) if nobody else (200,))
                assert taken == fits, (path, parameter["name"], value, answer.text)


async def test_a_batch_has_the_documented_length(http_client: HttpClient) -> None:
    most = SCHEMAS["BatchRequest"]["properties"]["jobs"]["maxItems"]
    assert most == arguments.MAX_BATCH
    assert (await http_client.post("/schedule/batch", {"jobs": [{}] * most})).status_code == 200
    refused(await http_client.post("/schedule/batch", {"jobs": [{}] * (most + 1)}), 400, "INVALID_INPUT")


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
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "then": [{"workflow": "w"}]}, True),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "then": [{}]}, False),
        (
            "ScheduleRequest",
            {"functionPath": "p", "delayMs": 1, "then": [{"functionPath": "q", "workflow": "w"}]},
            False,
        ),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "then": [{"functionPath": "q"}] * 21}, False),
        ("ScheduleRequest", {"functionPath": "p", "delayMs": 1, "then": None, "queue": None}, True),
        ("ClaimRequest", {"worker": {}}, False),
        ("ClaimRequest", {"worker": None, "exclude": None, "waitMs": None}, True),
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
        ("DeadCancelAllRequest", {"all": True, "ids": ["a"]}, False),
        ("DeadCancelAllRequest", {"ids": ["a"], "pool": "p"}, True),
        ("PoolRequest", {"name": "p"}, False),
        ("PoolRequest", {"name": "p", "rate": {"limit": 100, "per": "1m", "burst": 5}}, True),
        ("PoolRequest", {"name": "p", "rate": {"per": "1m"}}, False),
        ("PoolRequest", {"name": "p", "rate": "none"}, True),
        ("PoolRequest", {"name": "p", "rate": "100/1m"}, False),
        ("PoolRequest", {"name": "p", "weights": {"alice": 3}, "fair": True, "maxPerKey": 0}, True),
        ("PoolRequest", {"name": "p", "weights": {"alice": 0}}, False),
        ("PoolRequest", {"name": "p", "paused": None, "maxConcurrency": 0}, True),
    ],
)
async def test_members_belong_together_as_documented(http_client: HttpClient, name: str, body: Any, fits: bool) -> None:
    method, path, _ = BODIES[name]
    answer = await http_client.client.request(method, path, json=body)
    assert (answer.status_code == 200) == fits, answer.text
    assert checked_schema(DOCUMENT, {"$ref": f"#/components/schemas/{name}"}).is_valid(body) == fits
