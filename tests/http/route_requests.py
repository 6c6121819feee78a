"""One good request for each route, and who may make it; for tests of who is let in."""

from __future__ import annotations

from typing import Any

import httpx

from tests.http.http_client import DUE
from tocsin.actors.http.examples import EXAMPLES

SCOPES = ("read", "schedule", "work", "operate", "admin")
TOKENS = [f"{scope}er:{scope}:secret-{scope}" for scope in SCOPES]
LIMITED = "tenant:read+schedule@tenant-*:secret-tenant"
JOB = {"functionPath": "p", "scheduledFor": DUE}
REQUESTS: dict[str, tuple[str, Any, set[str]]] = {
    # First, while the instance is new.
    "/clock": ("PUT", {"at": 1_900_000_000_000}, {"admin"}),
    "/clock?waitMs=0": ("GET", None, {"read"}),
    "/clock/advance": ("POST", {"byMs": 1_000}, {"operate"}),
    "/clock/freeze": ("POST", None, {"operate"}),
    "/schedule": ("POST", JOB, {"schedule"}),
    "/schedule/batch": ("POST", {"jobs": [JOB]}, {"schedule"}),
    "/cancel": ("POST", {"id": "a"}, {"schedule", "operate"}),
    "/get?id=a": ("GET", None, {"read"}),
    "/list": ("GET", None, {"read"}),
    "/dead": ("GET", None, {"read"}),
    "/dead/retry": ("POST", {"id": "a"}, {"operate"}),
    "/dead/cancel": ("POST", {"id": "a"}, {"operate"}),
    "/status": ("GET", None, {"read"}),
    "/changes?waitMs=0": ("GET", None, {"read"}),
    "/activity": ("GET", None, {"read"}),
    "/why?id=a": ("GET", None, {"read"}),
    "/history?id=a": ("GET", None, {"read"}),
    "/cancel-all": ("POST", {"all": True}, {"operate"}),
    "/reschedule": ("POST", {"id": "a", "delayMs": 1}, {"schedule", "operate"}),
    "/dead/retry-all": ("POST", {"all": True}, {"operate"}),
    "/dead/redrives/x": ("GET", None, {"read"}),
    "/dead/redrives/y": ("DELETE", None, {"operate"}),
    "/schedules/s": ("PUT", {"functionPath": "p", "everyMs": 10**9}, {"schedule"}),
    "/owners/o/schedules": ("PUT", {"schedules": [{"name": "s", "functionPath": "p", "everyMs": 10**9}]}, {"schedule"}),
    "/schedules/s?": ("GET", None, {"read"}),
    "/schedules": ("GET", None, {"read"}),
    "/schedules/s/pause": ("POST", {}, {"schedule", "operate"}),
    "/schedules/s/resume": ("POST", {}, {"schedule", "operate"}),
    "/schedules/s/trigger": ("POST", {}, {"schedule", "operate"}),
    "/schedules/s/backfill": ("POST", {"start": 10**12, "end": 10**12 + 10**9}, {"operate"}),
    "/schedules/s/backfills": ("GET", None, {"read"}),
    "/schedules/s/backfills/z": ("DELETE", None, {"operate"}),
    "/schedules/s/occurrences": ("GET", None, {"read"}),
    "/schedules/s?cancelPending=false": ("DELETE", None, {"schedule", "operate"}),
    "/cron/preview?expr=*+*+*+*+*": ("GET", None, {"read"}),
    "/queues/q/claim": ("POST", {"waitMs": 0}, {"work"}),
    "/workers": ("POST", EXAMPLES["announce"].request, {"work"}),
    "/workers?limit=5": ("GET", None, {"read"}),
    "/queues": ("GET", None, {"read"}),
    "/queues/q": ("PUT", {"fair": True}, {"operate"}),
    "/pending?prefix=p": ("GET", None, {"read"}),
    "/result?id=a": ("GET", None, {"read"}),
    "/dead/groups": ("GET", None, {"read"}),
    "/dead/cancel-all": ("POST", {"all": True}, {"operate"}),
    "/undo": ("POST", {"actionId": "none"}, {"operate"}),
    "/audit": ("GET", None, {"read"}),
    "/catalog": ("GET", None, {"read"}),
    "/pool?name=p": ("GET", None, {"read"}),
    "/pool": ("PUT", {"name": "p", "paused": True}, {"operate"}),
    "/pool?name=q": ("DELETE", None, {"operate"}),
    "/groups": ("POST", {"name": "g", "then": [{"functionPath": "p"}]}, {"schedule"}),
    "/groups?limit=5": ("GET", None, {"read"}),
    "/groups/g": ("GET", None, {"read"}),
    "/groups/g/members": ("GET", None, {"read"}),
    "/groups/g/seal": ("POST", {}, {"schedule"}),
    "/groups/h/cancel": ("POST", {}, {"operate"}),
    "/pool/free": ("POST", {"id": "a"}, {"operate"}),
    "/instance": ("PUT", {"paused": True}, {"admin"}),
    "?confirm=t": ("DELETE", None, {"admin"}),
}
"""One good request to the instance `t` for each route; `test_scopes` asks who may make which."""
BY_LEASE = {"/complete", "/extend"}
ABSENT = {
    *(path for path, (method, *_) in REQUESTS.items() if path.startswith("/schedules/s") and method != "PUT"),
    "/groups/g",
    "/groups/g/seal",
} - {"/schedules/s/backfills/z"}
"""Asked for alone, there is no such schedule, or group."""
FROZEN = {"/clock/advance", "/clock/freeze"}
"""Asked for alone, there is no such clock."""
ANSWERED = {"/undo": 404, "/dead/redrives/x": 404, "/result?id=a": 404, "/groups/h/cancel": 404}
"""What is answered, if not 200."""


async def ask(client: httpx.AsyncClient, path: str, token: str | None = None, place: str = "/i/t") -> httpx.Response:
    method, body, _ = REQUESTS[path]
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return await client.request(method, place + path, json=body, headers=headers)
