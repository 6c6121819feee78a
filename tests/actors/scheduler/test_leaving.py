"""An instance that leaves for another place: what it still does, what it refuses, and what becomes of late answers."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tests.actors.scheduler.test_transfer import exported, imported
from tocsin.errors import ConflictError


@on_simulated_host()
async def test_an_instance_that_moves_takes_no_new_work_starts_nothing_and_lets_what_runs_end(
    sim: SimulatedHost,
) -> None:
    sim.reply = lambda one: after(20)
    await sim.jobs.run_after(0, "slow", id="slow")
    await sim.jobs.run_after("5s", "later", id="later")
    await sim.sleep(1)
    await sim.host.seal("t", move="m", to="elsewhere")

    with pytest.raises(ConflictError, match="moving to elsewhere") as refusal:
        await sim.jobs.run_after(0, "new")
    assert refusal.value.details["movedTo"] == "elsewhere"
    assert (await sim.host.transfer_state("t")).in_flight == 1
    await sim.sleep(30)
    state = await sim.host.transfer_state("t")
    assert (state.in_flight, state.sealed) == (0, False)
    assert [one.outcome for one in await sim.jobs.history("slow")] == ["done"]
    assert sim.times("later") == []

    await sim.host.seal("t", move="m", to="elsewhere", closed=True)
    for refused in (
        sim.jobs.cancel("later"),
        sim.jobs.pause(),
        sim.jobs.complete("later", "1.1.aaaaaaaaaaaaaaaaaaaaaaaa"),
    ):
        with pytest.raises(ConflictError, match="has moved to elsewhere"):
            await refused
    with pytest.raises(ConflictError, match="is moving to elsewhere"):
        await sim.host.seal("t", move="another", to="x")
    await sim.sleep(3_600)
    assert sim.times("later") == []
    assert not await sim.host.unseal("t", move="another")

    assert await sim.host.unseal("t", move="m")
    await sim.sleep(1)
    assert len(sim.times("later")) == 1


@on_simulated_host()
async def test_a_sealed_instance_stays_so_over_restarts_and_its_export_keeps_the_names_of_its_jobs(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.schedules.put("minutely", cron="* * * * *", path="tick")
    await sim.jobs.run_after("1m", "send", id="a")
    await sim.host.seal("t", move="m", to="elsewhere", closed=True)
    name = (await sim.jobs.get("a")).incarnation  # type: ignore[union-attr]
    await sim.close()
    await sim.open()
    await sim.sleep(600)
    assert sim.deliveries == []
    assert (await sim.jobs.schedules.occurrences("minutely")).occurrences == []
    assert await sim.faults() == []

    done = await imported(sim.host, await exported(sim.host))

    assert done.move == "m"
    assert (await sim.host.scheduler("u").get("a")).incarnation == name  # type: ignore[union-attr]
    await sim.sleep(5)
    assert {one.body["instanceName"] for one in sim.deliveries} == {"u"}
    assert (await sim.host.transfer_state("u")).imported.move == "m"  # type: ignore[union-attr]


@on_simulated_host()
async def test_what_ends_behind_the_seal_is_told_to_the_other_place(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(20)
    await sim.jobs.run_after(0, "slow", id="slow", pool="p")
    await sim.sleep(1)
    await sim.host.seal("t", move="m", to="elsewhere", closed=True)
    await imported(sim.host, await exported(sim.host))
    await sim.sleep(25)  # the answer comes, and changes nothing
    assert len(sim.times("slow")) == 1
    assert (await sim.host.transfer_state("t")).in_flight == 1
    await sim.sleep(60)  # the lease that came along ends, and the attempt is lost there

    assert [one.body["instanceName"] for one in sim.deliveries] == ["t", "u"]
    assert len({one.headers["webhook-id"] for one in sim.deliveries}) == 1
