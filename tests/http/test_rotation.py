"""Secrets and tokens given as callables: what they give now counts, for the next request and the next callback."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.http_client import DUE, ORIGIN, client_of, refused
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http import Caller, build_app
from tocsin.actors.scheduler.model.records import Initiator
from tocsin.dispatch.asgi_transport import AsgiTransport
from tocsin.dispatch.signing import Signer
from tocsin.errors import SettingsError, SignatureError

pytestmark = pytest.mark.anyio

OLD, NEW = b"the old signing secret of a test", b"the new signing secret of a test"
JOB = {"functionPath": "p", "scheduledFor": DUE}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


# ---- Tokens --------------------------------------------------------------------------------------


async def test_a_token_that_is_taken_away_opens_nothing_with_the_next_request(host: ActorHost) -> None:
    tokens = ["a:read:old-secret", "a:read:new-secret"]
    async with client_of(host.asgi(tokens=lambda: tokens)) as client:
        for secret in ("old-secret", "new-secret"):
            assert (await client.get("/status", headers=bearer(secret))).status_code == 200
        del tokens[0]
        refused(await client.get("/status", headers=bearer("old-secret")), 401, "UNAUTHENTICATED")
        assert (await client.get("/status", headers=bearer("new-secret"))).status_code == 200


async def test_what_is_wrong_or_empty_leaves_the_tokens_of_before(
    host: ActorHost, caplog: pytest.LogCaptureFixture
) -> None:
    given: list[Any] = ["ops:admin:hush-hush-1"]
    async with client_of(host.asgi(tokens=lambda: given[0])) as client:
        for wrong in ("", [], None, "ops:everything:hush-hush-2", ["hush-hush-3"], 7):
            given[0] = wrong
            for _ in range(2):
                assert (await client.get("/status", headers=bearer("hush-hush-1"))).status_code == 200
                refused(await client.get("/status"), 401, "UNAUTHENTICATED")
        assert len(caplog.records) == 4  # "", [] and None are one fault
        assert "hush" not in caplog.text
        given[0] = "ops:admin:hush-hush-4"
        refused(await client.get("/status", headers=bearer("hush-hush-1")), 401, "UNAUTHENTICATED")
        assert (await client.get("/status", headers=bearer("hush-hush-4"))).status_code == 200


async def test_an_app_without_tokens_begins_to_ask_for_them_and_never_ceases(host: ActorHost) -> None:
    tokens: list[str] = []
    with pytest.raises(SettingsError, match="anyone could use this app"):
        host.asgi(tokens=lambda: tokens)
    async with client_of(host.asgi(tokens=lambda: tokens, insecure=True)) as client:
        assert (await client.get("/status")).status_code == 200
        tokens.append("a:read:some-secret")
        refused(await client.get("/status"), 401, "UNAUTHENTICATED")
        tokens.clear()
        refused(await client.get("/status"), 401, "UNAUTHENTICATED")


async def test_a_caller_stays_the_same_while_its_secret_changes(host: ActorHost) -> None:
    """Its request with an Idempotency-Key is the same request, and its jobs are its own."""
    tokens = ["app:schedule:old-secret"]
    async with client_of(host.asgi(tokens=lambda: tokens)) as client:
        key = {"idempotency-key": "k"}
        first = (await client.post("/schedule", json=JOB, headers=bearer("old-secret") | key)).json()
        tokens[:] = ["app:schedule:old-secret", "app:schedule:new-secret"]
        again = (await client.post("/schedule", json=JOB, headers=bearer("new-secret") | key)).json()
    assert again == first
    found = await host.scheduler().get(first["id"])
    assert found is not None and found.initiator == Initiator(token="app")


# ---- Secrets -------------------------------------------------------------------------------------


async def test_what_waits_is_signed_with_the_secrets_in_force_when_it_fires(caplog: pytest.LogCaptureFixture) -> None:
    secrets: list[Any] = [OLD]
    seen: dict[str, tuple[dict[str, str], bytes]] = {}

    async def receiver(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen[headers["webhook-id"].partition(":")[0]] = (headers, (await receive())["body"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with ActorHost.open(
        "memory:", origin=ORIGIN, secrets=lambda: secrets, transport=AsgiTransport(receiver)
    ) as host:
        jobs = host.scheduler()
        for job_id, now in {"a": [OLD], "b": [NEW, OLD], "c": [], "d": [NEW]}.items():
            await jobs.run_at(DUE, "p", id=job_id)
            secrets[:] = now
            await jobs.reschedule(job_id, after=0)
            while await jobs.get(job_id):
                pass

    def genuine(job_id: str, *known: bytes) -> bool:
        headers, body = seen[job_id]
        try:
            Signer(known).verify(headers, body, now_s=int(headers["webhook-timestamp"]))
        except SignatureError:
            return False
        return True

    assert [(genuine(job_id, OLD), genuine(job_id, NEW)) for job_id in "abcd"] == [
        (True, False),
        (True, True),
        (True, True),  # none were given: those of before
        (False, True),
    ]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "secrets() gave none, where there were some before"
    ]


@pytest.mark.parametrize("secrets", [list, lambda: ["short"], lambda: 1 / 0])
def test_a_host_does_not_start_with_secrets_that_were_never_good(secrets: Any) -> None:
    with pytest.raises(SettingsError):
        ActorHost.open("memory:", origin="https://app.example", secrets=secrets)


# ---- Initiators ----------------------------------------------------------------------------------


class User:
    def __init__(self, said: str) -> None:
        self.identity = said


async def test_a_job_keeps_the_token_and_the_user_it_was_scheduled_by(host: ActorHost) -> None:
    users: list[Any] = []
    app = build_app(host, tokens="app:schedule+read:some-secret")

    async def with_user(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, **({"user": users[-1]} if users else {})}, receive, send)

    async def scheduled(route: str = "/schedule") -> Any:
        body = JOB if route == "/schedule" else {"jobs": [JOB]}
        value = (await client.post(route, json=body, headers={"idempotency-key": f"{len(users)}"})).json()
        job_id = value["id"] if "id" in value else value["results"][0]["id"]
        return (await client.get("/get", params={"id": job_id})).json()["record"].get("initiator")

    async with client_of(with_user, token="some-secret") as client:
        assert await scheduled() == {"token": "app"}
        users.append(User("alice"))
        assert await scheduled() == {"token": "app", "user": "alice"}
        assert await scheduled("/schedule/batch") == {"token": "app", "user": "alice"}
        users.append(User("half a \ud800 character"))
        assert await scheduled() == {"token": "app", "user": "half a \\ud800 character"}
        body = JOB | {"initiator": "mallory"}
        refused(await client.post("/schedule", json=body), 400, "INVALID_INPUT", "initiator")


async def test_without_a_token_and_a_user_a_job_has_no_initiator(host: ActorHost) -> None:
    async with client_of(host.asgi(insecure=True)) as client:
        job_id = (await client.post("/schedule", json=JOB)).json()["id"]
    found = await host.scheduler().get(job_id)
    assert found is not None and found.initiator is None


async def test_only_what_keeps_who_asked_asks_a_user_for_its_text(
    host: ActorHost, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("detached")

    app = build_app(host, insecure=True)

    async def with_user(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "user": Broken()}, receive, send)

    async with client_of(with_user) as client:
        assert (await client.get("/status")).status_code == 200
        assert (await client.post("/cancel", json={"id": "a"})).status_code == 200
        assert (await client.post("/reschedule", json={"id": "a", "delayMs": 0})).status_code == 200
        refused(await client.post("/dead/retry", json={"id": "a"}), 500, "INTERNAL")
        refused(await client.post("/schedule", json=JOB), 500, "INTERNAL")
    assert "detached" in caplog.text


def test_long_users_are_told_apart_in_little_room() -> None:
    one, other = (Caller(user="x" * 1_000 + end).identity[1] for end in "ab")
    assert one != other
    assert len(one) == len(other) == 256
    assert Caller(user="y" * 256).identity[1] == "y" * 256
