"""What goes wrong at odd moments, in any process of a store, ends well in all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.sharing.test_following import in_town
from tests.actors.sharing.town import Town, Wired, jobs
from tocsin import Actor
from tocsin.actors.sharing import plain
from tocsin.actors.sharing.frames import VERSION
from tocsin.actors.sharing.greeting import Hello
from tocsin.actors.sharing.holder import GREETING_S
from tocsin.actors.sharing.link import Link
from tocsin.errors import HostClosedError, InvalidInputError
from tocsin.testing import crash

asked: list[str] = []


class Elsewhere(Actor):
    async def ask(self) -> None:
        asked.append(str(self.ctx.id))
        raise HostClosedError("another host, which this actor uses, is not open")


def test_an_own_actor_that_meets_a_closed_host_is_called_once() -> None:
    async def main(town: Town) -> None:
        asked.clear()
        async with town.two(actors=[Elsewhere]) as (first, second):
            for host in (first, second):
                with pytest.raises(HostClosedError, match="another host"):
                    async with asyncio.timeout(3):
                        await host.actor(Elsewhere, "x").ask()
            assert len(asked) == 2
            assert len(town.wires) == 1, "its link is of use"

    in_town(main)


def test_a_holder_that_lets_nobody_wait_is_not_asked_again_and_again() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (first, second):
            first.stop_waiting()
            assert await jobs(second).claim("q", wait=1) == []
            claim = asyncio.ensure_future(jobs(second).claim("q", wait=60))
            await town.clock.sleep(5)
            assert len(town.wires) == 1
            await first.stop()
            await jobs(second).run_after(0, "q:w", queue="q")
            assert len(await claim) == 1, "it waited for the next holder"
            await crash(second)

    in_town(main)


@pytest.mark.parametrize("timeout", [None, 60])
def test_who_waits_for_an_end_at_a_follower_notices_nothing_of_a_holder_that_stops(timeout: float | None) -> None:
    """At first the holder lets nobody wait any more, and goes on; then it goes."""

    async def main(town: Town) -> None:
        holder, follower = town.host("first"), town.host("second")
        async with holder, follower:
            t = jobs(follower)
            await t.run_after(0, "a:b", id="x", queue="q", keep_result="1h")
            result = asyncio.ensure_future(t.result("x", timeout))
            await town.clock.sleep(1)
            holder.stop_waiting()
            await town.clock.sleep(3)
            await holder.stop()
            (got,) = await t.claim("q", wait=10)
            assert not result.done()
            await t.complete("x", got.lease, result={"n": 7})
            assert await result == {"n": 7}

    in_town(main)


def test_a_follower_that_stops_gives_back_what_is_on_its_way_to_it() -> None:
    async def main(town: Town) -> None:
        for early in range(12):
            async with town.host("first") as first:
                second = town.host("second")
                await second.__aenter__()
                town.delay_s = 0.1
                claim = asyncio.ensure_future(jobs(second).claim("q", wait=60))
                await town.clock.sleep(1)
                stopping = asyncio.ensure_future(town.clock.sleep(early * 0.03))
                await jobs(first).run_after(0, "q:w", queue="q")
                await stopping
                await second.stop()
                got = await claim
                if not got:
                    town.delay_s = 0.0001
                    again = await jobs(first).claim("q", wait=5)
                    assert len(again) == 1, early
                    got = again
                await jobs(first).complete(got[0].id, got[0].lease)

    in_town(main)


def test_a_process_that_met_an_unexpected_error_still_takes_the_store_over() -> None:
    async def main(town: Town) -> None:
        async with town.host("first"), town.host("second") as second:
            door = second._sharing._door  # type: ignore[union-attr]
            enter, fails = door.enter, [OSError(24, "too many open files"), ValueError("what nobody thought of")]

            async def failing(make: Any) -> Any:
                if fails:
                    raise fails.pop()
                return await enter(make)

            door.enter = failing  # type: ignore[method-assign]
            await town.kill_holder()
            town.holder = "somebody"
            await town.clock.sleep(3)
            town.holder = None
            assert await jobs(second).get("x") is None
            assert not fails
            await crash(second)

    in_town(main)


def test_a_store_that_cannot_be_read_at_a_take_over_is_taken_later() -> None:
    async def main(town: Town) -> None:
        async with town.host("first"), town.host("second") as second:
            service, fails = second._service, [1, 1]
            read = service.stored_clocks.read

            async def failing() -> None:
                if fails:
                    fails.pop()
                    raise ValueError("what nobody thought of")
                await read()

            service.stored_clocks.read = failing  # type: ignore[method-assign]
            await town.kill_holder()
            await town.clock.sleep(4)
            assert await jobs(second).get("x") is None
            assert not fails and town.holder == "second"
            await crash(second)

    in_town(main)


def test_a_process_that_comes_while_the_only_one_lets_its_callbacks_end_is_let_in() -> None:
    async def main(town: Town) -> None:
        town.answer_s = 8.0
        first, second = town.host("first"), town.host("second")
        await first.__aenter__()
        await jobs(first).run_after(0, "slow:one")
        while not town.arrived:
            await town.clock.sleep(0.1)
        stopping = asyncio.ensure_future(first.stop())
        await town.clock.sleep(0.5)
        began = town.clock.monotonic()
        async with second:
            assert await jobs(second).get("x") is None
            assert town.clock.monotonic() - began < 1.0
            await stopping
            assert await jobs(second).get("x") is None
            assert len(town.arrived) == 1
            await crash(second)

    in_town(main)


@pytest.mark.parametrize("stopped", [True, False, None], ids=["stopped", "busy", "not to be seen"])
def test_a_holder_that_is_stopped_while_its_door_is_closed_is_ended_and_no_other(stopped: bool | None) -> None:
    async def main(town: Town) -> None:
        async with town.host("first"), town.host("second") as second:
            await town.kill_holder()
            town.holder, town.accept, town.stopped = "one that takes over", None, stopped
            await town.clock.sleep(1.5)
            assert set(town.killed) == ({"one that takes over"} if stopped else set())
            town.holder = None
            assert await jobs(second).get("x") is None
            await crash(second)

    in_town(main)


def test_a_process_that_is_turned_away_is_no_noise_in_the_log_of_the_holder(caplog: pytest.LogCaptureFixture) -> None:
    async def main(town: Town) -> None:
        async with town.host("first"):
            link = Link(Hello(VERSION, "an old token"), lambda *_: None)
            link.ping()
            assert town.accept is not None
            Wired(town, link, town.accept(lambda _: True))
            await town.clock.sleep(1)
            assert link.is_lost

    in_town(main)
    assert not caplog.records


class Stranger(asyncio.Protocol):
    """Opens a link and says nothing, or a part of a word."""

    def __init__(self, word: bytes) -> None:
        self._word, self.lost_at = word, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._loop = asyncio.get_running_loop()
        transport.write(self._word)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_at = self._loop.time()


def test_who_opens_a_link_and_does_not_say_who_it_is_is_cut_off() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (_, second):
            await jobs(second).run_after("1h", "a:b", id="a")
            began = asyncio.get_running_loop().time()
            strangers = [Stranger(b""), Stranger(b"\x00\x00")]
            for one in strangers:
                assert town.accept is not None
                Wired(town, one, town.accept(lambda _: True))
            await town.clock.sleep(GREETING_S - 1)
            assert [one.lost_at for one in strangers] == [0.0, 0.0]
            await town.clock.sleep(2)
            assert all(GREETING_S <= one.lost_at - began < GREETING_S + 1 for one in strangers)
            assert await jobs(second).get("a") is not None
            assert len(town.wires) == 1, "the follower has said who it is"
            await crash(second)

    in_town(main)


@pytest.mark.parametrize("is_open", [True, False], ids=["door open", "door closed"])
def test_a_stopped_holder_that_may_not_be_ended_is_named_once_and_waited_for(
    is_open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(town: Town) -> None:
        async with town.host("first"), town.host("second") as second:
            assert await jobs(second).get("x") is None
            town.others_own, town.stopped = True, True
            if is_open:
                town.delay_s = 1_000_000.0  # nothing arrives any more
            else:
                await town.kill_holder()
                town.holder, town.accept = "another user's", None
            await town.clock.sleep(1.5)
            town.delay_s, town.stopped = 0.0001, False
            if not is_open:
                town.holder = None
            assert is_open or await jobs(second).get("x") is None
            await crash(second)

    in_town(main)
    said = [one.getMessage() for one in caplog.records if "may not end it" in one.getMessage()]
    assert len(said) == 1 and "SIGCONT" in said[0]
    assert not [one for one in caplog.records if "is ended by SIGKILL" in one.getMessage()]


@pytest.mark.parametrize("number", [2, 3], ids=["at home", "at another holder"])
def test_more_waiting_claims_than_a_scheduler_takes_at_once_wait_on_at_the_next_holder(number: int) -> None:
    async def main(town: Town) -> None:
        hosts = [town.host(f"h{n}", mailbox_limit=20) for n in range(number)]
        for host in hosts:
            await host.__aenter__()
        last = jobs(hosts[-1])
        claims = []
        await last.run_after("1h", "a:b")
        for n in range(300):
            claims.append(asyncio.ensure_future(last.claim(f"q{n % 100}", wait=60)))
            await town.clock.sleep(0.01)
        assert not [claim for claim in claims if claim.done()]
        if number == 3:
            hosts[-1]._sharing._behind_until = 1e9  # type: ignore[union-attr]
        await town.kill_holder()
        await town.clock.sleep(10)
        assert town.holder == "h1"
        assert not [claim for claim in claims if claim.done()]
        await last.run_after(0, "q:w", queue="q1")
        await town.clock.sleep(1)
        (got,) = [claim for claim in claims if claim.done()]
        assert len(got.result()) == 1
        for claim in claims:
            claim.cancel()
        await asyncio.wait(claims)
        for host in hosts[1:]:
            await crash(host)

    in_town(main)


def test_data_that_is_too_deep_or_holds_itself_is_refused_by_its_name() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(InvalidInputError, match="the args"):
        plain.encode(ring, "the args")
