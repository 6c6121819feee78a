"""Settings of pools: checked at the call, stored in one row, undone, and in no row of whoever does not use them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.model.pool_settings import MAX_WEIGHTS, pool_settings
from tocsin.actors.scheduler.model.rows import META_LAYOUT, PoolRow, decode, pool_key
from tocsin.dispatch.rate import Rate, rate_of
from tocsin.errors import InvalidInputError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give at least one of max_concurrency, paused, rate"),
        ({"fair": None}, "give at least one of"),
        ({"maxPerKey": 3}, r"a pool has no 'maxPerKey' \(do you mean max_per_key\?\)"),
        ({"max_per_key": -1}, r"max_per_key must be 0\.\.10000, not -1"),
        ({"rate": "100/1m"}, r"rate must be as Rate\(100, per=\"1m\"\), or 'none', not '100/1m'"),
        ({"cool_on_retry_after": "host"}, "cool_on_retry_after must be one of none, pool, origin, not 'host'"),
        ({"cooling": True}, "cooling must be false, which ends"),
        ({"fair": 1}, "fair must be true or false, not 1"),
        ({"weights": [1]}, "weights must be numbers by shard key"),
        ({"weights": {"a": 0}}, r"weights\['a'\] must be 1\.\.1000, not 0"),
        ({"weights": {"": 1}}, "a shard key in weights must be a text that is not empty"),
        ({"weights": dict.fromkeys(map(str, range(MAX_WEIGHTS + 1)), 1)}, "weights: 1001 given, at most 1000 allowed"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        pool_settings(given)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Rate(0), r"rate\.limit must be 1\.\.1000000, not 0"),
        (lambda: Rate(True), r"rate\.limit must be an integer, not True"),
        (lambda: Rate(1, "999ms"), r"rate\.per must be 1s to 1d, not '999ms'"),
        (lambda: Rate(1, "25h"), r"rate\.per must be 1s to 1d"),
        (lambda: Rate(1, "soon"), r"rate\.per must look like"),
        (lambda: Rate(1, "1s", 0), r"rate\.burst must be 1\.\.10000, not 0"),
    ],
)
def test_a_rate_says_which_of_its_fields_cannot_be(made: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        made()


@pytest.mark.parametrize("per", ["1s", "90s", "5m", "2h", "1d", "1500ms"])
def test_a_rate_is_written_as_it_is_stored(per: str) -> None:
    rate = Rate(100, per, 5)
    assert rate.per == per and rate_of(rate.stored) == rate == Rate(100, rate.per_ms / 1000, 5)


@on_simulated_host()
async def test_settings_stand_in_one_row_and_are_undone_together(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    await ops.set_pool("p", max_concurrency=3)
    await ops.set_pool("p", rate=Rate(100, "1m"), fair=True, weights={"k": 2}, cool_on_retry_after="pool")
    [set_to] = [one for one in (await ops.audit()).actions if "rate" in one.given]
    assert set_to.given == {"rate": "100 per 1m", "fair": True, "weights": "k 2", "coolOnRetryAfter": "pool"}
    assert (await ops.pool("p")).rate == Rate(100, "1m")

    await ops.undo(set_to.id)

    pool = await ops.pool("p")
    assert (pool.rate, pool.fair, pool.weights, pool.max_concurrency) == (None, False, None, 3)


@on_simulated_host()
async def test_a_store_becomes_a_newer_one_only_when_a_pool_has_more_than_a_cap(sim: SimulatedHost) -> None:
    view = sim.host.runtime.provider.view("scheduler/t")
    await sim.jobs.set_pool("p", max_concurrency=3, paused=True)
    assert (await view.get([META_LAYOUT]))[META_LAYOUT] == b"3"
    await sim.jobs.set_pool("p", max_per_key=2)
    rows = await view.get([META_LAYOUT, pool_key("p")])
    assert rows[META_LAYOUT] == b"4"
    await sim.jobs.set_pool("p", max_per_key=0)
    row = decode(PoolRow, b"", (await view.get([pool_key("p")]))[pool_key("p")])
    assert row.flow is None and (row.cap, row.paused) == (3, True)


@on_simulated_host()
async def test_a_pool_that_a_rate_has_made_has_no_other_bound_until_the_rate_is_taken_away(sim: SimulatedHost) -> None:
    assert (await sim.jobs.set_pool("p", rate=Rate(10))).max_concurrency == 10_000
    assert (await sim.jobs.set_pool("p", rate="none")).max_concurrency == 1
    await sim.jobs.set_pool("p", rate=Rate(10), max_concurrency=7)
    assert (await sim.jobs.set_pool("p", rate="none")).max_concurrency == 7
