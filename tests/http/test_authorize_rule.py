"""The app's own rule, `authorize`: asked for every request, about the right thing; what it refuses does not happen."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.http.http_client import DUE, client_of, refused
from tests.http.route_requests import ANSWERED, JOB, REQUESTS, TOKENS, ask
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http import Caller
from tocsin.actors.http.examples import EXAMPLES
from tocsin.errors import UnauthenticatedError

pytestmark = pytest.mark.anyio


class Rule:
    """Remembers what it was asked; says yes but to the resource `no`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Caller, str, str, str | None]] = []

    def __call__(self, caller: Caller, action: str, instance: str, resource: str | None) -> bool:
        self.asked.append((caller, action, instance, resource))
        return resource != "no"


async def test_the_rule_is_asked_for_every_request(host: ActorHost) -> None:
    rule = Rule()
    async with client_of(host.asgi(authorize=rule), base="http://app.example") as client:
        for path in REQUESTS:
            assert (await ask(client, path)).status_code == ANSWERED.get(path, 200)
    assert [asked[1:] for asked in rule.asked] == [
        ("clock.create", "t", None),
        ("clock", "t", None),
        ("clock.advance", "t", None),
        ("clock.freeze", "t", None),
        ("schedule", "t", "p"),
        ("schedule", "t", "p"),
        ("cancel", "t", "a"),
        ("get", "t", "a"),
        ("list", "t", None),
        ("dead", "t", None),
        ("dead_retry", "t", "a"),
        ("dead_cancel", "t", "a"),
        ("status", "t", None),
        ("changes", "t", None),
        ("activity", "t", None),
        ("why", "t", "a"),
        ("history", "t", "a"),
        ("cancel_all", "t", None),
        ("reschedule", "t", "a"),
        ("dead_retry_all", "t", None),
        ("redrive", "t", "x"),
        ("redrive_stop", "t", "y"),
        ("schedules.put", "t", "s"),
        ("schedule", "t", "p"),
        ("schedules.register", "t", "o"),
        ("schedule", "t", "p"),
        ("schedules.get", "t", "s"),
        ("schedules.list", "t", None),
        ("schedules.pause", "t", "s"),
        ("schedules.resume", "t", "s"),
        ("schedules.trigger", "t", "s"),
        ("schedules.backfill", "t", "s"),
        ("schedules.backfills", "t", "s"),
        ("schedules.backfill_stop", "t", "s"),
        ("schedules.occurrences", "t", "s"),
        ("schedules.delete", "t", "s"),
        ("schedules.preview", "t", None),
        ("claim", "t", "q"),
        ("announce", "t", EXAMPLES["announce"].request["id"]),
        ("workers", "t", None),
        ("queues", "t", None),
        ("set_queue", "t", "q"),
        ("pending", "t", "p"),
        ("result", "t", "a"),
        ("dead_groups", "t", None),
        ("dead_cancel_all", "t", None),
        ("undo", "t", "none"),
        ("audit", "t", None),
        ("catalog", "t", None),
        ("pool", "t", "p"),
        ("set_pool", "t", "p"),
        ("delete_pool", "t", "q"),
        ("groups.open", "t", "g"),
        ("schedule", "t", "p"),
        ("groups.list", "t", None),
        ("groups.get", "t", "g"),
        ("groups.members", "t", "g"),
        ("groups.seal", "t", "g"),
        ("groups.cancel", "t", "h"),
        ("free_slot", "t", "a"),
        ("pause", "t", None),
        ("remove", "t", None),
    ]
    assert rule.asked[0][0].headers["host"] == "app.example"


@pytest.mark.parametrize("path", REQUESTS)
async def test_what_the_rule_refuses_does_not_happen(host: ActorHost, path: str) -> None:
    await host.scheduler("t").run_at(DUE, "p", id="a")

    async def never(*_: Any) -> bool:
        return False

    async with client_of(host.asgi(authorize=never)) as client:
        answer = await ask(client, path)
        if path == "/schedule/batch":
            assert [one["error"]["code"] for one in answer.json()["results"]] == ["FORBIDDEN"]
        else:
            refused(answer, 403, "FORBIDDEN", "this caller may not")
    status = await host.scheduler("t").status()
    assert (status.backlog, status.dead) == (1, 0)
    assert (await host.scheduler("t").schedules.list()).schedules == []


async def test_a_rule_about_paths_holds_for_schedules_too(host: ActorHost) -> None:
    rule = Rule()
    async with client_of(host.asgi(authorize=rule)) as client:
        for name, path in (("no", "p"), ("s", "no")):
            answer = await client.put(f"/schedules/{name}", json={"functionPath": path, "everyMs": 1_000})
            refused(answer, 403, "FORBIDDEN")
    assert [asked[1:] for asked in rule.asked] == [
        ("schedules.put", "default", "no"),
        ("schedules.put", "default", "s"),
        ("schedule", "default", "no"),
    ]


async def test_a_set_of_schedules_is_asked_for_by_its_owner_and_its_targets(host: ActorHost) -> None:
    rule = Rule()
    async with client_of(host.asgi(authorize=rule)) as client:
        for owner, path in (("no", "p"), ("app", "no")):
            one = {"name": "s", "functionPath": path, "everyMs": 1_000}
            answer = await client.put(f"/owners/{owner}/schedules", json={"schedules": [one]})
            refused(answer, 403, "FORBIDDEN")
    assert [asked[1:] for asked in rule.asked] == [
        ("schedules.register", "default", "no"),
        ("schedules.register", "default", "app"),
        ("schedule", "default", "no"),
    ]
    assert (await host.scheduler().schedules.list()).schedules == []


async def test_a_batch_asks_once_for_each_target(host: ActorHost) -> None:
    rule = Rule()
    jobs = [{**JOB, "functionPath": path} for path in ("p", "no", "p", "q", "no")]
    async with client_of(host.asgi(authorize=rule)) as client:
        results = (await client.post("/schedule/batch", json={"jobs": jobs})).json()["results"]
    assert ["id" in one for one in results] == [True, False, True, True, False]
    assert [asked[3] for asked in rule.asked] == ["p", "no", "q"]


async def test_a_rule_that_fails_lets_nobody_pass(host: ActorHost, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> bool:
        raise RuntimeError("hush")

    def polite(*_: Any) -> bool:
        raise UnauthenticatedError("log in first")

    with caplog.at_level(logging.CRITICAL, "tocsin.http"):
        async with client_of(host.asgi(authorize=broken)) as client:
            answer = await ask(client, "/status")
    assert "hush" not in answer.text
    refused(answer, 500, "INTERNAL")
    async with client_of(host.asgi(authorize=polite)) as client:
        refused(await ask(client, "/status"), 401, "UNAUTHENTICATED", "log in first")


async def test_with_tokens_too_both_must_agree(host: ActorHost) -> None:
    rule = Rule()
    async with client_of(host.asgi(tokens=TOKENS, authorize=rule)) as client:
        refused(await ask(client, "/status"), 401, "UNAUTHENTICATED")
        refused(await ask(client, "/status", "secret-work"), 403, "FORBIDDEN")
        assert rule.asked == []
        assert (await ask(client, "/status", "secret-read")).status_code == 200
        assert rule.asked[0][0].name == "reader"
        refused(await client.get("/get?id=no", headers={"authorization": "Bearer secret-read"}), 403, "FORBIDDEN")
    assert "secret-read" not in repr(rule.asked)


@pytest.mark.parametrize("path", ["/schedules/s/pause", "/schedules/s/trigger", "/queues/q/claim", "/ws-token"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://app.example:3000", "content-type": "text/plain;charset=utf-8"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "origin": "http://app.example"},
    ],
)
async def test_a_page_of_another_origin_changes_nothing_by_the_cookies_of_the_app(
    host: ActorHost, path: str, headers: dict[str, str]
) -> None:
    jobs = host.scheduler("default")
    await jobs.schedules.put("s", "p", every="1h")
    await jobs.run_after(0, "p", id="j", queue="q")
    rule = Rule()
    async with client_of(host.asgi(authorize=rule), base="http://app.example") as client:
        refused(await client.post(path, headers=headers), 403, "FORBIDDEN", "other origins")
        assert rule.asked == []
        for allowed in ({**headers, "content-type": "application/json"}, {"origin": "http://app.example"}, {}):
            answer = await client.post(path, headers=allowed, content=b"{}" if "content-type" in allowed else b"")
            assert answer.status_code == 200, answer.text
