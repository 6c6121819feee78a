"""`GET /ws` on real sockets: the server of `tocsin serve`, and a WebSocket client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from tests.http.http_client import client_of, open_host, refused
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.feed import socket as feed_socket
from tocsin.actors.http.feed import watch
from tocsin.actors.scheduler.inflight import passes
from tocsin.cli import http_server
from tocsin.cli.http_server import Server, bind

pytestmark = pytest.mark.anyio

READER = "secret-of-the-reader"
TOKENS = [f"r:read@t*:{READER}", "s:schedule:secret-of-the-scheduler"]


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[tuple[str, Server]]:
    """Serve an app as `tocsin serve` does; yields where sockets are opened."""
    listener = bind("127.0.0.1", 0)
    server = Server(app, most=8)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.ready.wait()
    try:
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}", server
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def heard(ws: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(10):
        frame: dict[str, Any] = json.loads(await ws.recv())
    return frame


async def closed(ws: ClientConnection) -> tuple[int | None, str | None]:
    """Read to the end; the code and the reason."""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await ws.recv()
    return ws.close_code, ws.close_reason


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not done():  # noqa: ASYNC110  # nobody tells when a server has closed a connection
            await asyncio.sleep(0.01)


def bearer(secret: str = READER) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def status_of(url: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """The answer to a socket that is not opened."""
    with pytest.raises(InvalidStatus) as raised:
        await connect(url, **options)
    return raised.value.response.status_code, json.loads(raised.value.response.body)["error"]


async def test_frames_come_as_messages_and_pings_are_answered() -> None:
    async with open_host() as (host, _), served(host.asgi(insecure=True)) as (url, _):
        jobs = host.scheduler("t")
        await jobs.run_after("1h", "p", {"secret": 1}, id="one")
        async with connect(f"{url}/i/t/ws") as ws:
            snapshot = await heard(ws)
            assert (snapshot["type"], [job["id"] for job in snapshot["jobs"]]) == ("snapshot", ["one"])
            await ws.send("tocsin-ping")
            assert await ws.recv() == "tocsin-pong"
            await ws.send("something else")
            await jobs.run_after("1h", "p", {"secret": 1}, id="two")
            change = await heard(ws)
            assert [job["id"] for job in change["jobs"]] == ["two"]
            assert "secret" not in json.dumps([snapshot, change])
        await jobs.cancel("two")
        async with connect(f"{url}/i/t/ws?since={change['seq']}") as ws:
            assert [one["id"] for one in (await heard(ws))["gone"]] == ["two"]
        async with connect(f"{url}/ws?since={change['seq']}") as ws:
            assert [(await heard(ws))["type"] for _ in range(2)] == ["resync", "snapshot"]
            await ws.send("x" * (http_server.MOST_HEARD + 1))
            assert (await closed(ws))[0] == 1009


async def test_who_may_not_watch_is_told_why_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CHECK_S", 0.1)
    tokens = list(TOKENS)
    async with open_host() as (host, _), served(host.asgi(tokens=lambda: tokens)) as (url, _):
        assert await status_of(f"{url}/i/t/ws") == (401, {"code": "UNAUTHENTICATED", "message":
            "a token is needed: Authorization: Bearer <secret>"})  # fmt: skip
        for place, secret in (("/i/other/ws", READER), ("/i/t/ws", "secret-of-the-scheduler")):
            status, error = await status_of(url + place, additional_headers=bearer(secret))
            assert (status, error["code"]) == (403, "FORBIDDEN")
        status, error = await status_of(f"{url}/i/t/ws?token={READER}", additional_headers=bearer())
        assert (status, error["code"]) == (401, "UNAUTHENTICATED") and "never into a URL" in error["message"]
        assert READER not in error["message"]
        status, error = await status_of(
            f"{url}/i/t/ws", additional_headers=bearer(), origin=Origin("http://evil.example")
        )
        assert (status, error["code"]) == (403, "FORBIDDEN") and "Origin" in error["message"]
        status, error = await status_of(f"{url}/i/t/ws?until=x", additional_headers=bearer())
        assert (status, error["code"]) == (400, "INVALID_INPUT")
        with pytest.raises(InvalidStatus):
            await connect(f"{url}/i/t/list", additional_headers=bearer())

        own = Origin(url.replace("ws:", "http:"))
        async with connect(f"{url}/i/t/ws", additional_headers=bearer(), origin=own) as ws:
            assert (await heard(ws))["type"] == "snapshot"
            del tokens[0]
            assert (await closed(ws))[0] == 1008


async def test_a_pass_opens_one_socket_of_its_instance_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CHECK_S", 0.1)
    tokens = list(TOKENS)
    async with open_host() as (host, _):
        app = host.asgi(tokens=lambda: tokens)
        async with served(app) as (url, _), client_of(app, token=READER) as client:
            refused(await client.post("/ws-token"), 403, "FORBIDDEN")
            refused(await client.post("/i/t/ws-token", headers=bearer("secret-of-the-scheduler")), 403, "FORBIDDEN")

            async def a_pass(instance: str = "t") -> str:
                said = (await client.post(f"/i/{instance}/ws-token")).json()
                assert said["lifeMs"] == 60_000
                token: str = said["token"]
                return token

            one = await a_pass()
            async with connect(f"{url}/i/t/ws?token={one}") as ws:
                assert (await heard(ws))["type"] == "snapshot"
                assert (await status_of(f"{url}/i/t/ws?token={one}"))[0] == 401, "it is used"
                assert (await status_of(f"{url}/i/t2/ws?token={await a_pass()}"))[0] == 401, "of another instance"
                late = await a_pass()
                with monkeypatch.context() as patched:
                    patched.setattr(passes, "LIFE_S", 0.0)
                    assert (await status_of(f"{url}/i/t/ws?token={late}"))[0] == 401, "it is too old"
                unused = await a_pass()
                del tokens[0]
                assert (await closed(ws))[0] == 1008
                assert (await status_of(f"{url}/i/t/ws?token={unused}"))[0] == 401, "its token is gone"


class Stuck:
    """An ASGI connection whose other end reads only when it is let."""

    def __init__(self, app: Any, path: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._heard = asyncio.Event()
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "websocket.connect"})
        scope = {"type": "websocket", "path": path, "root_path": "", "query_string": b"", "extensions": {},
                 "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)}  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._inbox.get, self._send))

    def say(self, text: str) -> None:
        self._inbox.put_nowait({"type": "websocket.receive", "text": text})

    async def _send(self, message: dict[str, Any]) -> None:
        await self.reads.wait()
        self.sent.append(message)
        self._heard.set()

    async def until(self, word: str) -> None:
        async with asyncio.timeout(10):
            while word not in json.dumps(self.sent):
                self._heard.clear()
                await self._heard.wait()


async def test_who_does_not_read_is_closed_with_1013_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_socket, "READ_S", 0.3)
    async with open_host() as (host, _):
        app, jobs = host.asgi(insecure=True), host.scheduler("t")
        stuck, pinging, other = (Stuck(app, "/i/t/ws") for _ in range(3))
        for one in (stuck, pinging, other):
            await one.until("snapshot")
        stuck.reads.clear()
        pinging.reads.clear()
        pinging.say("tocsin-ping")
        for n in range(8):
            await jobs.run_after("1h", "p", id=f"j{n}")
            await other.until(f"j{n}")
        assert len(stuck.sent) == 2
        for one in (stuck, pinging):
            one.reads.set()
            async with asyncio.timeout(5):
                await one.task
            assert (one.sent[-1]["type"], one.sent[-1]["code"]) == ("websocket.close", 1013)
        monkeypatch.setattr(feed_socket, "LINGER_S", 0.1)
        other.reads.clear()
        await jobs.run_after("1h", "p", id="last")
        async with asyncio.timeout(5):
            await other.task  # it does not wait for ever for the close to be read


async def test_a_host_that_stops_closes_with_1001_and_a_removed_instance_with_1000() -> None:
    async with open_host() as (host, _), served(host.asgi(insecure=True)) as (url, server):
        await host.scheduler("t").run_after("1h", "p")
        async with connect(f"{url}/i/t/ws") as removed, connect(f"{url}/ws") as stopped, connect(f"{url}/ws") as cut:
            for ws in (removed, stopped, cut):
                await heard(ws)
            await host.scheduler("t").remove()
            assert (await closed(removed)) == (1000, "the instance was removed")
            host.stop_waiting()
            assert (await closed(stopped)) == (1001, "the host stops")
        async with asyncio.timeout(3):
            server.should_exit = True
            assert (await closed(cut))[0] == 1001


async def test_sockets_count_among_the_connections_until_they_are_closed() -> None:
    async with open_host() as (host, _), served(host.asgi(insecure=True)) as (url, server):
        sockets = [await connect(f"{url}/ws") for _ in range(8)]
        with pytest.raises(InvalidStatus):
            await connect(f"{url}/ws")
        await sockets.pop().close()
        await until(lambda: len(server._connections._open) < 8)
        async with connect(f"{url}/ws") as ws:
            await heard(ws)
        for ws in sockets:
            await ws.close()
        await until(lambda: not server._connections._open)


async def test_it_works_where_the_app_is_mounted_and_behind_middleware() -> None:
    async with open_host() as (host, _):
        app = Starlette(routes=[Mount("/jobs", host.asgi(insecure=True))], middleware=[Middleware(GZipMiddleware)])
        async with served(app) as (url, _), connect(f"{url}/jobs/i/t/ws") as ws:
            assert (await heard(ws))["type"] == "snapshot"


async def test_a_plain_request_for_the_socket_is_told_so(host: ActorHost) -> None:
    async with client_of(host.asgi(insecure=True)) as client:
        refused(await client.get("/ws"), 400, "INVALID_INPUT", "WebSocket")


async def test_whoever_leaves_or_is_refused_is_no_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with open_host() as (host, _), served(host.asgi(tokens=TOKENS)) as (url, server):
        assert (await status_of(f"{url}/ws"))[0] == 401
        port = int(url.rpartition(":")[2])
        opening = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        for more in (f"{opening}Sec-WebSocket-Version: 13\r\n", "Accept: text/event-stream\r\n"):
            for n in range(10):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                path = "/i/t/ws" if "Upgrade" in more else "/i/t/changes"
                head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {READER}\r\n{more}\r\n"
                writer.write(head.encode())
                await writer.drain()
                for _ in range(n):  # to be gone at another instant each time
                    await asyncio.sleep(0)
                writer.transport.abort()
        await until(lambda: not server._connections._open)
        await host.scheduler("t").run_after("1h", "p")
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize("path", ["/i/t/ws", "/i/t/changes"])
@pytest.mark.parametrize("after", [0, 1])
async def test_a_server_may_say_by_an_error_that_a_watcher_has_left(
    path: str, after: int, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        if len(sent) >= after:
            raise OSError("gone")
        sent.append(message)

    async def receive() -> Any:
        if kind == "websocket" and not asked:
            asked.append(1)
            return {"type": "websocket.connect"}
        return await asyncio.get_running_loop().create_future()

    kind, asked = "websocket" if path.endswith("ws") else "http", list[int]()
    headers = [(b"host", b"localhost"), (b"accept", b"text/event-stream")]
    scope = {"type": kind, "method": "GET", "path": path, "root_path": "", "query_string": b"", "extensions": {},
             "headers": headers, "client": ("127.0.0.1", 1)}  # fmt: skip
    async with open_host() as (host, _), asyncio.timeout(5):
        await host.asgi(insecure=True)(scope, receive, send)
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
