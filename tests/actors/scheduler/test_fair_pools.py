"""Fair pools: jobs with different shard keys have turns, by weights, with a cap for each key; and how that begins and
ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.rows import split_lines_key
from tocsin.actors.scheduler.state.ready_heap import Line
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer


class Busy:
    """Answers after a second, and knows which keys ran and run, by the letter that ids begin with."""

    def __init__(self, sim: SimulatedHost, seconds: float = 1.0) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.started: list[str] = []
        self._seconds = seconds
        sim.reply = self.work

    async def work(self, one: Delivery) -> Answer:
        key = one.id.partition("-")[0]
        self.started.append(key)
        self.running[key] += 1
        self.most |= self.running
        await asyncio.sleep(self._seconds)
        self.running[key] -= 1
        return OK


def of(key: str, count: int, pool: str | None = "p", *, first: int = 0, **options: object) -> list[Job]:
    return [
        Job(path="work:run", after=0, options={"id": f"{key}-{n:05d}", "pool": pool, "shard_key": key, **options})
        for n in range(first, first + count)
    ]


@on_simulated_host()
async def test_the_first_jobs_of_a_key_do_not_wait_for_the_backlog_of_another(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=4, fair=True)
    await sim.jobs.submit_many(of("many", 500))
    await sim.sleep(0.5)
    await sim.jobs.submit_many(of("few", 10))
    await sim.sleep(30)

    assert busy.started[:4] == ["many"] * 4
    assert busy.started[:40].count("few") == 10, "each key gets half of what starts"
    assert busy.started[4:24].count("few") == 10
    await sim.sleep(200)
    assert Counter(busy.started) == {"many": 500, "few": 10}


@on_simulated_host()
async def test_keys_go_round_and_none_twice_before_another_once(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=1, fair=True, paused=True)
    for key in "abcde":
        await sim.jobs.submit_many(of(key, 4))
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(60)

    assert busy.started == list("abcde") * 4


@on_simulated_host()
async def test_a_key_with_a_weight_has_so_many_turns_where_others_have_one(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=1, fair=True, weights={"gold": 3})
    for key in ("gold", "tin", "zinc"):
        await sim.jobs.submit_many(of(key, 40))
    await sim.sleep(50.5)

    started = Counter(busy.started[:50])
    assert (started["gold"], started["tin"], started["zinc"]) == (30, 10, 10)


@on_simulated_host()
async def test_no_more_jobs_of_a_key_run_at_once_than_its_cap(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=6, fair=True, max_per_key=2)
    await sim.jobs.submit_many(of("a", 30))
    await sim.sleep(3.5)
    assert busy.running == {"a": 2}, "slots stay free"
    await sim.jobs.submit_many([*of("b", 10), *of("c", 10), *of("d", 10)])
    await sim.sleep(0.3)
    assert sum(busy.running.values()) == 6
    await sim.jobs.set_pool("p", max_per_key=3)
    await sim.sleep(60)

    assert busy.most["a"] == 3
    assert max(busy.most.values()) == 3
    assert Counter(busy.started) == {"a": 30, "b": 10, "c": 10, "d": 10}


@on_simulated_host()
async def test_the_cap_of_a_key_holds_over_a_crash(sim: SimulatedHost) -> None:
    busy = Busy(sim, 500)
    await sim.jobs.set_pool("p", max_concurrency=6, fair=True, max_per_key=2)
    await sim.jobs.submit_many(of("a", 30))
    await sim.sleep(1)
    await sim.crash()
    await sim.open()
    await sim.jobs.submit_many(of("b", 1))
    await sim.sleep(5)

    assert Counter(busy.started) == {"a": 2, "b": 1}


@on_simulated_host()
async def test_a_key_that_comes_back_has_no_turns_saved_up_and_none_to_pay_back(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=1, fair=True)
    await sim.jobs.submit_many([*of("a", 1), *of("b", 60)])
    await sim.sleep(20.5)
    del busy.started[:]
    await sim.jobs.submit_many(of("a", 20, first=1))
    await sim.sleep(20)

    assert {busy.started.count(key) for key in "ab"} == {10}
    assert all(one != other for one, other in pairwise(busy.started))


@on_simulated_host()
async def test_keys_that_come_without_end_do_not_keep_a_waiting_one_from_its_turn(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=1, fair=True)
    await sim.jobs.submit_many(of("old", 3))
    for n in range(20):  # more than one a second comes, all of other keys
        await sim.jobs.submit_many([*of(f"new{n}x", 1), *of(f"new{n}y", 1)])
        await sim.sleep(1)

    assert busy.started.count("old") >= 2


@on_simulated_host(lanes=2)
async def test_a_fair_pool_takes_nothing_from_others_when_lanes_are_few(sim: SimulatedHost) -> None:
    """A pool's jobs have the same places among others, whichever of them go there."""
    busy = Busy(sim)
    await sim.jobs.set_instance(paused=True)
    await sim.jobs.set_pool("p", max_concurrency=1_000, fair=True)
    await sim.jobs.set_pool("q", max_concurrency=1_000)
    for n in range(300):
        await sim.jobs.submit_many([*of("a", 1, first=n), *of("other", 1, pool="q", first=n)])
        await sim.sleep(0.01)
    await sim.jobs.submit_many(of("b", 20))
    await sim.jobs.set_instance(paused=False)
    await sim.sleep(600)

    firsts = busy.started[:100]
    assert 45 <= firsts.count("other") <= 55
    assert firsts.count("b") == 20
    assert len(busy.started) == 620


@on_simulated_host()
async def test_callbacks_and_jobs_of_queues_share_the_turns_of_their_pool(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=1, fair=True)
    await sim.jobs.submit_many(of("called", 100))
    await sim.sleep(0.5)
    await sim.jobs.submit_many(of("pulled", 5, queue="q"))
    got: list[float] = []
    for _ in range(5):
        (one,) = await sim.jobs.claim("q", wait=20)
        got.append(sim.now)
        await sim.jobs.complete(one.id, one.lease)

    assert len(busy.started) < 12, "about one callback for each job of the queue"
    assert got[-1] - got[0] < 10_000


@on_simulated_host()
async def test_a_fair_pool_keeps_to_its_rate(sim: SimulatedHost) -> None:
    """As in the page: so many mails a minute, fair between customers."""
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=10, fair=True, rate=Rate(60, per="1m"))
    await sim.jobs.submit_many(of("large", 50))
    await sim.sleep(0.5)
    await sim.jobs.submit_many(of("small", 5))
    await sim.sleep(20)

    assert 20 <= len(busy.started) <= 22
    assert busy.started[:13].count("small") == 5


@on_simulated_host()
async def test_waiting_jobs_get_turns_when_their_pool_becomes_fair_and_lose_them_again(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=2)
    await sim.jobs.submit_many(of("a", 700))
    await sim.jobs.submit_many(of("b", 10))
    await sim.sleep(2.5)
    assert "b" not in busy.started
    await sim.jobs.set_pool("p", fair=True)
    await sim.sleep(12)
    assert busy.started.count("b") == 10
    assert await sim.faults() == []
    await sim.jobs.submit_many(of("c", 10))
    await sim.jobs.set_pool("p", fair=False)
    await sim.sleep(12)
    assert "c" not in busy.started
    assert await sim.faults() == []
    await sim.sleep(600)
    assert Counter(busy.started) == {"a": 700, "b": 10, "c": 10}


@on_simulated_host()
async def test_a_move_between_lines_goes_on_after_a_crash_at_any_page(sim: SimulatedHost) -> None:
    Busy(sim)
    await sim.jobs.set_pool("p", paused=True)
    for n in range(40):
        await sim.jobs.submit_many(of(f"k{n}", 30))
    for fair in (True, False, True):
        await sim.jobs.set_pool("p", fair=fair)
        await sim.crash()  # one page has been moved, and the next has begun
        await sim.open()
        await sim.sleep(1)  # nobody asks for anything: the stored alarm rings
        assert {"#" in line.queue for line in await _lines(sim)} == {fair}
        assert await sim.faults() == []
    assert (await sim.jobs.pool("p")).queued == 1_200


async def _lines(sim: SimulatedHost) -> list[Line]:
    provider = sim.host.runtime.provider
    rows = await provider.view("scheduler/t").scan(b"lines/", b"lines0", limit=5_000)
    return [Line(*split_lines_key(key)) for key, _ in rows]
