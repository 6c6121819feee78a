"""Rates of pools: never more starts than a rate allows in any window, none lost, none starved, and no polling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.flow_rows import PoolFlow
from tocsin.actors.scheduler.model.rate_rows import RateRow, opens_at, rate_key
from tocsin.actors.scheduler.model.rows import decode
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError
from tocsin.storage.combiner import ActorWrites


def pooled(count: int, pool: str = "p", **options: object) -> list[Job]:
    return [Job(path="work:run", after=0, options={"pool": pool, **options}) for _ in range(count)]


def starts(sim: SimulatedHost) -> list[int]:
    return [at for at, _ in sim.arrivals]


def most_in(times: list[int], window_ms: int) -> int:
    """The most starts in any window of this length that begins with a start."""
    return max((sum(t <= one < t + window_ms for one in times) for t in times), default=0)


@on_simulated_host()
async def test_starts_are_spread_evenly_and_a_burst_is_what_a_pause_has_saved(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(10))
    await sim.jobs.submit_many(pooled(5))
    await sim.sleep(1)
    assert starts(sim) == [0, 100, 200, 300, 400]

    await sim.jobs.set_pool("q", rate=Rate(10, burst=3))
    sim.arrivals.clear()
    await sim.jobs.submit_many(pooled(6, "q"))
    await sim.sleep(1)
    first = starts(sim)[0]
    assert [at - first for at in starts(sim)] == [0, 0, 0, 100, 200, 300]


@on_simulated_host()
async def test_a_waiter_writes_nothing_and_nobody_polls(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(1, "1m"))
    await sim.jobs.submit_many(pooled(3))
    await sim.sleep(1)
    written: list[set[bytes]] = []
    write = sim.disk.apply

    def noting(writes: Sequence[ActorWrites]) -> None:
        written.extend(set(one.rows) for one in writes)
        write(writes)

    sim.disk.apply = noting  # type: ignore[method-assign]
    await sim.sleep(50)
    assert starts(sim) == [0] and written == []
    await sim.sleep(130)
    assert sum(rate_key("p") in keys for keys in written) == 2  # once for each start, and with its lease
    assert all(any(key.startswith(b"lease/") for key in keys) for keys in written if rate_key("p") in keys)
    assert starts(sim) == [0, 60_000, 120_000]


@on_simulated_host()
async def test_the_cap_and_the_rate_hold_together(sim: SimulatedHost) -> None:
    running = Counter[str]()

    async def work(_: Delivery) -> Answer:
        running["now"] += 1
        running["most"] = max(running["most"], running["now"])
        await sim.sleep(5)
        running["now"] -= 1
        return OK

    sim.reply = work
    await sim.jobs.set_pool("p", rate=Rate(1), max_concurrency=2)
    await sim.jobs.submit_many(pooled(6))
    await sim.sleep(30)
    assert running["most"] == 2
    assert starts(sim) == [0, 1_000, 5_000, 6_000, 10_000, 11_000]


@on_simulated_host()
async def test_a_job_sets_the_rate_until_an_operator_does_or_takes_it_away(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "a:b", pool="p", rate=Rate(5, "1m"))
    pool = await sim.jobs.pool("p")
    assert (pool.rate, pool.max_concurrency) == (Rate(5, "1m"), 10_000)
    await sim.jobs.run_after("1h", "a:b", id="later", pool="p", rate=Rate(6, "1m"), max_concurrency=3)
    pool = await sim.jobs.pool("p")
    assert (pool.rate, pool.max_concurrency) == (Rate(6, "1m"), 3)
    record = await sim.jobs.get("later")
    assert record is not None and record.rate == Rate(6, "1m")
    assert record.to_dict()["rate"] == {"limit": 6, "per": "1m"}

    await sim.jobs.set_pool("p", rate=Rate(100))
    await sim.jobs.run_after("1h", "a:b", pool="p", rate=Rate(7, "1m"))
    assert (await sim.jobs.pool("p")).rate == Rate(100)
    await sim.jobs.set_pool("p", rate="none")
    await sim.jobs.run_after("1h", "a:b", pool="p", rate=Rate(7, "1m"))
    assert (await sim.jobs.pool("p")).rate is None

    with pytest.raises(InvalidInputError, match="rate is the rate of a pool: give pool as well"):
        await sim.jobs.run_after("1h", "a:b", rate=Rate(7))


@on_simulated_host()
async def test_occurrences_of_a_schedule_bring_the_rate_along(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("often", "a:b", every="1s", overlap="allow", pool="p", rate=Rate(1, "10s"))
    await sim.sleep(25)
    assert (await sim.jobs.pool("p")).rate == Rate(1, "10s")
    assert most_in(starts(sim), 10_000) == 1 and len(starts(sim)) == 3
    shown = await sim.jobs.schedules.get("often")
    assert shown is not None and shown.rate == Rate(1, "10s")


@on_simulated_host()
async def test_a_crash_and_a_restart_give_no_token_back_and_none_away(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(10, burst=5))
    await sim.jobs.submit_many(pooled(200))
    for seconds in (1.23, 2.07, 0.51):
        await sim.sleep(seconds)
        await sim.crash()
        await sim.sleep(0.4)
        await sim.open()
    await sim.sleep(30)
    times = starts(sim)
    assert most_in(times, 1_000) <= 15
    assert len({job for _, job in sim.arrivals}) == 200


@on_simulated_host(look_again_s=1.0)
async def test_a_clock_that_was_set_back_while_no_host_ran_starves_no_job(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(10, burst=2))
    long_due = sim.now - 7_200_000  # they are due after the step, too
    await sim.jobs.submit_many([Job("work:run", at=long_due, options={"pool": "p"}) for _ in range(100)])
    await sim.sleep(5)
    began = len(sim.arrivals)
    await sim.crash()
    sim.clock.step(-1_800_000)
    await sim.open()
    await sim.sleep(2)
    assert began + 18 <= len(sim.arrivals) <= began + 22
    await sim.sleep(8)
    assert len(sim.arrivals) == 100


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000, 5_000, -5_000, 700, -700])
def test_a_clock_that_is_set_starts_none_too_many_and_none_too_late(step_ms: int) -> None:
    @on_simulated_host(look_again_s=1.0)
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.set_pool("p", rate=Rate(10, burst=2))
        loop_times: list[int] = []
        began = sim.clock.monotonic()

        def note(_: Delivery) -> Answer:
            loop_times.append(round((sim.clock.monotonic() - began) * 1000))
            return OK

        sim.reply = note
        long_due = sim.now - 7_200_000  # they are due after a step back, too
        await sim.jobs.submit_many([Job("work:run", at=long_due, options={"pool": "p"}) for _ in range(100)])
        await sim.sleep(2.05)
        sim.clock.step(step_ms)
        await sim.sleep(13)
        assert most_in(loop_times, 1_000) <= 12
        assert len(loop_times) == 100

    run()


@on_simulated_host()
async def test_another_rate_keeps_the_share_of_tokens(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(10, "1m", burst=10))
    await sim.jobs.submit_many(pooled(5))
    await sim.sleep(0.01)
    assert len(starts(sim)) == 5  # half of its tokens are spent
    await sim.jobs.set_pool("p", rate=Rate(100, "1h", burst=4))
    await sim.jobs.submit_many(pooled(5))
    await sim.sleep(0.01)
    assert len(starts(sim)) == 7


@on_simulated_host()
async def test_a_raised_rate_is_felt_at_once_by_those_that_wait(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(1, "1d"))
    await sim.jobs.submit_many(pooled(4))
    await sim.sleep(60)
    await sim.jobs.set_pool("p", rate=Rate(1, "1s"))
    await sim.sleep(10)
    assert len(starts(sim)) == 4
    await sim.jobs.set_pool("p", rate=Rate(1, "1d"))
    await sim.jobs.submit_many(pooled(4))
    await sim.jobs.set_pool("p", rate="none", max_concurrency=10)
    await sim.sleep(1)
    assert len(starts(sim)) == 8


@on_simulated_host()
async def test_claims_of_workers_take_tokens_as_callbacks_do(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(2, "10s", burst=2))
    await sim.jobs.submit_many(pooled(3, queue="q"))
    assert len(await sim.jobs.claim("q", max=10)) == 2
    began = sim.now
    [last] = await sim.jobs.claim("q", max=10, wait=20)
    assert sim.now - began == 5_000
    await sim.jobs.complete(last.id, last.lease)


@on_simulated_host()
async def test_the_row_says_when_the_next_token_comes(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(1, "10s"))
    await sim.jobs.submit_many(pooled(2))
    await sim.sleep(4)
    rows = await sim.host.runtime.provider.view("scheduler/t").get([rate_key("p")])
    row = decode(RateRow, b"", rows[rate_key("p")])
    assert row == RateRow(sim.now - 4_000, 0)
    assert opens_at(PoolFlow((1, 10_000, 1)), row) == sim.now + 6_000
    pool = await sim.jobs.pool("p")
    assert pool.next_token_at == sim.now + 6_000


@on_simulated_host()
async def test_jobs_that_a_rate_holds_back_are_not_late(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", rate=Rate(1, "1h"))
    await sim.jobs.submit_many(pooled(40))
    await sim.sleep(2 * 86_400 - 60)
    assert ((await sim.jobs.status()).health, len(starts(sim))) == ("green", 40)
    await sim.jobs.submit_many(pooled(40))
    await sim.sleep(20 * 3_600 + 1_000)
    status = await sim.jobs.status()
    assert (status.health, status.reasons, status.due) == ("green", (), 18)
