"""An app in a lab: its own host, receiver, worker and endpoints, in virtual time, on an ordinary event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from asgiref.wsgi import WsgiToAsgi
from flask import Flask

from tests.actors.testing.lab.shop import SECRET, Shop
from tocsin import ActorHost, Job, Received, Receiver, Retry, RetryLater, TerminalError, Worker
from tocsin.actors.testing.lab import deliveries
from tocsin.dispatch.worker.announcer import Announcer
from tocsin.errors import SettingsError
from tocsin.testing import Lab, Stuck, lab

pytestmark = pytest.mark.anyio
START = datetime(2027, 1, 1, tzinfo=UTC)
STORES = pytest.mark.parametrize("store", ["memory", "sqlite"])


@STORES
async def test_an_app_as_it_is_runs_days_in_virtual_time(store: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shop = Shop()
    async with lab(shop.app, start=START, store=store) as t:
        answer = await t.client.post("/carts/anna")
        [job] = await t.assert_scheduled("carts:remind", after="2d", args={"user": "anna"})
        assert job.id == answer.json()["id"]

        await t.advance("47h")
        assert not t.deliveries
        assert not os.listdir(tmp_path), "neither file nor lock nor socket is made where the app says"
        await t.advance("1h")

        [delivery] = t.deliveries
        await t.refute_scheduled()
    assert (delivery.path, delivery.args, delivery.attempt, delivery.ok) == ("carts:remind", {"user": "anna"}, 1, True)
    assert delivery.at == (START + timedelta(days=2)).timestamp() * 1000
    assert shop.did == [("remind", "anna")]
    assert not os.listdir(tmp_path), "the store that the app names is not touched"


async def test_handlers_alone_are_an_app_too() -> None:
    got: list[Any] = []

    async def pay(args: dict[str, Any], job: Received) -> str:
        got.append((args["amount"], job.attempt))
        return "paid"

    async with lab({"invoices:pay": pay}) as t:
        jobs = t.scheduler("tenant-a")
        id = await jobs.run_after("5m", "invoices:pay", {"amount": Decimal("3.50")}, keep_result="1h")
        assert await t.until(jobs.result(id)) == "paid"

    assert got == [(Decimal("3.50"), 1)]
    assert (t.deliveries[0].instance, t.deliveries[0].args) == ("tenant-a", {"amount": Decimal("3.50")})


async def test_without_an_app_callbacks_are_recorded() -> None:
    async with lab() as t:
        await t.scheduler().run_after("1d", "a:b")
        await t.advance("1d")

    assert [(one.path, one.status) for one in t.deliveries] == [("a:b", 200)]


async def test_time_passes_while_the_test_sleeps_and_handlers_sleep_in_it() -> None:
    woke: list[datetime] = []

    async def slow(args: Any) -> None:
        await asyncio.sleep(30)
        woke.append(t.now)

    async with lab({"a:slow": slow}, start=START) as t:
        await t.scheduler().run_after(0, "a:slow")
        await t.run_until_idle()
        assert woke == [START + timedelta(seconds=30)]
        await asyncio.sleep(3600)
        assert t.now == START + timedelta(seconds=3630)


async def test_time_stands_still_while_a_function_works_in_a_thread() -> None:
    """Also in an executor, and on an SQLite connection, of the app's."""
    saw: list[tuple[str, datetime]] = []

    def work() -> None:
        done = threading.Event()
        threading.Timer(0.05, done.set).start()
        assert done.wait(10)

    def in_thread(args: Any) -> None:
        work()
        saw.append(("thread", t.now))

    async def in_executor(args: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, work)
        saw.append(("executor", t.now))

    async def ticks(args: Any) -> None:
        saw.append(("tick", t.now))

    async with lab({"a:thread": in_thread, "a:executor": in_executor, "a:tick": ticks}, start=START) as t:
        await t.scheduler().run_after(0, "a:thread")
        await t.scheduler().run_after("1s", "a:tick")
        await t.scheduler().run_after("2s", "a:executor")
        await t.scheduler().run_after("3s", "a:tick")
        await t.advance("1m")

    seconds = [(name, (at - START).total_seconds()) for name, at in saw]
    assert seconds == [("thread", 0), ("tick", 1), ("executor", 2), ("tick", 3)]


async def test_a_failure_climbs_the_retry_ladder_and_dies() -> None:
    async def fails(args: Any) -> None:
        raise ValueError("as tested")

    async def busy(args: Any, job: Received) -> None:
        if job.attempt == 1:
            raise RetryLater("10m")

    async def never(args: Any) -> None:
        raise TerminalError("no such account")

    async with lab({"a:fails": fails, "a:busy": busy, "a:never": never}, start=START) as t:
        jobs = t.scheduler()
        await jobs.run_after(0, "a:fails", retry=Retry(max_retries=2, base_ms=60_000))
        await jobs.run_after("1s", "a:busy")
        await jobs.run_after("2s", "a:never")
        await t.advance("1h")

        [dead, failed] = await t.dead()
    seconds = [(one.path, one.at // 1000 - int(START.timestamp()), one.status) for one in t.deliveries]
    assert seconds == [
        ("a:fails", 0, 500),
        ("a:busy", 1, 503),
        ("a:never", 2, 422),
        ("a:fails", 60, 500),
        ("a:fails", 180, 500),
        ("a:busy", 601, 200),
    ]
    assert (dead.function_path, failed.function_path, failed.attempts) == ("a:never", "a:fails", 3)
    assert "no such account" in str(dead.last_response)


@STORES
async def test_a_year_of_a_daily_schedule_follows_the_clocks_of_its_zone(store: Any) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    async with lab(start=START, store=store) as t:
        await t.scheduler().schedules.put("digest", cron="0 8 * * *", timezone="Europe/Berlin", path="digests:send")
        await t.advance("90d" if store == "sqlite" else "365d")
    local = [datetime.fromtimestamp(one.at / 1000, berlin) for one in t.deliveries]

    assert len(local) == (90 if store == "sqlite" else 365)
    assert {(one.hour, one.minute, one.second) for one in local} == {(8, 0, 0)}
    assert len({one.date() for one in local}) == len(local)
    assert len({one.utcoffset() for one in local}) == 2


async def test_a_worker_that_has_nothing_to_do_costs_nothing_over_a_year(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    tell = Announcer._tell

    async def counted(self: Announcer) -> None:
        told.append(1)
        await tell(self)

    monkeypatch.setattr(Announcer, "_tell", counted)
    shop = Shop()
    async with lab(shop.app, start=START) as t, Worker(t.scheduler("other"), shop.pulled):
        await t.advance("1h")
        before, commits = t.moves, t.host.runtime.provider.stats().commits
        del told[:]
        await t.advance("365d")
        assert t.moves - before <= 3
        assert len(told) <= 6
        assert t.host.runtime.provider.stats().commits == commits
        await t.scheduler().run_after("1d", "images:shrink", {"image": 7}, queue="images")
        await t.advance("1d")
    assert shop.did == [("shrink", 7)]


async def test_workers_get_jobs_at_their_instants_and_renew_leases_while_handlers_sleep() -> None:
    ran: list[tuple[str, float]] = []

    async def long(args: Any) -> None:
        await asyncio.sleep(600)
        ran.append(("long", (t.now - START).total_seconds()))

    async def short(args: Any) -> None:
        ran.append(("short", (t.now - START).total_seconds()))

    async with lab(start=START, patience=0) as t:
        async with Worker(t.scheduler(), {"a:long": long, "a:short": short}, lease_ms=30_000):
            await t.scheduler().run_after("1h", "a:long", queue="q")
            await t.scheduler().run_after("2h", "a:short", queue="q")
            await t.advance("3h")
        assert not await t.dead()
    assert ran == [("long", 4200), ("short", 7200)]


@STORES
async def test_what_is_due_at_one_instant_runs_in_the_order_in_which_it_was_scheduled(store: Any) -> None:
    """And no id is that of another lab: a receiver may remember it."""

    async def run() -> tuple[set[str], list[Any]]:
        shop = Shop()
        async with lab(shop.app, start=START, store=store) as t:
            await t.scheduler().set_pool("p", max_concurrency=1)
            for user in range(20):
                await t.scheduler().run_after("2d", "carts:remind", {"user": user}, pool="p")
                await t.client.post(f"/carts/app-{user}")
            await t.advance("3d")
            return {one.webhook_id for one in t.deliveries}, [user for _, user in shop.did]

    ids, first = await run()
    others, second = await run()
    assert [one for one in first if isinstance(one, int)] == list(range(20))
    assert [one for one in first if isinstance(one, str)] == [f"app-{one}" for one in range(20)]
    assert first == second
    assert not ids & others


async def test_pools_chains_and_several_schedulers_do_as_they_do() -> None:
    running: list[int] = [0, 0]

    async def one(args: Any, job: Received) -> dict[str, str]:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(1)
        running[0] -= 1
        return {"from": job.instance}

    got: list[Any] = []

    async def after(args: Any, job: Received) -> None:
        got.append(job.parent.result if job.parent else None)

    async with lab({"a:one": one, "a:after": after}, patience=0) as t:
        for name in ("red", "blue"):
            for _ in range(5):
                await t.scheduler(name).run_after(
                    0, "a:one", pool="p", max_concurrency=2, then=[Job("a:after")], id=None
                )
        await t.run_until_idle()
        assert not await t.scheduled()
    assert running == [0, 4]
    assert sorted(each["from"] for each in got) == ["blue"] * 5 + ["red"] * 5


async def test_labs_of_one_loop_share_their_time() -> None:
    async with lab(start=START) as one, lab() as other:
        await one.scheduler().run_after("1h", "a:one")
        await other.scheduler().run_after("1h", "a:other")
        await one.advance("1h")
        with pytest.raises(Exception, match="start: another lab on this event loop began at"):
            async with lab(start=START + timedelta(days=1)):
                pass
    assert [each.path for each in one.deliveries] == ["a:one"]
    assert [each.path for each in other.deliveries] == ["a:other"]
    assert one.deliveries[0].at == other.deliveries[0].at


async def test_an_app_and_a_host_that_were_made_before_are_themselves_again_afterwards(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path}/own.db")
    app = shop.app()
    [host] = shop.hosts
    provider, transport = host.runtime.provider, host._service._dispatcher._transport
    for _ in range(2):
        async with lab(app, start=START) as t:
            assert t.host is host
            await t.client.post("/carts/anna")
            await t.advance("2d")
            assert len(t.deliveries) == 1
    assert (host.runtime.provider, host._service._dispatcher._transport) == (provider, transport)
    assert "random" not in vars(host.runtime.random)
    async with host:
        assert not (await host.scheduler().list()).records
        assert abs(host.runtime.clock.now_ms() - datetime.now(UTC).timestamp() * 1000) < 60_000
    assert (tmp_path / "own.db").exists()


async def test_the_app_s_own_store_is_used_if_the_test_says_so(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path}/own.db")
    async with lab(shop.app, store="own") as t:
        await t.client.post("/carts/anna")
    async with lab(shop.app, store="own") as t:
        await t.assert_scheduled("carts:remind")


async def test_a_receiver_with_a_host_of_the_lab_s_needs_its_secrets() -> None:
    receiver = Receiver([SECRET])
    got: list[Any] = []

    @receiver.handler("a:b")
    async def handle(args: Any) -> None:
        got.append(args)

    with pytest.raises(Exception, match=r"the app starts no host .* lab\(app, secrets=\[...\]\)"):
        async with lab(receiver):
            pass
    async with lab(receiver, secrets=[SECRET]) as t:
        await t.scheduler().run_after("1d", "a:b", {"n": 1})
        await t.advance("1d")
    assert got == [{"n": 1}]


async def test_a_handler_that_never_ends_is_ended_by_its_deadline() -> None:
    async def hangs(args: Any) -> None:
        await asyncio.Event().wait()

    async with lab({"a:hangs": hangs}, start=START, patience=0) as t:
        await t.scheduler().run_after(0, "a:hangs", retry=Retry(max_retries=0))
        await t.run_until_idle()
        assert (t.now - START).total_seconds() < 120
        assert [one.reason for one in await t.dead()] == ["exhausted"]


async def test_jobs_that_make_each_other_for_ever_at_one_instant_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "AT_ONCE", 300)

    async def again(args: Any) -> None:
        await t.scheduler().run_after(0, "a:again")

    async with lab({"a:again": again}) as t:
        await t.scheduler().run_after(0, "a:again")
        with pytest.raises(Stuck, match="300 callbacks were sent at one instant, the last one to 'a:again'"):
            await t.advance("1s")


async def test_the_present_can_be_set_by_an_instant_of_a_zone() -> None:
    async with lab(start=START) as t:
        await t.advance(to=datetime(2027, 3, 28, 8, tzinfo=ZoneInfo("Europe/Berlin")))
        assert t.now == datetime(2027, 3, 28, 6, tzinfo=UTC)
        with pytest.raises(Exception, match=r"to: .* has passed, it is 2027-03-28 06:00"):
            await t.advance(to=START)
        with pytest.raises(Exception, match=r"give a duration, advance\('3d'\), or an instant"):
            await t.advance()


async def test_two_hosts_of_one_app_do_not_open_one_store() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        async with ActorHost.open("sqlite:///a.db"), ActorHost.open("sqlite:///a.db") as two, two.lifespan():
            pass

    with pytest.raises(SettingsError, match=r"another host of this lab has .*a\.db"):
        async with lab(app, secrets=[SECRET]):
            pass


async def test_two_hosts_of_one_app_have_two_stores() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with (
            ActorHost.open("memory:", origin="https://a.example", secrets=[SECRET]) as one,
            ActorHost.open("memory:", origin="https://a.example", secrets=[SECRET]) as two,
        ):
            await one.scheduler("one").run_after("1d", "a:one")
            await two.scheduler("two").run_after("1d", "a:two")
            assert not (await two.scheduler("one").list()).records
            for _ in ("startup", "shutdown"):
                message = await receive()
                await send({"type": f"{message['type']}.complete"})

    async with lab(app) as t:
        assert [(job.function_path) for job in await t.scheduled()] == ["a:one", "a:two"]
        await t.assert_scheduled("a:two", scheduler="two", count=1)
    assert isinstance(t, Lab)


async def test_a_wsgi_app_is_tested_behind_an_adapter() -> None:
    flask = Flask("shop")
    receiver = Receiver([SECRET])
    flask.post("/_tocsin/callback")(receiver.flask_view)
    got: list[Any] = []

    @receiver.handler("a:b")
    def handle(args: Any) -> None:
        got.append(args)

    async with lab(cast(Any, WsgiToAsgi)(flask), secrets=[SECRET], start=START) as t:
        await t.scheduler().run_after("3d", "a:b", {"n": 1})
        await t.advance("3d")
        assert t.deliveries[0].ok, t.deliveries[0].answer
    assert got == [{"n": 1}]


async def test_a_handler_that_waits_for_a_socket_is_given_time_to_hear() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        work = threading.Event()
        await asyncio.get_running_loop().run_in_executor(None, work.wait, 0.02)
        writer.write(b"pong\n")
        await writer.drain()
        writer.close()

    heard: list[tuple[bytes, datetime]] = []

    async def ask(args: Any) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ping\n")
        heard.append((await reader.readline(), t.now))
        writer.close()
        await writer.wait_closed()

    server = Elsewhere(answer)
    port = server.port
    try:
        async with lab({"a:ask": ask}, start=START, patience="10s") as t:
            await t.scheduler().run_after("1m", "a:ask")
            await t.advance("1h")
    finally:
        server.stop()
    assert heard == [(b"pong\n", START + timedelta(minutes=1))]


class Elsewhere:
    """A server of another process, on a loop and a thread of its own."""

    def __init__(self, answer: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        serving = asyncio.run_coroutine_threadsafe(asyncio.start_server(answer, "127.0.0.1", 0), self._loop)
        self._server = serving.result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.call_later, 0.05, self._loop.stop)
        self._thread.join()
        self._loop.close()
