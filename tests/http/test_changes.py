"""`GET /changes`: a page of frames, or a stream of events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.http_client import HttpClient, client_of, open_host, refused
from tests.http.test_disconnected_callers import Caller
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.feed import fanout, watch
from tocsin.actors.scheduler.client.reads import LocalReads
from tocsin.actors.scheduler.model.feed_frames import FeedPage
from tocsin.dispatch.server_client import JSON
from tocsin.errors import StoreUnavailable

pytestmark = pytest.mark.anyio

STREAM = {"accept": "text/event-stream"}


class Watcher(Caller):
    """Reads a stream of events."""

    def __init__(self, app: Any, path: str, **headers: str) -> None:
        super().__init__(app, "GET", path)
        more = {**STREAM, **{name.replace("_", "-"): value for name, value in headers.items()}}
        sent: Any = self._scope["headers"]
        sent += [(name.encode(), value.encode()) for name, value in more.items()]
        self._task = asyncio.create_task(self())
        self.stuck = asyncio.Event()
        self.stuck.set()
        self._heard = asyncio.Event()

    async def _send(self, message: Any) -> None:
        await self.stuck.wait()
        self.sent.append(message)
        self._heard.set()

    @property
    def text(self) -> str:
        return b"".join(one.get("body", b"") for one in self.sent).decode()

    @property
    def ended(self) -> bool:
        return self._task.done()

    def events(self) -> list[dict[str, str]]:
        parts = [part.splitlines() for part in self.text.split("\n\n") if part and not part.startswith(":")]
        return [dict(line.split(": ", 1) for line in lines) for lines in parts]

    async def until(self, *words: str) -> None:
        """Wait until all of this was heard."""
        async with asyncio.timeout(10):
            while not all(word in self.text for word in words):
                self._heard.clear()
                await self._heard.wait()

    async def end(self) -> None:
        async with asyncio.timeout(10):
            await self._task


async def test_a_stream_begins_with_a_snapshot_and_each_event_has_its_place(http_client: HttpClient) -> None:
    app = http_client.host.asgi(insecure=True)
    await http_client.schedule(id="one", args={"secret": 1})
    watcher = Watcher(app, "/changes")
    await watcher.until("snapshot")
    assert watcher.sent[0]["status"] == 200
    assert dict(watcher.sent[0]["headers"])[b"content-type"] == b"text/event-stream; charset=utf-8"
    await http_client.schedule(id="two", args={"secret": 1})
    await watcher.until("two")
    await http_client.post("/cancel", {"id": "one"})
    await watcher.until("cancelled")

    first, *events = watcher.events()
    assert first == {"retry": "1000"}
    assert [one["event"] for one in events] == ["snapshot", "change", "change"]
    assert all(f'"seq":"{one["id"]}"' in one["data"] for one in events)
    assert "secret" not in watcher.text
    watcher.left.set()
    await watcher.end()

    again = Watcher(app, "/changes", last_event_id=events[1]["id"])
    await again.until("cancelled")
    assert [one["event"] for one in again.events()[1:]] == ["change"]
    elsewhere = Watcher(app, f"/i/t/changes?since={events[1]['id']}")
    await elsewhere.until("resync", "snapshot")
    for one in (again, elsewhere):
        one.left.set()
        await one.end()


async def test_a_page_has_what_is_behind_a_place_and_may_wait_for_it(http_client: HttpClient) -> None:
    begun = (await http_client.get("/changes")).json()
    assert [one["type"] for one in begun["frames"]] == ["snapshot"]
    waiting = asyncio.create_task(http_client.get(f"/changes?since={begun['seq']}&waitMs=10000"))
    await asyncio.sleep(0.05)
    await http_client.schedule(id="one")
    told = (await waiting).json()
    assert [job["id"] for frame in told["frames"] for job in frame["jobs"]] == ["one"]
    assert told["seq"] == told["frames"][-1]["seq"]
    assert (await http_client.get(f"/changes?since={told['seq']}")).json() == {"frames": [], "seq": told["seq"]}
    refused(await http_client.get(f"/changes?since={'x' * 65}"), 400, "INVALID_INPUT", "since")
    refused(await http_client.get("/changes?waitMs=x"), 400, "INVALID_INPUT", "waitMs")
    refused(await http_client.get("/changes?of=x", headers=STREAM), 400, "INVALID_INPUT", "of")
    assert "application/json" in JSON["accept"]


async def test_many_watchers_cost_one_reader_and_it_goes_with_the_last_of_them(http_client: HttpClient) -> None:
    app = http_client.host.asgi(insecure=True)
    watchers = [Watcher(app, "/changes") for _ in range(20)]
    for one in watchers:
        await one.until("snapshot")
    await http_client.schedule(id="one")
    for one in watchers:
        await one.until('"one"')
    assert len({one.events()[2]["data"] for one in watchers}) == 1
    readers = [task for task in asyncio.all_tasks() if "Fanout._read" in repr(task.get_coro())]
    assert len(readers) == 1
    for one in watchers:
        one.left.set()
        await one.end()
    await asyncio.wait(readers, timeout=5)
    assert readers[0].done()


async def test_a_watcher_that_does_not_read_is_let_go_and_holds_nobody_up(
    http_client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.actors.http.feed.stream.READ_S", 0.3)
    app = http_client.host.asgi(insecure=True)
    stuck, other = Watcher(app, "/changes"), Watcher(app, "/changes")
    for one in (stuck, other):
        await one.until("snapshot")
    stuck.stuck.clear()
    for n in range(8):
        await http_client.schedule(id=f"j{n}")
        await other.until(f'"j{n}"')
    await stuck.end()
    assert not other.ended
    other.left.set()
    await other.end()


async def test_a_token_that_is_taken_away_ends_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CHECK_S", 0.1)
    tokens = ["a:read@t*:secret-a-secret", "b:read:secret-b-secret"]
    async with open_host() as (host, _):
        app = host.asgi(tokens=lambda: tokens)
        async with client_of(app, token="secret-a-secret") as client:
            refused(await client.get("/i/other/changes", headers=STREAM), 403, "FORBIDDEN")
            refused(await client.get("/i/t/changes", headers={**STREAM, "authorization": "Bearer no"}), 401,
                    "UNAUTHENTICATED")  # fmt: skip
        one = Watcher(app, "/i/t/changes", authorization="Bearer secret-a-secret")
        other = Watcher(app, "/i/t/changes", authorization="Bearer secret-b-secret")
        for each in (one, other):
            await each.until("snapshot")
        tokens.pop(0)
        await one.end()
        assert one.sent[-1] == {"type": "http.response.body", "body": b""} and not other.ended
        other.left.set()
        await other.end()


async def test_a_stream_ends_after_a_while_where_nobody_tells_that_the_server_stops(http_client: HttpClient) -> None:
    app = http_client.host.asgi(insecure=True)
    app.state.changes.longest_s = 0.0
    watcher = Watcher(app, "/changes")
    await watcher.end()
    [_, snapshot] = watcher.events()
    app.state.changes.longest_s = 30.0
    await http_client.schedule(id="one")
    again = Watcher(app, "/changes", last_event_id=snapshot["id"])
    await again.until('"one"')
    assert [one["event"] for one in again.events()[1:]] == ["change"]
    again.left.set()
    await again.end()


async def test_the_apps_own_rule_is_asked_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CHECK_S", 0.1)
    asked: list[tuple[str, str, str | None]] = []
    allowed = True

    def rule(caller: Any, action: str, instance: str, resource: str | None) -> bool:
        asked.append((action, instance, resource))
        return allowed

    async with open_host() as (host, _):
        watcher = Watcher(host.asgi(authorize=rule), "/i/t/changes")
        await watcher.until("snapshot")
        allowed = False
        await watcher.end()
        assert set(asked) == {("changes", "t", None)} and len(asked) > 1


async def test_a_host_that_stops_and_an_instance_that_is_removed_end_streams() -> None:
    async with open_host() as (host, _):
        app = host.asgi(insecure=True)
        await host.scheduler("t").run_after("1h", "p")
        removed, stopped = Watcher(app, "/i/t/changes"), Watcher(app, "/changes")
        for one in (removed, stopped):
            await one.until("snapshot")
        await host.scheduler("t").remove()
        await removed.end()
        assert not stopped.ended
        host.stop_waiting()
        await stopped.end()


async def test_a_feed_that_cannot_be_read_is_said_once_until_it_can(
    host: ActorHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fanout, "AGAIN_S", 0.0)
    answers: list[Any] = [1, 0, 0, 0, 1, 0, 0, "end"]
    asked = asyncio.Event()

    async def changes(_: Any, *, since: str | None, wait_s: float | None) -> FeedPage:
        answer = answers.pop(0)
        if answer == "end":
            asked.set()
            return FeedPage([], "a-1", ended=True)
        if not answer:
            raise StoreUnavailable("the store is away")
        return FeedPage([], "a-1")

    monkeypatch.setattr(LocalReads, "changes", changes)
    async with fanout.Fanouts(host.ports).watching("t") as one, asyncio.timeout(5):
        await one.ask(None)
        await asked.wait()
    assert len([each for each in caplog.records if "could not be read" in each.getMessage()]) == 2
