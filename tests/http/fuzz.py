"""Schemathesis against the real app, in this process: `python -m tests.http.fuzz --examples 2000`.

It sends what the OpenAPI document allows and what it does not, and holds every answer against the document: no
server error, documented statuses, types, headers and schemas, wrong requests refused, right ones accepted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, unquote, urlsplit

import hypothesis
import jsonschema_rs
import schemathesis
from hypothesis import HealthCheck
from hypothesis import seed as seeded
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core import NotSet
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from tests.http.http_client import SECRET as SIGNING
from tests.http.http_client import open_host
from tests.http.openapi_document import checked_schema
from tocsin import Origin
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http import operations_queues
from tocsin.actors.scheduler.model.validation import CLAIM_WAIT_MS

SECRET = "sesame-sesame-sesame"
BEARER = {"authorization": f"Bearer {SECRET}"}
JSON = "application/json"
NAMED, ALLOWED = "billing", "https://hooks.example/in"
"""The origin that the host has beside its own, and a URL that it allows."""
NEVER_REFUSED_WHOLE = {"submit_many", "submit_many_in_instance"}
"""Each job of a batch is refused by itself, in an answer that is 200."""


class Bridge:
    """An ASGI app that answers in the loop of the host, whatever loop asks: Schemathesis has a new one each time."""

    def __init__(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._loop = app, loop
        self.answers: Counter[int] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        asked = [await receive()]
        while asked[-1].get("more_body"):
            asked.append(await receive())
        answered = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ask(scope, asked), self._loop))
        for message in answered:
            self.answers[message.get("status", 0)] += 1
            await send(message)

    async def _ask(self, scope: Any, asked: list[Any]) -> list[Any]:
        answered: list[Any] = []
        over = asyncio.Event()

        async def receive() -> Any:
            if asked:
                return asked.pop(0)
            await over.wait()  # nobody hangs up before the answer
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            answered.append(message)

        await self._app(scope, receive, send)
        over.set()
        return answered

    async def _lifespan(self, receive: Any, send: Any) -> None:
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})


@contextmanager
def bridged(store: str) -> Iterator[tuple[Bridge, ActorHost]]:
    """The app of an open host that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="host")
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    origins = {NAMED: Origin(url="https://billing.example", secrets=[SIGNING])}
    opening = open_host(store, origins=origins, allow_urls=["https://hooks.example/"])
    host, _ = run(opening.__aenter__())
    try:
        with patch.object(operations_queues, "CLAIM_WAIT_S", 0.0):  # of claims that do not say how long to wait
            yield Bridge(host.asgi(tokens=f"ops:admin:{SECRET}"), loop), host
    finally:
        run(opening.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def fuzz(bridge: Bridge, examples: int, *, seed: int, only: Callable[[str], bool]) -> dict[str, int]:
    """How many requests each operation was asked with; what Schemathesis finds is raised."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", bridge)
    load_all_checks()
    asked: dict[str, int] = {}
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        name = operation.definition.raw["operationId"]
        body = operation.definition.raw.get("requestBody", {"content": {JSON}})
        if only(name) and JSON in body["content"]:  # lines of an export have tests of their own
            for mode in GenerationMode:
                asked[name] = asked.get(name, 0) + _fuzz_one(operation, name, mode, examples, seed)
    return asked


def _fuzz_one(operation: Any, name: str, mode: GenerationMode, examples: int, seed: int) -> int:
    fits = fitting(operation)
    count = 0

    @seeded(seed)
    @hypothesis.settings(max_examples=examples, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal count
        hurry(case)
        if mode is GenerationMode.POSITIVE:
            repair(case, count)
        count += 1
        response = case.call(headers=BEARER)
        # ignored_auth takes every token sent for one of its own making: `test_access` asks without a right one.
        excluded = {"ignored_auth"}
        if name in NEVER_REFUSED_WHOLE or fits(case, response.request.url):
            excluded.add("negative_data_rejection")
        checks = CHECKS.get_by_names([one for one in CHECKS.get_all_names() if one not in excluded])
        case.validate_response(response, checks=checks, headers=BEARER)

    try:
        ask()
    except hypothesis.errors.Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, f"{name}: nothing fits the document"  # nothing can be wrong in it
    return count


def fitting(operation: Any) -> Callable[[Any, str], bool]:
    """Whether a request went out right after all: one that was wrong for want of a token, or in a query parameter
    that is empty and so not sent."""
    definition, document = operation.definition.raw, operation.schema.raw_schema
    known = {one["name"]: one for one in definition.get("parameters", []) if one["in"] == "query"}
    body = definition.get("requestBody")
    schema = body["content"]["application/json"]["schema"] if body else {}
    allows = checked_schema(document, schema).is_valid

    def right(name: str, text: str) -> bool:
        limits = known[name]["schema"]
        if limits["type"] == "boolean":
            return text in ("true", "false")
        typed = int(text) if limits["type"] == "integer" and text.isascii() and text.isdecimal() else text
        return jsonschema_rs.is_valid(limits, typed)

    def fits(case: Any, url: str) -> bool:
        sent = parse_qsl(urlsplit(url).query, keep_blank_values=True)
        query = dict(sent)
        return (
            len(query) == len(sent)
            and all(name in known and right(name, text) for name, text in query.items())
            and all(name in query for name, one in known.items() if one.get("required"))
            and all(
                jsonschema_rs.is_valid(one["schema"], unquote(str((case.path_parameters or {}).get(one["name"]))))
                for one in definition.get("parameters", [])
                if one["in"] == "path"
            )
            and (body is None or not_sent(case.body, body) or allows(jsonable(case.body)))
        )

    return fits


def not_sent(body: Any, described: Any) -> bool:
    """Where a body may be left out, that is right."""
    return isinstance(body, NotSet) and not described["required"]


def jsonable(body: Any) -> Any:
    """What is no JSON fits nothing; None does neither."""
    try:
        return json.loads(json.dumps(body))
    except (TypeError, ValueError):
        return None


def hurry(case: Any) -> None:
    """Who asks in earnest waits; here nobody does."""
    for holder in (case.body, case.query):
        if isinstance(holder, dict) and _fits_wait(holder.get("waitMs")):
            holder["waitMs"] = 0


def _fits_wait(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= CLAIM_WAIT_MS[1]


LAST = 999_999_999_999_999


def address(body: Any, instance: str) -> None:
    """The body, and what is to follow it: instances, origins and URLs that there are."""
    if not isinstance(body, dict):
        return
    if body.get("instanceName") is not None:
        body["instanceName"] = instance
    if isinstance(body.get("expiresAt"), (int, float)):
        body["expiresAt"] = LAST  # after it was due, whatever the delay
    place = next((name for name in ("queue", "origin", "url") if body.get(name) is not None), None)
    for name, there in (("origin", NAMED), ("url", ALLOWED)):
        if name in body and body[name] is not None:
            body[name] = there if name == place else None  # a job goes to one place
    for name in ("then", "onDead", "schedules"):
        for one in body.get(name) or ():
            address(one, instance)
    address(body.get("group"), instance)


def ends(body: dict[str, Any]) -> None:
    """What ends does so behind its start, and within an hour: only so many slots are run at once."""
    start, end = body.get("start"), body.get("end")
    if isinstance(start, (int, float)) and isinstance(end, (int, float)) and not start < end <= start + 3_600_000:
        body["start"] = min(start, end)
        body["end"] = min(start, end) + 3_600_000


def repair(case: Any, number: int) -> None:
    """What no schema can say: which instance is addressed, which cursors there are, which keys are new, what crons and
    zones are, where a schedule is, and that an end is behind its start."""
    addressed = unquote((case.path_parameters or {}).get("instance", "default"))
    address(case.body, addressed)
    if "owner" in (case.path_parameters or {}):
        case.path_parameters["owner"] = "app"  # so that there is room for a name behind it
    if isinstance(case.body, dict):
        ends(case.body)
        repair_rule(case.body)
        for place, one in enumerate(case.body.get("schedules") or ()):
            repair_rule(one)
            one["name"] = f"{place}"
        case.body.pop("revision", None)
        if unquote((case.path_parameters or {}).get("queue", "*")) != "*":
            case.body.pop("exclude", None)
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = f"{case.operation.label}-{number}"
    if case.query:
        case.query.pop("cursor", None)
        if "expr" in case.query:
            case.query |= {"expr": "*/5 * * * *", "timezone": "Asia/Kolkata"}
        if "confirm" in case.query:
            case.query["confirm"] = addressed


def repair_rule(body: dict[str, Any]) -> None:
    for name, right in (("cron", "*/5 * * * *"), ("timezone", "Asia/Kolkata")):
        if body.get(name) is not None:
            body[name] = right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="for each operation, right ones and wrong ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="operationIds")
    chosen = parser.parse_args()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, bridged(f"sqlite:///{Path(folder) / 'jobs.db'}") as (bridge, _):
        asked = fuzz(
            bridge, chosen.examples, seed=chosen.seed, only=lambda name: not chosen.only or name in chosen.only
        )
    for name, count in asked.items():
        print(f"{name:32} {count:7}")
    statuses = {status: count for status, count in sorted(bridge.answers.items()) if status}
    print(f"{sum(asked.values())} requests, answered {statuses}, in {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
