"""Jobs that hosts were lost with: a bad one ends dead and takes nobody along, and nobody waits long because of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.line_names import level_in, marked, place_in
from tocsin.actors.scheduler.model.rows import AtRow, LastError
from tocsin.actors.scheduler.model.suspects import ALONE, FEW, LOSSES_MAX, LOSSES_TOGETHER, SOME, level_of, lost
from tocsin.actors.scheduler.state.job_queues import JobQueues
from tocsin.actors.scheduler.state.ready_heap import PriorityBucket
from tocsin.actors.testing import simulate
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer

RUN_S = 4
LEASE_S = 20.2
"""Until the leases of a host that was lost are over: deadlines are 5 s here."""


class Crashes:
    """A host that is killed and started again. What runs, and beside what, is seen at the receiver."""

    def __init__(self, random: Random, **options: int) -> None:
        self.sim = SimulatedHost(random)
        self.options = options
        self.running: Counter[str] = Counter()
        self.most_beside: Counter[str] = Counter()
        self.killers: set[str] = set()
        self.killed = asyncio.Event()
        self.took_s = float(RUN_S)
        self.sim.reply = self.reply

    async def reply(self, one: Delivery) -> Answer:
        self.running[one.id] += 1
        for job_id in self.running:
            self.most_beside[job_id] = max(self.most_beside[job_id], self.running.total())
        try:
            if one.id in self.killers:
                await asyncio.sleep(0.5)
                self.killed.set()
            await asyncio.sleep(self.took_s)
            return OK
        finally:
            self.running[one.id] -= 1
            self.running += Counter()

    async def open(self) -> None:
        await self.sim.open(**self.options)

    async def kill(self) -> None:
        await self.sim.crash()
        self.running.clear()
        self.killed.clear()
        await self.open()

    async def submit(self, names: Sequence[str], instance: str = "t", **options: Any) -> None:
        given = {"timeout_ms": 5_000, **options}
        jobs = [Job(path="work:run", after=0, options={**given, "id": name}) for name in names]
        await self.sim.host.scheduler(instance).submit_many(jobs)

    async def suspects(self, count: int, losses: int, **options: Any) -> None:
        """So many jobs that so many hosts were lost with, due and claimed again by now."""
        await self.submit([f"s{n}" for n in range(count)], **options)
        for _ in range(losses):
            await self.sim.sleep(1)
            await self.kill()
            await self.sim.sleep(LEASE_S - 1)

    async def end(self) -> None:
        await self.sim.close()
        assert await self.sim.faults() == []


def crashing(test: Callable[[Crashes], Awaitable[None]], seed: int = 3, **options: int) -> None:
    async def main(random: Random) -> None:
        crashes = Crashes(random, **options)
        await crashes.open()
        await test(crashes)
        await crashes.end()

    simulate(seed, main)


def test_fresh_jobs_of_another_instance_start_beside_forty_suspects() -> None:
    async def test(world: Crashes) -> None:
        await world.suspects(40, 2)
        began = world.sim.now
        await world.submit([f"fresh{n}" for n in range(10)], "b")
        await world.sim.sleep(3)
        fresh = [job_id for _, job_id in world.sim.arrivals if job_id.startswith("fresh")]
        assert len(fresh) == 10, "each was delivered within 3 s of being due"
        while await world.sim.jobs.get("s0") or (await world.sim.jobs.status()).backlog:
            await world.sim.sleep(0.5)
        assert world.sim.now - began < 4 * RUN_S * 1000, "and the suspects are done soon as well"
        await world.sim.sleep(RUN_S + 1)
        assert (await world.sim.jobs.status()).dead == 0

    crashing(test)


def test_suspects_take_turns_with_others_in_their_own_instance_and_pool() -> None:
    async def test(world: Crashes) -> None:
        await world.suspects(8, 2, pool="p", max_concurrency=2)
        await world.submit([f"pooled{n}" for n in range(4)], pool="p", max_concurrency=2)
        await world.submit([f"free{n}" for n in range(4)])
        await world.sim.sleep(1)
        arrived = {job_id for _, job_id in world.sim.arrivals}
        assert {f"free{n}" for n in range(4)} <= arrived
        await world.sim.sleep(40)
        assert {f"pooled{n}" for n in range(4)} <= {job_id for _, job_id in world.sim.arrivals}
        assert (await world.sim.jobs.status()).backlog == 0

    crashing(test)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [1, 8, 256])
def test_a_job_that_kills_its_host_ends_dead_and_nobody_else_does(seed: int, limit: int) -> None:
    """Among sixty others, of its own instance and of another, which keep coming."""

    async def test(world: Crashes) -> None:
        world.killers, world.took_s = {"n7"}, 1
        await world.submit([f"n{n}" for n in range(30)])
        await world.submit([f"m{n}" for n in range(30)], "b")
        kills = 0
        for n in range(400):
            try:
                async with asyncio.timeout(LEASE_S / 4):
                    await world.killed.wait()
            except TimeoutError:
                if not (await world.sim.jobs.status()).backlog and kills >= LOSSES_MAX:
                    break
            else:
                await world.kill()
                kills += 1
            if n < 12:
                await world.submit([f"later{n}"], "b" if n % 2 else "t")
        await world.sim.sleep(300)
        letters = (await world.sim.jobs.dead()).records
        assert [(one.id, one.reason, one.losses) for one in letters] == [("n7", "lost", LOSSES_MAX)]
        assert kills == LOSSES_MAX
        for instance in ("t", "b"):
            status = await world.sim.host.scheduler(instance).status()
            assert (status.backlog, status.in_flight) == (0, 0)
        assert (await world.sim.host.scheduler("b").status()).dead == 0

    crashing(test, seed, max_in_flight=limit, lanes=min(limit, 64))


def test_the_last_attempt_has_the_host_for_itself() -> None:
    async def test(world: Crashes) -> None:
        await world.suspects(1, 3)
        await world.sim.sleep(1)
        await world.kill()
        world.killers, world.took_s = {"s0"}, 1

        async def traffic() -> None:
            for n in range(300):
                await world.submit([f"fresh{n}"], "b")
                await world.sim.sleep(0.2)

        more = asyncio.ensure_future(traffic())
        await world.killed.wait()
        beside = Counter(world.running)
        at = world.sim.times("s0")[-1]
        await more
        await world.sim.sleep(10)

        assert beside == Counter({"s0": 1})
        assert not [one for when, one in world.sim.arrivals if at <= when < at + 1_500 and one != "s0"]
        assert len({one for _, one in world.sim.arrivals}) == 301
        assert await world.sim.jobs.get("s0") is None

    crashing(test)


def test_while_one_runs_alone_others_say_so_and_have_at_least_half_of_the_time() -> None:
    async def test(world: Crashes) -> None:
        await world.suspects(5, 4)
        await world.submit(["fresh"], "b")
        held = [one.code for one in await world.sim.host.scheduler("b").why("fresh")]
        began = world.sim.now
        for n in range(400):
            await world.submit([f"more{n}"], "b")
            await world.sim.sleep(0.25)
        arrivals = [at for at, job_id in world.sim.arrivals if job_id.startswith("more")]
        await world.sim.sleep(10)

        assert held == ["HOST_HELD"]
        assert (await world.sim.jobs.status()).backlog == 0, "each of them had its turn"
        start = began - 1_800_000_000_000
        seconds = {(at - start) // 1000 for at in arrivals}
        assert len(seconds) >= 0.5 * 100, "others started in at least every second second"
        late = [at - start for at in arrivals]
        assert max(b - a for a, b in pairwise(late)) <= 3 * RUN_S * 1000

    crashing(test)


def test_a_long_callback_does_not_let_a_host_stand_still_for_one_that_must_run_alone() -> None:
    async def test(world: Crashes) -> None:
        await world.suspects(1, 3)
        await world.sim.sleep(1)
        await world.kill()
        world.took_s = 600
        await world.submit(["long"], "b", timeout_ms=700_000)
        await world.sim.sleep(1)
        world.took_s = 1
        began = world.sim.now - 1_800_000_000_000
        for n in range(320):
            await world.submit([f"fresh{n}"], "b")
            await world.sim.sleep(1)
        fresh = [at for at, job_id in world.sim.arrivals if job_id.startswith("fresh")]
        alone = len(world.sim.times("s0"))
        await world.sim.sleep(700)

        assert len({(at - began) // 1000 for at in fresh}) > 0.45 * 320, "others had half of the time"
        assert alone == 4 and len(world.sim.times("s0")) == 5, "and it had its turn once nothing else ran"
        assert await world.sim.jobs.get("s0") is None

    crashing(test)


@pytest.mark.parametrize("losses", [2, 3, 4])
def test_why_and_health_name_what_holds_suspects(losses: int) -> None:
    async def test(world: Crashes) -> None:
        await world.suspects(60 if losses < 4 else 5, losses)
        waiting = (await world.sim.jobs.list(state="waiting", limit=1)).records[0]
        codes = [one.code for one in await world.sim.jobs.why(waiting.id)]
        expected = {2: ["APART", "SUSPECTS_FULL"], 3: ["APART", "SUSPECTS_FULL"], 4: ["ALONE", "HOST_HELD"]}
        status = await world.sim.jobs.status()
        assert codes == expected[losses]
        assert (status.health, [one.code for one in status.reasons]) == ("amber", ["SUSPECTS_WAITING"])
        while (await world.sim.jobs.status()).backlog:
            await world.sim.sleep(10)
        await world.sim.sleep(10)
        assert (await world.sim.jobs.status()).health == "green"

    crashing(test)


def test_a_drain_after_many_kills_takes_little_longer_than_one_without() -> None:
    """Three hundred jobs of up to two seconds; the host is killed 45 times at random moments while they run."""

    def drained(kills: int) -> float:
        took = 0.0

        async def main(random: Random) -> None:
            nonlocal took
            world = Crashes(random, lanes=16)
            world.took_s = 2
            await world.open()
            await world.submit([f"n{n}" for n in range(600)])
            for _ in range(kills):
                await world.sim.sleep(random.uniform(0.2, 3))
                await world.kill()
            began = world.sim.now
            while (status := await world.sim.jobs.status()).backlog or status.in_flight:
                await world.sim.sleep(0.5)
            took = (world.sim.now - began) / 1000
            assert status.dead == 0
            await world.end()

        simulate(9, main)
        return took

    without, with_kills = drained(0), drained(45)
    assert with_kills < 2 * without + LEASE_S


def test_losses_say_when_a_job_is_a_suspect_and_when_it_is_dead() -> None:
    assert (LOSSES_TOGETHER, LOSSES_MAX) == (2, 5)


def test_jobs_of_older_stores_are_suspects_and_never_die_in_company() -> None:
    """There every job with two losses or more waited in one line, and nothing said how far it is kept apart."""
    error = LastError(1, "lost")
    assert [level_of(AtRow(0, losses=losses)) for losses in range(5)] == [0, 0, SOME, SOME, SOME]
    once = lost(AtRow(0, losses=4), error)
    assert (once.losses, level_of(once)) == (4, ALONE), "it ran beside others"
    last = lost(once, error)
    assert last.losses == LOSSES_MAX
    for level in (0, SOME, FEW, ALONE):
        assert level_of(place_in(marked("q", level), 7)) == level_in(marked("q", level)) == level


def test_turns_of_a_scheduler_without_suspects_look_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asks for them about ten times: that was a tenth of what a submit costs."""

    def searched(lines: JobQueues, wanted: int | None) -> Iterator[PriorityBucket]:
        raise AssertionError("suspects were looked for")

    monkeypatch.setattr(JobQueues, "_kept_apart", searched)

    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open()
        await sim.jobs.run_after(1, "work:run")
        await sim.sleep(2)
        assert len(sim.deliveries) == 1
        await sim.close()

    simulate(1, main)
