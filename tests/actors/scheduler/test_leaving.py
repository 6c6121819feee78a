"""An instance that leaves for another place: what it still does, what it refuses, and what becomes of late answers."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tests.actors.scheduler.test_transfer import exported, faults, imported
from tocsin.actors.scheduler.model.audit_records import AuditEntry
from tocsin.errors import ConflictError, InstanceMovedError, InstanceMovingError


@on_simulated_host()
async def test_an_instance_that_moves_takes_no_new_work_starts_nothing_and_lets_what_runs_end(
    sim: SimulatedHost,
) -> None:
    sim.reply = lambda one: after(20)
    await sim.jobs.run_after(0, "slow", id="slow")
    await sim.jobs.run_after("5s", "later", id="later")
    await sim.sleep(1)
    await sim.host.seal("t", move="m", to="elsewhere")

    with pytest.raises(InstanceMovingError, match="moving to elsewhere") as refusal:
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
        with pytest.raises(InstanceMovedError, match="has moved to elsewhere"):
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


# ---- What is seen of it ---------------------------------------------------------------------------


@on_simulated_host()
async def test_what_moves_and_what_has_moved_says_where_to_wherever_somebody_looks(sim: SimulatedHost) -> None:
    jobs = sim.jobs
    await jobs.run_after("10s", "late", id="late")
    await jobs.run_after(0, "pulled", id="pulled", queue="q")
    sim.reply = lambda one: after(600)
    await jobs.run_after(0, "slow", id="slow")
    await sim.sleep(1)
    assert (await jobs.status()).health == "green"

    await sim.host.seal("t", move="m", to="elsewhere")
    status = await jobs.status()
    assert (status.health, [one.code for one in status.reasons]) == ("amber", ["INSTANCE_MOVING"])
    assert (status.moving_to, status.moved_to) == ("elsewhere", None)
    assert [one.code for one in await jobs.why("late")] == ["NOT_DUE", "INSTANCE_MOVING"]

    await sim.host.seal("t", move="m", to="elsewhere", closed=True)
    await sim.sleep(3_700)  # nothing is late, stuck or over in an instance that is elsewhere
    status = await jobs.status()
    assert (status.health, [one.code for one in status.reasons]) == ("amber", ["INSTANCE_MOVED"])
    assert "has moved to elsewhere" in status.reasons[0].message
    assert (status.moving_to, status.moved_to) == (None, "elsewhere")
    for job in ("late", "slow", "pulled"):
        first, *_ = [one for one in await jobs.why(job) if one.code == "INSTANCE_MOVED"]
        assert "has moved to elsewhere" in first.message
    [listed] = (await sim.host.instances()).instances
    assert (listed.moved_to, listed.moving_to) == ("elsewhere", None)
    await sim.host.look()
    assert [one.code for one in sim.host.health()] == ["INSTANCE_MOVED"]

    await sim.host.unseal("t", move="m")
    assert (await jobs.status()).moved_to is None
    assert "INSTANCE_MOVED" not in {one.code for one in (await jobs.status()).reasons}


@on_simulated_host()
async def test_claims_that_wait_and_claims_that_come_are_told_where_the_instance_is(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "pulled", queue="q")
    waiting = [asyncio.ensure_future(sim.jobs.claim(queue, wait=60)) for queue in ("q", "*")]
    given_up = asyncio.ensure_future(sim.jobs.claim("q", wait=60))
    await sim.sleep(1)
    given_up.cancel()
    await sim.host.seal("t", move="m", to="elsewhere")
    await sim.sleep(1)
    assert not any(one.done() for one in waiting)  # the instance may stay

    await sim.host.seal("t", move="m", to="elsewhere", closed=True)
    for claim in waiting:
        with pytest.raises(InstanceMovedError, match="has moved to elsewhere") as told:
            await claim
        assert told.value.details == {"movedTo": "elsewhere"}
    for _ in range(2):  # before a restart, and after it
        before = sim.now
        with pytest.raises(InstanceMovedError):
            await sim.jobs.claim("q", wait=60)
        assert sim.now - before < 1_000
        await sim.close()
        await sim.open()

    await sim.host.unseal("t", move="m")
    claim = asyncio.ensure_future(sim.jobs.claim("q", wait=60))
    await sim.jobs.run_after(0, "pulled", queue="q", id="new")
    assert [one.id for one in await claim] == ["new"]


@on_simulated_host()
async def test_the_logs_of_both_places_say_who_moved_it_from_where_and_where_to(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "a", id="a")
    await sim.jobs.run_after("1h", "b", id="b")
    await sim.host.seal("t", move="m", to="elsewhere", by="alice")
    await sim.host.seal("t", move="m", to="elsewhere", by="alice")  # the same again
    await sim.host.unseal("t", move="m", by="bob")
    await sim.host.seal("t", move="m2", to="elsewhere", by="alice")
    await sim.host.seal("t", move="m2", to="elsewhere", closed=True, by="alice")
    text = await exported(sim.host)
    await sim.sleep(2 * 24 * 3_600)  # a day of the log that did not come along
    await imported(sim.host, text, by="carol")

    def said(one: AuditEntry) -> tuple[object, ...]:
        return one.action, one.by.user, one.about, one.changed, one.given

    left = [
        ("seal", "alice", None, 1, {"to": "elsewhere", "move": "m2", "closed": True}),
        ("seal", "alice", None, 1, {"to": "elsewhere", "move": "m2", "closed": False}),
        ("unseal", "bob", None, 1, {"to": "elsewhere", "move": "m"}),
        ("seal", "alice", None, 1, {"to": "elsewhere", "move": "m", "closed": False}),
    ]
    assert [said(one) for one in (await sim.jobs.audit()).actions] == left
    rows = text.count(b"\n") - 2
    came = [said(one) for one in (await sim.host.scheduler("u").audit()).actions]
    assert sorted(came, key=repr) == sorted(
        [("import", "carol", None, 2, {"source": "t", "rows": rows, "move": "m2"}), *left], key=repr
    )
    assert await faults(sim.host, "u") == []


@on_simulated_host()
async def test_an_empty_instance_that_came_is_in_the_log_too(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", max_concurrency=1)
    await imported(sim.host, await exported(sim.host))
    actions = (await sim.host.scheduler("u").audit()).actions
    assert {(one.action, one.changed) for one in actions} == {("import", 0), ("set_pool", 1)}
