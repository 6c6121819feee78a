"""The time of a lab: how it passes, whom it waits for, and what it costs."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.actors.testing.lab.shop import Shop
from tocsin import Retry, Worker
from tocsin.actors.testing.lab import deliveries
from tocsin.dispatch.worker.announcer import Announcer
from tocsin.testing import Stuck, lab

pytestmark = pytest.mark.anyio
START = datetime(2027, 1, 1, tzinfo=UTC)
STORES = pytest.mark.parametrize("store", ["memory", "sqlite"])


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


@STORES
async def test_a_year_of_a_daily_schedule_follows_the_clocks_of_its_zone(store: Any) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    async with lab(start=datetime(2027, 3, 1, tzinfo=UTC), store=store) as t:
        await t.scheduler().schedules.put("digest", cron="0 8 * * *", timezone="Europe/Berlin", path="digests:send")
        await t.advance("40d" if store == "sqlite" else "365d")
    local = [datetime.fromtimestamp(one.at / 1000, berlin) for one in t.deliveries]

    assert len(local) == (40 if store == "sqlite" else 365)
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


async def test_what_follows_time_is_told_before_anything_runs() -> None:
    machine: list[datetime] = []
    saw: list[datetime] = []

    async def look(args: Any) -> None:
        saw.append(machine[-1])

    async with lab({"a:look": look}, start=START, follow=machine.append) as t:
        assert machine == [START]
        for hours in (1, 2):
            await t.scheduler().run_after(f"{hours}h", "a:look")
        await t.advance("3h")
        assert machine[-1] == t.now == START + timedelta(hours=3)
    assert saw == [START + timedelta(hours=1), START + timedelta(hours=2)]

    def fails(now: datetime) -> None:
        if now > START:
            raise ValueError("as tested")

    async with lab(start=START, follow=fails) as t:
        with pytest.raises(ValueError, match="as tested"):
            await t.advance("1h")
