"""The holder dies at any moment: another process takes over, and every call is answered, or says what is not known."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random

import pytest

from tests.actors.sharing.town import Town, jobs
from tocsin import ActorHost, Job
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.errors import HolderLostError, StoreUnavailable, TocsinError
from tocsin.testing import crash, simulate

GAP_S = 2.0
TRAVEL_S = 3.1
"""How long a callback may be on its way."""


async def killed_when_cut(town: Town) -> None:
    await town.cut.wait()
    await town.kill_holder()


Change = Callable[[Scheduler], Awaitable[object]]


async def one(t: Scheduler) -> object:
    return await t.run_after("1h", "a:b", {"n": 1})


async def chosen(t: Scheduler) -> object:
    return await t.run_after("1h", "a:b", {"n": 1}, id="chosen")


async def many(t: Scheduler) -> object:
    said = await t.submit_many([Job(path="a:b", after="1h", options={"id": f"m{n}"}) for n in range(3)])
    return [one.id for one in said if not isinstance(one, TocsinError)]


SUBMITS: dict[str, tuple[Change, int]] = {"one": (one, 1), "chosen": (chosen, 1), "many": (many, 3)}


@pytest.mark.parametrize("passes", [True, False], ids=["frame passes", "frame is lost"])
@pytest.mark.parametrize("name", SUBMITS)
def test_a_submit_is_done_once_wherever_the_wire_is_cut(name: str, passes: bool) -> None:
    submit, wanted = SUBMITS[name]

    async def main(random: Random) -> None:
        cuts = 0
        for cut_after in count(1):
            town = Town(random)
            async with town.host("first"), town.host("second") as second:
                await town.clock.sleep(0.01)
                town.cut_after, town.last_passes = cut_after, passes
                killing = asyncio.ensure_future(killed_when_cut(town))
                said = await submit(jobs(second))
                was_cut, town.cut_after = town.cut_after is None, None
                if was_cut:
                    await killing
                killing.cancel()
                page = await jobs(second).list(order="id")
                assert len(page.records) == wanted, (cut_after, page)
                assert {one.id for one in page.records} == ({said} if isinstance(said, str) else set(said)), said  # type: ignore[call-overload]
                await crash(second)
            cuts += was_cut
            if cut_after > 12:
                break
        assert cuts >= 2, "the wire was cut while the call was under way"

    simulate(0, main)


def test_a_change_that_may_have_been_done_says_whether_it_may_be_repeated() -> None:
    async def main(random: Random) -> None:
        changes: dict[str, tuple[Change, bool]] = {
            "changes.cancel": (lambda t: t.cancel("x"), True),
            "changes.set_pool": (lambda t: t.set_pool("p", max_concurrency=3), True),
            "schedules.put": (lambda t: t.schedules.put("s", "a:b", every=60), True),
            "schedules.trigger": (lambda t: t.schedules.trigger("s"), False),
            "changes.dead_retry": (lambda t: t.dead_retry("x"), False),
        }
        for name, (change, may_repeat) in changes.items():
            town = Town(random)
            async with town.host("first"), town.host("second") as second:
                town.cut_after, town.last_passes = 1, True
                asked = asyncio.ensure_future(change(jobs(second)))
                await town.cut.wait()
                await town.kill_holder()
                with pytest.raises(HolderLostError, match=name) as lost:
                    await asked
                assert lost.value.details == {"mayRepeat": may_repeat}
                assert lost.value.status == 503
                assert ("may be repeated" in lost.value.message) is may_repeat
                assert await jobs(second).get("none") is None, "the next call goes to the next holder"
                await crash(second)

    simulate(0, main)


def test_handles_go_on_over_a_take_over_in_every_process() -> None:
    async def main(random: Random) -> None:
        town = Town(random)
        hosts = [town.host(f"h{n}") for n in range(4)]
        for host in hosts:
            await host.__aenter__()
        handles = [(jobs(host), jobs(host).schedules) for host in hosts]
        claims = [asyncio.ensure_future(t.claim("q", wait=60)) for t, _ in handles]
        dead: set[int] = set()
        for n in range(3):
            alive = [one for place, one in enumerate(handles) if place not in dead]
            await alive[0][0].run_after("1h", "a:b", id=f"j{n}")
            dead.add(next(place for place, host in enumerate(hosts) if town.holder == f"h{place}" and host.ready))
            await town.kill_holder()
            before = town.clock.monotonic()
            for t, schedules in [one for place, one in enumerate(handles) if place not in dead]:
                assert len((await t.list(order="id")).records) == n + 1
                assert (await schedules.put("s", "a:b", every=60)).revision == 1
            assert town.clock.monotonic() - before < GAP_S
            assert town.holder is not None
            assert sum(host.ready for host in hosts) == 3 - n
        (last,) = {0, 1, 2, 3} - dead
        sharing = hosts[last]._sharing
        assert sharing is not None and not sharing.follows, "the last one holds the store"
        await handles[last][0].run_after(0, "q:w", queue="q")
        (got,) = await claims[last]
        assert got.function_path == "q:w", "it waited at one holder after the other"
        await asyncio.wait(claims)
        assert town.clock.monotonic() < 30
        await crash(hosts[last])

    simulate(0, main)


def test_calls_wait_for_a_holder_and_then_say_that_there_is_none() -> None:
    async def main(random: Random) -> None:
        town = Town(random)
        async with town.host("first"), town.host("second") as second:
            t = jobs(second)
            await town.kill_holder()
            town.holder = "somebody who lets nobody in"
            with pytest.raises(StoreUnavailable, match="no process holds the store, and none has taken it over"):
                await t.get("x")
            assert second.ready is False
            assert [one.code for one in second.health()] == ["HOLDER_ABSENT"]
            town.holder = None
            assert await t.get("x") is None
            assert [second.ready] == [True]
            await crash(second)

    simulate(0, main)


def test_a_process_that_cannot_open_the_store_tries_again_until_it_can() -> None:
    async def main(random: Random) -> None:
        town = Town(random)
        async with town.host("first"), town.host("second") as second:
            town.failures = [StoreUnavailable("the disk is away"), RuntimeError("a fault of ours")]
            await town.kill_holder()
            assert await jobs(second).get("x") is None
            assert town.holder == "second" and not town.failures
            await crash(second)

    simulate(0, main)


def test_a_holder_that_stops_in_order_hands_over_and_no_call_notices() -> None:
    async def main(random: Random) -> None:
        town = Town(random)
        first, second = town.host("first"), town.host("second")
        await first.__aenter__()
        async with second:
            t = jobs(second)
            await t.run_after(0, "q:r", id="r", queue="r", keep_result="1h")
            claim = asyncio.ensure_future(t.claim("q", wait=60))
            result = asyncio.ensure_future(t.result("r"))
            await town.clock.sleep(0.1)
            stopping = asyncio.ensure_future(first.stop())
            ids: list[str] = []
            while not stopping.done() or len(ids) < 50:
                ids.append(await t.run_after("1h", "a:b"))
                await t.set_pool("p", max_concurrency=len(ids))
            await stopping
            assert {one.id for one in (await t.list(order="id")).records} == {"r", *ids}
            (pulled,) = await t.claim("r", wait=0)
            await t.complete("r", pulled.lease, result=5)
            assert await result == 5, "it waited on at the next holder"
            await t.run_after(0, "q:w", queue="q")
            assert len(await claim) == 1
            await crash(second)

    for seed in range(5):
        simulate(seed, main)


def test_callbacks_in_flight_end_before_the_holder_hands_over_and_callers_do_not_notice() -> None:
    async def main(random: Random) -> None:
        town = Town(random)
        town.answer_s = 4.0
        first, second = town.host("first"), town.host("second")
        await first.__aenter__()
        async with second:
            t = jobs(second)
            await t.run_after(0, "slow:one")
            claim = asyncio.ensure_future(t.claim("q", wait=60))
            while not town.arrived:
                await town.clock.sleep(0.1)
            stopping = asyncio.ensure_future(first.stop())
            longest = 0.0
            while not stopping.done():
                began = town.clock.monotonic()
                await t.run_after("1h", "a:b")
                longest = max(longest, town.clock.monotonic() - began)
                await town.clock.sleep(0.05)
            assert longest < 1.0
            await t.run_after(0, "late:one")
            await town.clock.sleep(30)
            assert len(town.arrived) == 2, "neither was sent twice"
            await t.run_after(0, "q:w", queue="q")
            assert len(await claim) == 1
            await crash(second)

    for seed in range(3):
        simulate(seed, main)


@pytest.mark.parametrize("stopped", [True, False, None], ids=["stopped", "busy", "not to be seen"])
def test_a_holder_that_is_stopped_is_ended_and_one_that_is_busy_never(stopped: bool | None) -> None:
    async def main(random: Random) -> None:
        town = Town(random)
        async with town.host("first"), town.host("second") as second:
            asked = asyncio.ensure_future(jobs(second).get("x"))
            await asked
            town.delay_s = 1_000_000.0  # nothing arrives any more
            town.stopped = stopped
            await town.clock.sleep(1.5)
            assert town.killed == (["first"] if stopped else [])
            town.delay_s = 0.0001
            await crash(second)

    simulate(0, main)


def test_a_process_that_is_configured_differently_takes_over_last_but_does() -> None:
    async def main(random: Random) -> None:
        for _ in range(5):
            town = Town(random)
            same = town.host("first"), town.host("same")
            other = town.host("other", lanes=3)
            async with same[0], other, same[1]:
                await town.kill_holder()
                assert await jobs(other).get("x") is None
                assert town.holder == "same", "it goes first"
                await town.kill_holder()
                before = town.clock.monotonic()
                assert await jobs(other).get("x") is None
                assert town.holder == "other", "somebody must hold the store"
                assert town.clock.monotonic() - before < GAP_S
                await crash(other)

    simulate(0, main)


def test_random_deaths_lose_nothing_and_double_nothing_within_a_lease() -> None:
    """Four processes, one of which dies every few seconds and comes back, whoever holds the store; all schedule and
    cancel at random."""

    async def main(random: Random) -> None:
        town = Town(random)
        names = count()
        hosts: list[ActorHost] = []
        accepted: set[str] = set()
        cancelled: dict[str, float] = {}
        perhaps: set[str] = set()
        stop = asyncio.Event()

        async def come() -> None:
            host = town.host(f"h{next(names)}")
            await host.__aenter__()
            hosts.append(host)

        async def use() -> None:
            while not stop.is_set():
                t = jobs(random.choice(hosts), random.choice("ab"))
                try:
                    if random.random() < 0.7 or not accepted:
                        accepted.add(await t.run_after(random.uniform(0, 3), "a:b", timeout_ms=10_000))
                    else:
                        job_id = random.choice(sorted(accepted))
                        perhaps.add(job_id)  # if its answer is lost
                        if (await t.cancel(job_id)).cancelled:
                            cancelled[job_id] = town.clock.monotonic()
                except TocsinError:
                    pass  # its own process died, or the answer of a change was lost
                await town.clock.sleep(random.uniform(0, 0.1))

        for _ in range(4):
            await come()
        users = [asyncio.ensure_future(use()) for _ in range(6)]
        for _ in range(6):
            await town.clock.sleep(random.uniform(0.5, 3))
            dying = random.choice([town.hosts[town.holder], *hosts] if town.holder else hosts)
            hosts.remove(dying)
            await (crash(dying) if random.random() < 0.7 else dying.stop())
            await come()
        stop.set()
        await asyncio.gather(*users)
        await town.clock.sleep(120)

        deliveries = town.receiver.deliveries
        attempts = Counter((one.webhook_id, one.attempt) for one in deliveries)
        assert not [one for one, times in attempts.items() if times > 1], "one attempt was sent twice"
        late = [one for at, one in town.arrived if at > cancelled.get(one, at) + TRAVEL_S]
        assert not late, "a cancelled job was started"
        delivered = {one.id for one in deliveries}
        lost = accepted - delivered - perhaps
        assert not lost, f"{len(lost)} of {len(accepted)} were accepted and never sent"
        assert len(delivered & accepted) > 50
        for name in "ab":
            assert (await jobs(hosts[0], name).status()).backlog == 0
        for host in hosts:
            await crash(host)

    for seed in range(2):
        simulate(seed, main)
