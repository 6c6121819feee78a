"""Failures on the way to a server: what may be repeated is, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.actors.client.doors import TOKENS, house
from tocsin import ActorHost, Client, Job, Scheduler
from tocsin.cli.http_server import bind, serving
from tocsin.dispatch.clock import SystemDispatchClock
from tocsin.dispatch.worker import trouble
from tocsin.errors import (
    ForbiddenError,
    NotFoundError,
    OverloadedError,
    StoreUnavailable,
    UnauthenticatedError,
    UnreachableError,
)

pytestmark = pytest.mark.anyio


class Way(httpx.AsyncBaseTransport):
    """The way to an app, on which the next answers are replaced: by an error, or by another answer."""

    def __init__(self, app: Any) -> None:
        self._app = httpx.ASGITransport(app)
        self.lost: list[Exception | httpx.Response] = []
        self.before: list[Exception | httpx.Response] = []
        """The same, but the request does not arrive."""
        self.asked: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if self.before:
            return said(self.before.pop(0))
        answer = await self._app.handle_async_request(request)
        return said(self.lost.pop(0)) if self.lost else answer


def said(one: Exception | httpx.Response) -> httpx.Response:
    if isinstance(one, Exception):
        raise one
    return one


def cut() -> httpx.ReadError:
    return httpx.ReadError("the line is cut")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pauses between tries be short."""
    monkeypatch.setattr(trouble, "FIRST_S", 0.001)


@asynccontextmanager
async def on_the_way(**options: Any) -> AsyncIterator[tuple[Scheduler, Scheduler, Way]]:
    """The handle, the same scheduler by a client, and the way between them."""
    async with house("handle") as found:
        way = Way(found.host.asgi(tokens=TOKENS))
        options = {"token": "secret-ops", **options}
        async with Client("http://tocsin.example", transport=way, **options) as client:
            yield found.jobs, client.scheduler("t"), way


REPEATED: dict[str, Callable[[Scheduler], Awaitable[Any]]] = {
    "run_after": lambda jobs: jobs.run_after("1h", "a:b", queue="q"),
    "submit_many": lambda jobs: jobs.submit_many([Job("a:b", after="1h", options={"queue": "q"})] * 2),
    "put": lambda jobs: jobs.schedules.put("s", "a:b", every="1h", queue="q"),
    "register": lambda jobs: jobs.schedules.register("o", [("s", {"path": "a:b", "every": "1h", "queue": "q"})]),
    "trigger": lambda jobs: jobs.schedules.trigger("there"),
    "pause": lambda jobs: jobs.schedules.pause("there"),
    "set_instance": lambda jobs: jobs.pause(),
    "status": lambda jobs: jobs.status(),
    "list": lambda jobs: jobs.list(),
    "preview": lambda jobs: jobs.schedules.preview("* * * * *"),
    "pending": lambda jobs: jobs.pending(),
}
SENT_ONCE: dict[str, Callable[[Scheduler], Awaitable[Any]]] = {
    "cancel": lambda jobs: jobs.cancel("there"),
    "cancel_all": lambda jobs: jobs.cancel_all(all=True),
    "reschedule": lambda jobs: jobs.reschedule("there", after="2h"),
    "dead_retry": lambda jobs: jobs.dead_retry("there"),
    "set_pool": lambda jobs: jobs.set_pool("p", max_concurrency=1),
    "a stale put": lambda jobs: jobs.schedules.put("there", "a:b", every="1h", queue="q", revision=1),
    "delete": lambda jobs: jobs.schedules.delete("there"),
    "prune": lambda jobs: jobs.schedules.register("o", [], prune=True),
    "remove": lambda jobs: jobs.remove(),
}


async def stand(jobs: Scheduler) -> None:
    await jobs.run_after("1h", "a:b", id="there", queue="q")
    await jobs.schedules.put("there", "a:b", every="1h", queue="q")


@pytest.mark.parametrize("name", REPEATED)
async def test_what_may_be_repeated_is_and_is_done_once(name: str) -> None:
    async with on_the_way() as (here, jobs, way), on_the_way() as (once, _, _):
        await stand(here)
        await stand(once)
        way.lost += [cut(), httpx.Response(502, text="bad gateway")]
        await REPEATED[name](jobs)
        await REPEATED[name](once)
        assert len(way.asked) == 3
        assert len({request.content for request in way.asked}) == 1
        assert (await here.status()).backlog == (await once.status()).backlog
        assert len((await here.schedules.list()).schedules) == len((await once.schedules.list()).schedules)


@pytest.mark.parametrize("name", SENT_ONCE)
async def test_what_may_have_been_done_is_not_sent_again(name: str) -> None:
    async with on_the_way() as (here, jobs, way):
        await stand(here)
        way.lost.append(cut())
        with pytest.raises(UnreachableError, match="did not answer") as unheard:
            await SENT_ONCE[name](jobs)
        assert unheard.value.sent and len(way.asked) == 1


@pytest.mark.parametrize("name", [*SENT_ONCE, *REPEATED])
async def test_what_certainly_was_not_done_is_sent_again(name: str) -> None:
    busy = {"error": {"code": "OVERLOADED", "message": "1000 events wait already"}}
    async with on_the_way() as (here, jobs, way):
        await stand(here)
        way.before += [httpx.ConnectError("refused"), httpx.Response(503, json=busy, headers={"retry-after": "0"})]
        await {**SENT_ONCE, **REPEATED}[name](jobs)
        assert len(way.asked) == 3


async def test_a_server_that_says_when_is_asked_then_and_not_beyond_the_patience() -> None:
    busy = {"error": {"code": "OVERLOADED", "message": "1000 events wait already"}}
    async with on_the_way(patience_s=5) as (_, jobs, way):
        loop = asyncio.get_running_loop()
        began = loop.time()
        way.before.append(httpx.Response(503, json=busy, headers={"retry-after": "1"}))
        await jobs.status()
        assert loop.time() - began >= 1
        way.before.append(httpx.Response(503, json=busy, headers={"retry-after": "9"}))
        with pytest.raises(OverloadedError) as refused:
            await jobs.status()
        assert refused.value.details["retry_after_s"] == 9 and len(way.asked) == 3


class Ahead(SystemDispatchClock):
    """A clock that is an hour ahead; when it was asked last is remembered."""

    more_ms = 3_600_000

    def now_ms(self) -> int:
        return super().now_ms() + self.more_ms


async def test_a_delay_counts_from_the_servers_now() -> None:
    """Of a block's jobs, less what passed until it ended."""
    clock = Ahead()
    async with on_the_way(clock=clock) as (here, jobs, _):
        queue: Any = {"queue": "q"}
        await jobs.run_after("5m", "a:b", id="one", **queue)
        await jobs.submit_many([Job("a:b", after="5m", options={"id": "two", **queue})])
        async with jobs.deferred() as later:
            later.run_after("5m", "a:b", id="three", **queue)
            clock.more_ms += 60_000
        await jobs.reschedule("two", after="5m")
        for id, delay_ms in (("one", 300_000), ("two", 300_000), ("three", 240_000)):
            record = await here.get(id)
            assert record is not None and 0 <= record.scheduled_for - record.enqueued_at - delay_ms + 1_000 <= 3_000


async def test_a_settlement_whose_answer_was_lost_is_said_again_and_counts_once() -> None:
    async with on_the_way() as (here, jobs, way):
        id = await here.run_after(0, "a:b", queue="q", keep_result="1h", then=[Job("c:d", options={"queue": "r"})])
        [job] = await jobs.claim("q", wait=5)
        way.lost += [cut(), httpx.Response(500, text="<p>no")]
        assert (await jobs.settle(id, job.lease, result=7)).state == "done"
        assert await jobs.result(id) == 7
        assert len(await here.claim("r", max=10, wait=0)) == 1


async def test_a_body_that_is_cut_or_no_answer_of_ours_is_no_answer() -> None:
    async with on_the_way(patience_s=0) as (_, jobs, way):
        for one in (
            httpx.Response(200, content=b'{"id":"a","sched'),
            httpx.Response(200, content=b"<p>welcome</p>"),
            httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip")),
            httpx.Response(404, text="nothing here"),
            httpx.Response(307, headers={"location": "http://elsewhere.example/"}),
        ):
            way.lost.append(one)
            with pytest.raises(UnreachableError):
                await jobs.run_after("1h", "a:b", queue="q")


async def test_who_may_not_hears_so_at_once_and_no_token_is_shown() -> None:
    async with house("handle") as found:
        app = found.host.asgi(tokens=TOKENS)
        for token, kind in (
            ("wrong-secret", UnauthenticatedError),
            (None, UnauthenticatedError),
            ("secret-app", ForbiddenError),
        ):
            way = Way(app)
            async with Client("http://tocsin.example", token=token, transport=way) as client:
                with pytest.raises(kind) as refused:
                    await client.scheduler("t").pause()
            assert len(way.asked) == 1
            assert f"{token}" not in f"{refused.value!r} {client!r} {client.scheduler('t')!r}"


async def test_a_wrong_place_on_a_server_is_not_an_absent_thing() -> None:
    async with house("handle") as found:
        way = Way(found.host.asgi(tokens=TOKENS))
        async with Client("http://tocsin.example/elsewhere", token="secret-ops", transport=way) as client:
            for ask in (client.scheduler().schedules.get, client.scheduler().redrive):
                with pytest.raises(NotFoundError, match="there is no route"):
                    await ask("a")


async def test_an_app_under_a_path_is_reached_there() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    async with house("handle") as found:
        app = Starlette(routes=[Mount("/jobs", found.host.asgi(tokens=TOKENS))])
        transport = httpx.ASGITransport(app)
        async with Client("http://tocsin.example/jobs/", token="secret-ops", transport=transport) as client:
            id = await client.scheduler("t").run_after("1h", "a:b", queue="q")
            assert await found.jobs.get(id) is not None
            assert (await client.scheduler("t").claim("q", wait=0)) == []
            assert [one.name for one in (await client.instances()).instances] == ["t"]


async def test_the_health_of_a_server_is_told_also_where_it_is_not_well() -> None:
    async with house("handle") as found:
        app = found.host.asgi(tokens=TOKENS)
        async with Client("http://tocsin.example", transport=httpx.ASGITransport(app)) as client:
            assert (await client.health()).ready
            await found.host.stop()
            health = await client.health()
            assert not health.ready and "not open" in str(health.refusal)
            with pytest.raises(StoreUnavailable):
                await (
                    Client(
                        "http://tocsin.example", token="secret-ops", patience_s=0, transport=client._server._transport
                    )
                    .scheduler()
                    .status()
                )


async def test_a_restart_in_the_middle_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Twenty producers and one who waits for a result, while the server stops and starts on the same port."""
    store = f"sqlite:///{tmp_path / 'jobs.db'}"

    @asynccontextmanager
    async def server(port: int) -> AsyncIterator[tuple[str, Scheduler]]:
        async with ActorHost.open(store) as host, serving(host.asgi(tokens=TOKENS), bind("127.0.0.1", port)) as url:
            yield url, host.scheduler("t")
            host.stop_waiting()

    async with server(0) as (url, here):
        client = Client(url, token="secret-ops")
        jobs = client.scheduler("t")
        await here.run_after(0, "a:b", id="awaited", queue="pulled", keep_result="1h")
        result = asyncio.ensure_future(jobs.result("awaited"))
        ids: list[str] = []
        begun = asyncio.Event()

        async def produce(n: int) -> None:
            for _ in range(10):
                ids.append(await jobs.run_after("1h", "a:b", {"n": n}, queue="q"))
                if len(ids) == 40:
                    begun.set()

        producers = [asyncio.ensure_future(produce(n)) for n in range(20)]
        await begun.wait()
    async with server(int(url.rpartition(":")[2])) as (_, here), client:
        await asyncio.gather(*producers)
        stored = [one.id async for one in here.list_all(queue="q")]
        assert len(set(ids)) == 200 and sorted(stored) == sorted(ids)
        [job] = await jobs.claim("pulled", wait=5)
        await jobs.complete(job.id, job.lease, result=7)
        assert await result == 7
