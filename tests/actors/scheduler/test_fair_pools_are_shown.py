"""Fair pools as lists, counts and `why` tell of them, with few keys and with very many."""

from __future__ import annotations

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host, why_codes
from tests.actors.scheduler.test_fair_pools import of
from tocsin.actors.scheduler.client.scheduler import Job

KEYS = 1_200


@on_simulated_host()
async def test_a_pool_of_more_keys_than_lines_are_merged_is_listed_and_counted(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", max_concurrency=4, fair=True, paused=True)
    for first in range(0, KEYS, 400):
        await sim.jobs.submit_many(
            [
                Job(path="w:r", after=n * 0.001, options={"id": f"j-{n:05d}", "pool": "p", "shard_key": f"k{n}"})
                for n in range(first, first + 400)
            ]
        )
    await sim.jobs.submit_many([Job(path="w:r", after=0.5, options={"id": "free"})])
    await sim.sleep(2)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await sim.jobs.list(pool="p", order="due", limit=500, cursor=cursor)
        seen += [one.id for one in page.records]
        if (cursor := page.cursor) is None:
            break
    assert seen == [f"j-{n:05d}" for n in range(KEYS)]
    assert len((await sim.jobs.list(order="due", limit=1_000)).records) == 1_000
    assert {len((await sim.jobs.list(pool="p", state=state, limit=1_000)).records) for state in ("waiting",)} == {1_000}
    assert (await sim.jobs.pool("p")).queued == KEYS
    status = await sim.jobs.status()
    assert [(one.name, one.queued) for one in status.pools] == [("p", KEYS)]
    assert status.due == KEYS


@on_simulated_host()
async def test_why_tells_of_turns_and_of_the_cap_of_a_key(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(1_000)
    await sim.jobs.set_pool("p", max_concurrency=3, fair=True, max_per_key=2)
    await sim.jobs.submit_many(of("a", 5, timeout_ms=900_000))
    await sim.sleep(1)
    why = {one.code: one for one in await sim.jobs.why("a-00004")}
    assert list(why) == ["KEY_FULL"]
    full = why["KEY_FULL"]
    assert "2 jobs with shard key 'a' run in pool p" in full.message
    assert "2 jobs of its shard key, which has turns with others, go before it" in full.message
    assert (full.behind, full.holders, full.pool) == (2, ["a-00000", "a-00001"], "p")
    await sim.sleep(600)
    assert (await sim.jobs.status()).health == "green", "the cap of a key is meant to hold jobs"
    await sim.jobs.submit_many(of("b", 2, timeout_ms=900_000))
    await sim.sleep(1)
    assert await why_codes(sim, "b-00001") == ["POOL_FULL"]
    assert await why_codes(sim, "a-00004") == ["POOL_FULL", "KEY_FULL"]
