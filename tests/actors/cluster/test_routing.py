"""A request at any host is served by the owner of its scheduler, or from the store, or kept until it can be."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from msgspec.structs import replace

from tests.actors.cluster.city import City
from tests.actors.sharing.test_following import SNAPSHOT, every_operation, shown
from tocsin import Actor, Job
from tocsin.actors.scheduler.client.source import SOURCE, Source
from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.errors import (
    DuplicateScheduleIdError,
    HolderLostError,
    NotAnsweredYetError,
    OverloadedError,
    StoreUnavailable,
)
from tocsin.testing import simulate


class Counter(Actor):
    async def add(self, n: int) -> int:
        value = int(await self.ctx.storage.get(b"n") or b"0") + n
        self.ctx.storage.put(b"n", b"%d" % value)
        return value


def in_city(main: Callable[[City], Awaitable[None]], seeds: int = 1) -> None:
    async def run(random: Random) -> None:
        await main(City(random))

    for seed in range(seeds):
        simulate(seed, run)


def _named(said: list[str]) -> list[str]:
    """Leave out what the name of an instance decides."""
    return [re.sub(r"one-host|other-one|'slot': \d+", "…", one) for one in said]


def test_every_operation_answers_as_at_the_owner() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, b):
            at_owner = await every_operation(a.scheduler("one-host"))
            elsewhere = await every_operation(b.scheduler("other-one"))
            assert _named(shown(elsewhere)) == _named(shown(at_owner))
            assert not city.mail and not city.done

    in_city(main)


def test_every_operation_of_a_host_without_links_goes_by_mail_or_to_the_store() -> None:
    async def main(city: City) -> None:
        async with city.two(is_private=True) as (a, b):
            t = b.scheduler("t")
            assert await t.run_after("1h", "a:b", id="one") == "one"
            with pytest.raises(DuplicateScheduleIdError):
                await t.run_after("1h", "a:b", id="one")
            minted = await t.run_after("1h", "a:b")
            many = await t.submit_many([Job(path="a:b", after="2h", options={"id": f"m{n % 2}"}) for n in range(3)])
            assert [getattr(one, "code", "") for one in many] == ["", "", "DUPLICATE_SCHEDULE_ID"]
            assert {one.id for one in (await t.list()).records} == {"one", minted, "m0", "m1"}
            assert (await t.cancel("one")).cancelled and not (await t.cancel("one")).cancelled
            assert (await t.status()).backlog == 3  # from the store
            assert (await t.set_pool("p", max_concurrency=2)).created
            with pytest.raises(StoreUnavailable, match="no address"):
                await t.claim("q", wait=0)
            assert len(city.done) == 7
            assert not city.mail
            assert (await a.scheduler("t").get(minted)) is not None

    in_city(main)


def test_calls_while_nobody_owns_the_scheduler_are_done_by_whoever_does_next() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            t = b.scheduler("t")
            await t.run_after("1h", "a:b", id="before")
            await city.give("t", None)
            made = asyncio.create_task(t.run_after("1h", "a:b", id="during"))
            await city.clock.sleep(3)
            assert not made.done() and len(city.mail) == 1
            await city.give("t", "b")
            assert await made == "during"
            assert {one.id for one in (await t.list()).records} == {"before", "during"}

    in_city(main)


def test_who_asks_over_http_hears_that_the_call_is_accepted_and_handles_wait_longer() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            await city.give("t", None)
            began = city.clock.monotonic()
            token = SPEAKS_JSON.set(True)
            with pytest.raises(NotAnsweredYetError) as pending:
                await b.scheduler("t").run_after("1h", "a:b", id="one")
            SPEAKS_JSON.reset(token)
            assert pending.value.to_dict() == {"id": "one", "accepted": True}
            assert 2 < city.clock.monotonic() - began < 3
            with pytest.raises(NotAnsweredYetError):
                await b.scheduler("t").cancel("one")
            assert 32 < city.clock.monotonic() - began < 34
            await city.give("t", "a")
            await city.clock.sleep(1)
            assert not city.mail and len(city.done) == 2
            assert await b.scheduler("t").get("one") is None  # it was made, then cancelled

    in_city(main)


def test_a_store_with_too_much_mail_says_when_to_try_again() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            await city.give("t", None)
            city.mail_is_full = True
            with pytest.raises(OverloadedError) as refused:
                await b.scheduler("t").run_after("1h", "a:b")
            assert refused.value.details["retryAfterMs"] == 5000

    in_city(main)


@pytest.mark.parametrize("lost", ["asked", "answered"])
def test_a_link_lost_in_mid_call_does_nothing_twice_and_loses_nothing(lost: str) -> None:
    async def main(city: City) -> None:
        async with city.two(actors=[Counter]) as (_a, b):
            t = b.scheduler("t")
            await t.run_after("1h", "a:b", id="first")
            counter = b.actor(Counter, "c")
            assert await counter.add(1) == 1

            async def cut_in(call: Awaitable[object]) -> object:
                under_way = asyncio.ensure_future(call)
                city.streets.still.add("a" if lost == "asked" else "b")
                await city.clock.sleep(0.1)
                city.streets.still.clear()
                if lost == "asked":
                    for one in city.streets.transports:
                        one.arrive()
                city.streets.cut("a")
                return await under_way

            assert await cut_in(t.run_after("1h", "a:b", id="one")) == "one"
            minted = await cut_in(t.run_after("1h", "a:b"))
            assert {one.id for one in (await t.list()).records} == {"first", "one", minted}
            assert await cut_in(counter.add(10)) == 11
            assert await cut_in(counter.add(100)) == 111
            assert (await cut_in(t.cancel("one"))).cancelled  # type: ignore[attr-defined]
            await t.schedules.put("s", "a:b", every=3600)
            run = await cut_in(t.schedules.trigger("s"))
            assert [one.job_id for one in (await t.schedules.occurrences("s")).occurrences] == [run.id]  # type: ignore[attr-defined]

    in_city(main, seeds=3)


@pytest.mark.parametrize("job_id", ["chosen", None])
def test_a_submission_that_a_host_reads_only_when_it_goes_on_is_not_done_again(job_id: str | None) -> None:
    """It had stood still, so its link was cut, and what it had not read yet was looked up in vain and sent again."""

    async def main(city: City) -> None:
        async with city.two() as (a, b):
            await b.scheduler("t").run_after("1h", "a:b", id="first")
            city.streets.still.add("a")
            made = asyncio.create_task(b.scheduler("t").run_after("1h", "a:b", id=job_id))
            await city.clock.sleep(0.1)
            (unread,) = [one for one in city.streets.transports if one.of == "a" and one.coming]
            sent, unread.closed = b"".join(unread.coming), True  # for its own end the link is not lost yet
            while not any(one.of == "b" and one.closed for one in city.streets.transports):
                await city.clock.sleep(0.05)
            await city.clock.sleep(0.2)
            unread.protocol.data_received(sent)
            await city.clock.sleep(0.05)
            there = {one.id for one in (await a.scheduler("t").list()).records} - {"first"}
            assert len(there) == 1 and not made.done()
            assert (await a.scheduler("t").cancel(*there)).cancelled  # it has ended
            city.streets.still.clear()
            for one in city.streets.transports:
                one.arrive()
            assert {await made} == there and not city.done, "it was sent over a new link"
            assert [one.id for one in (await a.scheduler("t").list()).records] == ["first"]

    in_city(main)


def test_a_call_that_may_have_been_done_is_not_said_to_be_undone() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            t = b.scheduler("t")
            await t.run_after("1h", "a:b", id="one")
            city.mail_is_full = True
            city.streets.still.add("b")
            cancelled = asyncio.create_task(t.cancel("one"))
            await city.clock.sleep(0.1)
            city.streets.doors.clear()
            city.streets.cut("a")
            with pytest.raises(HolderLostError) as lost:
                await cancelled
            assert lost.value.details == {"mayRepeat": True}
            city.streets.still.clear()
            assert await t.get("one") is None

    in_city(main)


def test_a_host_that_stands_still_is_not_waited_for() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_, b):
            t = b.scheduler("t")
            await t.run_after("1h", "a:b", id="first")
            city.streets.still.add("a")
            made = asyncio.create_task(t.run_after("1h", "a:b", id="one"))
            await city.clock.sleep(1)
            assert not made.done()
            city.owners["scheduler/t"] = "b"
            assert await made == "one"
            assert {one.id for one in (await t.list()).records} == {"first", "one"}

    in_city(main)


def test_who_believes_in_an_owner_of_before_is_sent_on() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, b):
            city.house("c")
            await city.houses["c"].start()
            await b.scheduler("t").run_after("1h", "a:b", id="one")
            await city.give("t", "c")
            city.stale["b"] = {"scheduler/t": "a"}
            cancelled = asyncio.create_task(b.scheduler("t").cancel("one"))
            await city.clock.sleep(0.15)
            city.stale.clear()
            assert (await cancelled).cancelled
            city.stale["a"] = {"scheduler/t": "a"}  # it believes that it still owns it
            second = asyncio.create_task(a.scheduler("t").run_after("1h", "a:b", id="two"))
            await city.clock.sleep(0.05)
            city.stale.clear()
            assert await second == "two"
            city.stale["b"] = {"scheduler/t": "a"}
            said = asyncio.create_task(b.scheduler("t").announce(SNAPSHOT))  # noted in memory only
            await city.clock.sleep(0.05)
            city.stale.clear()
            await said
            assert [one.id for one in (await city.houses["c"].scheduler("t").workers()).workers] == ["w1"]
            await city.houses["c"].stop()

    in_city(main)


def test_mail_that_comes_again_is_done_once() -> None:
    async def main(city: City) -> None:
        async with city.two(actors=[Counter]) as (a, b):
            t = a.scheduler("t")
            await t.schedules.put("s", "a:b", every=3600)
            await t.run_after("1h", "a:b", id="there")
            for name in ("scheduler/t", "Counter/c"):
                city.owners[name] = None
            calls = [
                asyncio.create_task(one)
                for one in (
                    b.scheduler("t").run_after("1h", "a:b", id="one"),
                    b.scheduler("t").run_after("1h", "a:b"),
                    b.scheduler("t").schedules.trigger("s"),
                    b.scheduler("t").cancel("there"),
                    b.actor(Counter, "c").add(1),
                )
            ]
            await city.clock.sleep(2)
            assert len(city.mail) == 5
            mail = dict(city.mail)
            for name in ("scheduler/t", "Counter/c"):
                city.owners[name] = "a"
            answers = await asyncio.gather(*calls)
            first = dict(city.answers)
            assert (await a.scheduler("t").cancel("one")).cancelled  # it has ended when its mail comes again
            await city.give("t", "b")
            city.owners["Counter/c"] = "b"
            city.answers.clear()
            city.mail.update(mail)  # whoever did it died before this was noted
            await city.clock.sleep(2)
            assert not city.mail and city.answers == first
            assert answers[3].cancelled and answers[4] == 1
            ids = {one.id for one in (await b.scheduler("t").list()).records}
            assert answers[0] == "one" and answers[1] in ids and not ids & {"one", "there"}
            assert len((await b.scheduler("t").schedules.occurrences("s")).occurrences) == 1
            assert await b.actor(Counter, "c").add(1) == 2

    in_city(main)


def test_one_submission_that_arrives_twice_is_one_job_and_another_one_of_its_id_is_refused() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, _):
            t = a.scheduler("t")
            port = a.port("t")
            new = port.checks.job(Job(path="a:b", after="1h", options={"id": "one"}))
            named = replace(new, job=replace(new.job, incarnation="sent-1"))
            for _ in range(2):
                assert (await port.jobs.submit(named)).created
            with pytest.raises(DuplicateScheduleIdError):
                await port.jobs.submit(replace(new, job=replace(new.job, incarnation="sent-2")))
            assert len((await t.list()).records) == 1

    in_city(main)


def test_reads_say_whether_the_store_answered_and_go_to_the_owner_if_they_must() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, b):
            await a.scheduler("t").run_after("1h", "a:b", id="one")
            t = b.scheduler("t")

            async def from_store(read: Callable[[], Awaitable[object]], fresh: bool = False) -> bool:
                SOURCE.set(source := Source(fresh))
                assert await read() is not None
                return source.from_store

            assert await from_store(lambda: t.get("one"))
            assert not city.streets.passed
            assert not await from_store(lambda: t.get("one"), fresh=True)
            assert city.streets.passed
            assert not await from_store(t.status)
            city.owners["scheduler/t"] = None
            assert await from_store(t.status)
            SOURCE.set(Source(fresh=True))
            with pytest.raises(StoreUnavailable, match="no host owns"):
                await b.scheduler("t").get("one")
            SOURCE.set(None)

    in_city(main)


def test_a_wait_for_a_job_goes_on_at_the_next_owner() -> None:
    async def main(city: City) -> None:
        async with city.two() as (_a, b):
            t = b.scheduler("t")
            await t.run_after(0, "q:w", id="one", queue="q", keep_result="1h")
            waiting = asyncio.create_task(t.result("one", timeout="60s"))
            claiming = asyncio.create_task(t.claim("other", wait="30s"))
            await city.clock.sleep(0.2)
            await city.give("t", None)
            await city.clock.sleep(0.2)
            await city.give("t", "b")
            (claimed,) = await t.claim("q", wait=0)
            await t.complete("one", claimed.lease, result={"r": 1})
            assert await waiting == {"r": 1}
            await t.run_after(0, "q:w", id="two", queue="other")
            assert [one.id for one in await claiming] == ["two"]

    in_city(main)


def test_a_pass_given_at_one_host_is_taken_at_another_once() -> None:
    async def main(city: City) -> None:
        async with city.two() as (a, b):
            await b.cluster.passes.keep("d1", "t/token")
            await a.cluster.passes.keep("d2", "t/other")
            assert await a.cluster.passes.take("d1") == "t/token"
            assert await b.cluster.passes.take("d2") == "t/other"
            assert await b.cluster.passes.take("d1") is None

    in_city(main)
