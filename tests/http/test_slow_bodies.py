"""Bodies that dawdle: a deadline for each, a bound for what strangers hold together, and who is told."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.http.http_client import HttpClient, client_of, open_host, refused
from tocsin.actors.http import crowd as crowds
from tocsin.actors.http.access import Caller
from tocsin.actors.http.crowd import Crowd, Unfinished
from tocsin.actors.http.errors import BodyCutOffError

pytestmark = pytest.mark.anyio

KB = 1024
TOKENS = ["worker:work:sesame-of-the-worker"]
BEARER = (b"authorization", b"Bearer sesame-of-the-worker")


class Dawdler:
    """A request to `/complete` whose body comes when it is told to."""

    def __init__(self, app: Any, *headers: tuple[bytes, bytes], **scope: Any) -> None:
        self.sent: list[Any] = []
        self._pieces: asyncio.Queue[Any] = asyncio.Queue()
        whole = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": "/complete",
            "raw_path": b"/complete", "root_path": "", "query_string": b"", "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers],
            "client": ("127.0.0.1", 1), "server": ("localhost", 80), "state": {}, **scope,
        }  # fmt: skip
        self.task = asyncio.create_task(app(whole, self._pieces.get, self._send))

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    async def piece(self, body: bytes, *, last: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": body, "more_body": not last})
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    async def leave(self) -> None:
        self._pieces.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(self.task, 5)


def small(app: Any, most: int, *, seconds: float = 0.0) -> Crowd:
    """The crowd of an app, with a smaller bound."""
    crowd: Crowd = app.state.crowd
    crowd._most = most
    return crowd


async def test_strangers_together_hold_no_more_than_the_bound_and_the_oldest_gives_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_host() as (host, _):
        app = host.asgi(tokens=TOKENS)
        crowd = small(app, 250 * KB)
        dawdlers = [Dawdler(app) for _ in range(5)]
        for one in dawdlers:
            await one.piece(b" " * 100 * KB)
            assert crowd.held <= 250 * KB
        assert [one.status for one in dawdlers] == [503, 503, 503, None, None]
        assert dawdlers[0].headers[b"retry-after"] == b"1"
        assert dawdlers[0].headers[b"connection"] == b"close"

        prompt = Dawdler(app)  # says at once what it has to say
        await prompt.piece(b'{"id": "a", "lease": "1.2.3"}', last=True)
        await asyncio.wait_for(prompt.task, 5)
        assert prompt.status == 409  # a lease that holds nothing, and no other fault

        async with client_of(app) as client:
            assert (await client.get("/readyz")).json() == {"ready": True, "reasons": ["BODIES_FULL"]}
        [said] = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert "the oldest ones are cut off" in said.getMessage()
        for one in dawdlers[3:]:
            await one.leave()
        assert crowd.held == 0


async def test_a_piece_that_comes_just_when_its_request_is_cut_off_takes_nobody_s_place_and_is_not_held() -> None:
    """In one round of the loop pieces of several requests may come, the cut-off one's behind the one it gave way to."""
    crowd, ends = Crowd(lambda: 0.0, most_bytes=100), asyncio.Event()

    async def reading(held: list[Unfinished]) -> None:
        async with crowd.reading() as one:
            held.append(one)
            await ends.wait()

    held: list[Unfinished] = []
    readers = [asyncio.create_task(reading(held)) for _ in range(3)]
    await asyncio.sleep(0)
    oldest, *others = held
    oldest.add(60)
    for one in others:
        one.add(30)
    oldest.add(90)  # it was cut off by what came just before

    assert [one.was_cut for one in held] == [True, False, False]
    assert crowd.held == 60
    await asyncio.wait(readers[:1], timeout=5)
    ends.set()
    answers = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(each) for each in answers] == [BodyCutOffError, type(None), type(None)]
    assert crowd.held == 0


async def test_who_has_a_token_shares_its_place_with_nobody() -> None:
    async with open_host() as (host, _):
        app = host.asgi(tokens=TOKENS)
        crowd = small(app, 250 * KB)
        known = Dawdler(app, BEARER)
        await known.piece(b" " * 400 * KB)
        strangers = [Dawdler(app) for _ in range(4)]
        for one in strangers:
            await one.piece(b" " * 100 * KB)
        assert (known.status, crowd.held) == (None, 200 * KB)
        assert [one.status for one in strangers] == [503, 503, None, None]
        for one in (known, *strangers[2:]):
            await one.leave()


@pytest.mark.parametrize("user", [None, "alice"])
async def test_in_an_app_with_a_rule_a_user_is_no_stranger(user: str | None) -> None:
    def anybody(caller: Caller, action: str, instance: str, resource: str | None) -> bool:
        return True

    async with open_host() as (host, _):
        app = host.asgi(authorize=anybody)
        small(app, 250 * KB)
        callers = [Dawdler(app, user=user) for _ in range(4)]
        for one in callers:
            await one.piece(b" " * 100 * KB)
        assert [one.status for one in callers] == ([503, 503, None, None] if user is None else [None] * 4)
        for one in callers:
            if one.status is None:
                await one.leave()


async def test_on_this_machine_alone_nobody_is_a_stranger(http_client: HttpClient) -> None:
    app = http_client.host.asgi(insecure=True)
    crowd = small(app, 1)
    callers = [Dawdler(app) for _ in range(3)]
    for one in callers:
        await one.piece(b" " * 100 * KB)
    assert [one.status for one in callers] == [None] * 3
    assert crowd.held == 0
    for one in callers:
        await one.leave()


@pytest.mark.parametrize("version", ["1.1", "2"])
@pytest.mark.parametrize("headers", [(), (BEARER,)], ids=["a stranger", "one with a token"])
async def test_a_body_has_a_deadline_however_it_drips(
    monkeypatch: pytest.MonkeyPatch, version: str, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    monkeypatch.setattr(crowds, "BODY_S", 0.05)
    async with open_host() as (host, _):
        app = host.asgi(tokens=TOKENS)
        one = Dawdler(app, *headers, http_version=version)
        async with asyncio.timeout(5):
            while not one.task.done():
                await one.piece(b" ")
                await asyncio.sleep(0.005)
        assert one.status == 408
        assert (b"connection" in one.headers) is (version == "1.1")
        assert app.state.crowd.held == 0


async def test_a_limit_is_said_once_a_minute_and_ready_says_it_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    crowd = Crowd(lambda: now)
    for second in (0.0, 1.0, 59.0, 61.0):
        now = second
        crowd.note("FULL", "the room is full")
    assert [one.getMessage() for one in caplog.records] == [
        "the room is full (1 times since the start)", "the room is full (4 times since the start)"
    ]  # fmt: skip
    assert crowd.reasons() == ("FULL",)
    now = 71.1
    assert crowd.reasons() == ()


async def test_bodies_that_end_leave_nothing_behind(http_client: HttpClient) -> None:
    async with open_host() as (host, _), client_of(host.asgi(tokens=TOKENS)) as client:
        for body in (b"{}", b"no JSON", b" " * 700 * KB):
            await client.post("/complete", content=body, headers={"content-type": "application/json"})
        refused(await client.post("/complete", json={"id": "a", "lease": "1.2.3"}), 409, "STALE_LEASE")
        transport: Any = client._transport
        assert transport.app.state.crowd.held == 0
