"""Bulk actions are undone for ten minutes: what was done is put back as it stood, or it is said why not."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tests.actors.scheduler.test_audit import bury
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.model import acts
from tocsin.actors.scheduler.model.acts import UNDO_MS
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import Act, AuditRow
from tocsin.actors.scheduler.model.crockford import mint_id
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.transfer.named_rows import line_of, row_of
from tocsin.actors.scheduler.transitions import acts as keeping
from tocsin.actors.scheduler.transitions import events
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, NotFoundError

WAITING = {"labels": ["x"], "pool": "p", "priority": 3, "max_concurrency": 2}


async def jobs_of(sim: SimulatedHost) -> list[dict[str, object]]:
    return [one.to_dict() for one in (await sim.jobs.list(order="id", limit=1000)).records]


async def left_over(sim: SimulatedHost) -> list[bytes]:
    """The rows that are kept for undoing."""
    view = sim.host.runtime.provider.view(str(actor_of("t")))
    rows = [
        row
        for prefix in (b"act/", b"trash/", b"trashargs/")
        for row in await view.scan(prefix, prefix[:-1] + b"0", limit=5_000)
    ]
    return [key for key, _ in rows]


@on_simulated_host()
async def test_jobs_that_were_cancelled_stand_where_they_stood(sim: SimulatedHost) -> None:
    for n in range(5):
        await sim.jobs.run_after("1h", "work:run", {"n": n}, id=f"j{n}", **WAITING)  # type: ignore[arg-type]
    await sim.jobs.run_after(
        "1h", "work:run", {"x": "x" * 200_000}, id="long", labels=["x"], expires_at=sim.now + 7_000_000
    )
    await sim.jobs.reschedule("j3", after="2h")
    before, status = await jobs_of(sim), await sim.jobs.status()
    gone = await sim.jobs.cancel_all(label="x")
    assert (gone.matched, gone.cancelled) == (6, 6) and gone.undo_until == sim.now + UNDO_MS
    assert await jobs_of(sim) == [] and gone.action_id is not None

    undone = await sim.jobs.undo(gone.action_id)
    assert (undone.undoes, undone.matched, undone.restored, undone.skipped) == (gone.action_id, 6, 6, {})
    assert await jobs_of(sim) == before
    after = await sim.jobs.status()
    assert (after.backlog, after.pools) == (status.backlog, status.pools)
    assert (await sim.jobs.pending("work:")).count == 6
    assert [one.outcome for one in await sim.jobs.history("j1")] == ["cancelled", "restored"]
    await sim.sleep(2 * 3600 + 60)
    assert len(sim.deliveries) == 6 and {one.id for one in sim.deliveries} == {one["id"] for one in before}
    assert await left_over(sim) == []


@on_simulated_host()
async def test_an_undo_is_an_action_and_is_undone_in_its_turn(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    for n in range(3):
        await ops.run_after("1h", "work:run", id=f"j{n}")
    before = await jobs_of(sim)
    done = (await ops.cancel_all(all=True)).action_id
    for turn in range(4):
        assert done is not None
        undone = await ops.undo(done)
        assert undone.restored == 3
        assert await jobs_of(sim) == ([] if turn % 2 else before)
        done = undone.action_id
    entries = (await ops.audit()).actions
    assert {one.action for one in entries} == {"cancel_all", "undo"} and len(entries) == 5
    by_id = {one.id: one for one in entries}
    for one in entries:
        assert one.undoes is None or by_id[one.undoes].undone_by == one.id
        assert one.undone_by is None or one.undo_until is None
        assert one.by.user == "alice" and one.changed == 3


@on_simulated_host()
async def test_a_running_job_never_comes_back_and_a_taken_id_is_left_alone(sim: SimulatedHost) -> None:
    sim.reply = lambda _: sim_hang()
    await sim.jobs.run_after(0, "work:run", id="running")
    for id in ("taken", "free"):
        await sim.jobs.run_after("1h", "work:run", id=id)
    await sim.sleep(5)
    gone = await sim.jobs.cancel_all(all=True)
    assert gone.cancelled == 3 and gone.action_id is not None
    await sim.jobs.run_after("3h", "other:run", id="taken")
    undone = await sim.jobs.undo(gone.action_id)
    assert (undone.matched, undone.restored, undone.skipped) == (3, 1, {"running": 1, "id_taken": 1})
    assert {one["id"]: one["functionPath"] for one in await jobs_of(sim)} == {"free": "work:run", "taken": "other:run"}


async def sim_hang() -> Answer:
    await asyncio.sleep(30)
    return OK


@on_simulated_host()
async def test_dead_letters_that_were_discarded_are_dead_again_and_keep_their_webhook_id(sim: SimulatedHost) -> None:
    await bury(sim, "a", "b", "c", pool="p")
    before = [one.to_dict() for one in (await sim.jobs.dead()).records]
    first = {one.id: one.webhook_id for one in sim.deliveries}
    gone = await sim.jobs.dead_cancel_all(ids=["a", "c", "nobody"])
    assert (gone.matched, gone.cancelled) == (2, 2) and gone.action_id is not None
    assert [one.id for one in (await sim.jobs.dead()).records] == ["b"]
    assert (await sim.jobs.undo(gone.action_id)).restored == 2
    assert [one.to_dict() for one in (await sim.jobs.dead()).records] == before
    sim.reply = lambda _: OK
    assert (await sim.jobs.dead_retry_all(all=True)).matched == 3
    await sim.sleep(30)
    assert {one.id: one.webhook_id for one in sim.deliveries[3:]} == first
    assert (await sim.jobs.status()).dead == 0


@on_simulated_host()
async def test_letters_of_a_bulk_retry_that_have_not_started_are_dead_again(sim: SimulatedHost) -> None:
    await bury(sim, *(f"j{n}" for n in range(6)), pool="p")
    before = {one.id: one.to_dict() for one in (await sim.jobs.dead()).records}
    sim.reply = lambda _: sim_hang()
    started = await sim.jobs.dead_retry_all(all=True, rate_per_second=2)
    await sim.sleep(1.5)  # four are retried: one runs, for its pool has one slot; three wait; two are still dead
    undone = await sim.jobs.undo(started.redrive_id)
    assert (undone.matched, undone.restored, undone.skipped) == (4, 3, {"started": 1})
    redrive = await sim.jobs.redrive(started.redrive_id)
    assert redrive is not None and redrive.stopped and not redrive.running
    dead = {one.id: one.to_dict() for one in (await sim.jobs.dead()).records}
    assert len(dead) == 5 and all(before[id] == one for id, one in dead.items())
    again = await sim.jobs.undo(undone.action_id)
    assert again.restored == 3
    assert (await sim.jobs.status()).dead == 2


@on_simulated_host()
async def test_a_pool_is_set_as_it_was_unless_somebody_changed_it_since(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    await ops.set_pool("p", max_concurrency=7)
    await ops.set_pool("p", paused=True)
    paused = (await ops.audit(limit=1)).actions[0]
    assert (await ops.undo(paused.id)).restored == 1
    assert not (await ops.pool("p")).paused and (await ops.pool("p")).max_concurrency == 7
    await ops.set_pool("p", max_concurrency=8)
    raised = (await ops.audit(limit=1)).actions[0]
    await ops.set_pool("p", max_concurrency=9)
    undone = await ops.undo(raised.id)
    assert (undone.restored, undone.skipped) == (0, {"changed": 1})
    assert (await ops.pool("p")).max_concurrency == 9


@on_simulated_host()
async def test_ten_minutes_later_it_is_too_late_and_nothing_is_kept(sim: SimulatedHost) -> None:
    ops = sim.host.scheduler("t", by="alice")
    for n in range(1_300):
        await ops.run_after("2h", "work:run", id=f"j{n}")
    gone = await ops.cancel_all(all=True)
    assert gone.action_id is not None and len(await left_over(sim)) == 1_301
    await sim.sleep(UNDO_MS / 1000 + 5)
    assert await left_over(sim) == []
    with pytest.raises(ConflictError, match="ten minutes are over"):
        await ops.undo(gone.action_id)
    with pytest.raises(NotFoundError, match="there is no action"):
        await ops.undo("01m4cw2n8j6t0q7v9xk3d5r1zb")
    await ops.run_after("2h", "work:run", id="one")
    gone = await ops.cancel_all(all=True)
    assert gone.action_id is not None
    undone = await ops.undo(gone.action_id)
    with pytest.raises(ConflictError, match=f"was undone by '{undone.action_id}'"):
        await ops.undo(gone.action_id)
    await ops.pause()
    with pytest.raises(ConflictError, match=r"\(pause\) cannot be undone"):
        await ops.undo((await ops.audit(action="pause")).actions[0].id)


@on_simulated_host()
async def test_what_is_too_much_is_not_kept_and_that_is_said(sim: SimulatedHost) -> None:
    most = acts.KEPT_MOST
    keeping.KEPT_MOST = 4  # type: ignore[attr-defined]
    try:
        for n in range(6):
            await sim.jobs.run_after("2h", "work:run", id=f"j{n}")
        gone = await sim.jobs.cancel_all(all=True)
    finally:
        keeping.KEPT_MOST = most  # type: ignore[attr-defined]
    assert (gone.cancelled, gone.undo_until) == (6, None) and gone.action_id is not None
    assert most == acts.KEPT_MOST
    with pytest.raises(ConflictError, match="at most 100,000 jobs"):
        await sim.jobs.undo(gone.action_id)
    await sim.sleep(1)
    assert await left_over(sim) == []


@on_simulated_host()
async def test_an_undo_that_was_cut_off_by_a_crash_ends_by_itself(sim: SimulatedHost) -> None:
    for n in range(1_200):
        await sim.jobs.run_after("2h", "work:run", id=f"j{n}")
    before = await jobs_of(sim)
    gone = await sim.jobs.cancel_all(all=True)
    assert gone.action_id is not None
    undo_id = mint_id(sim.now, 7)
    me = actor_of("t")
    await sim.host.runtime.call(me, events.StartUndo(undo_id, gone.action_id, AskedBy(user="alice")))
    await sim.host.runtime.call(me, events.UndoPage(undo_id))
    assert (await sim.jobs.status()).backlog == 500
    await sim.crash()
    await sim.open()
    await sim.sleep(60)
    assert await jobs_of(sim) == before
    (entry,) = [one for one in (await sim.jobs.audit()).actions if one.id == undo_id]
    assert entry.changed == 1_200 and entry.undo_until is not None


@on_simulated_host()
async def test_a_job_that_expired_meanwhile_is_put_back_and_expires(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1m", "work:run", id="a", expires_at=sim.now + 120_000)
    gone = await sim.jobs.cancel_all(all=True)
    await sim.sleep(300)
    assert gone.action_id is not None
    assert (await sim.jobs.undo(gone.action_id)).restored == 1
    await sim.sleep(1)
    assert await jobs_of(sim) == [] and sim.deliveries == []
    assert {one.outcome for one in await sim.jobs.history("a")} == {"cancelled", "restored", "expired"}


@on_simulated_host()
async def test_chains_results_and_occurrences_come_back_with_their_jobs(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "work:run", id="a", then=[Job(path="next:run")], keep_result=3600)
    await sim.jobs.set_pool("held", paused=True)
    await sim.jobs.schedules.put("s", "work:run", every="100h", pool="held")
    run = await sim.jobs.schedules.trigger("s", "k")
    gone = await sim.jobs.cancel_all(path="work:run")
    assert gone.action_id is not None and await standing(sim) == ("cancelled", False, 0)
    assert (await sim.jobs.undo(gone.action_id)).restored == 2
    assert await standing(sim) == ("fired", True, 1)
    assert (await sim.jobs.pending("next:")).count == 1
    await sim.jobs.set_pool("held", paused=False)
    asked = asyncio.ensure_future(sim.jobs.result("a"))
    await sim.sleep(2 * 3600)
    assert [one.id for one in sim.deliveries].count("a") == 1 and run.id in [one.id for one in sim.deliveries]
    assert (await sim.jobs.pending("next:")).count == 0 and await standing(sim) == ("fired", False, 0)
    assert await asked is None


async def standing(sim: SimulatedHost) -> tuple[str, bool, int]:
    """What the schedule knows of its one occurrence."""
    (one,) = (await sim.jobs.schedules.occurrences("s")).occurrences
    schedule = await sim.jobs.schedules.get("s")
    assert schedule is not None
    return one.state, one.live, schedule.live


@on_simulated_host()
async def test_what_is_kept_goes_along_when_an_instance_is_exported(sim: SimulatedHost) -> None:
    await bury(sim, "dead", pool="p")
    await sim.jobs.run_after("1h", "work:run", {"x": "y" * 100_000}, id="live")
    done = [await sim.jobs.cancel_all(all=True), await sim.jobs.dead_cancel_all(all=True)]
    await sim.host.scheduler("t", by="alice").set_pool("p", max_concurrency=5)
    view = sim.host.runtime.provider.view(str(actor_of("t")))
    for key, value in await view.scan(b"\x01", b"\xff", limit=1_000):
        assert row_of(line_of(key, value)) == (key, value)
    assert [(await sim.jobs.undo(one.action_id or "")).restored for one in done] == [1, 1]


@on_simulated_host()
async def test_an_action_that_is_undone_while_it_goes_on_changes_nothing_more(sim: SimulatedHost) -> None:
    for n in range(4):
        await sim.jobs.run_after("1h", "work:run", id=f"j{n}")
    found = [(one.id, one.incarnation) for one in (await sim.jobs.list(order="id")).records]
    act = Act(mint_id(sim.now, 3), AuditRow(sim.now, "cancel_all", AskedBy()))
    me = actor_of("t")
    assert await sim.host.runtime.call(me, events.CancelMany(found[:2], act)) == (2, 0)
    assert (await sim.jobs.undo(act.id)).restored == 2
    assert await sim.host.runtime.call(me, events.CancelMany(found[2:], act)) == (0, 0)
    assert (await sim.jobs.status()).backlog == 4


@on_simulated_host()
async def test_an_undo_that_puts_nothing_back_is_not_in_the_log_and_nothing_counts_as_undone(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.run_after("1h", "work:run", id="taken")
    gone = await sim.jobs.cancel_all(all=True)
    await sim.jobs.run_after("3h", "other:run", id="taken")
    assert gone.action_id is not None
    undone = await sim.jobs.undo(gone.action_id)
    assert (undone.restored, undone.skipped, undone.undo_until) == (0, {"id_taken": 1}, None)
    (entry,) = (await sim.jobs.audit()).actions
    assert (entry.id, entry.undone_by) == (gone.action_id, None)
    with pytest.raises(ConflictError, match="or nothing could be put back"):
        await sim.jobs.undo(gone.action_id)
    await sim.sleep(1)
    assert await left_over(sim) == []


@on_simulated_host()
async def test_an_undo_that_only_stops_a_bulk_retry_is_in_the_log(sim: SimulatedHost) -> None:
    await bury(sim, "a", "b", "c")
    sim.reply = lambda _: OK
    begun = await sim.jobs.dead_retry_all(all=True, rate_per_second=1)
    await sim.sleep(0.5)  # one is retried, and has started
    undone = await sim.jobs.undo(begun.redrive_id)
    assert (undone.matched, undone.restored, undone.skipped) == (1, 0, {"started": 1})
    redrive = await sim.jobs.redrive(begun.redrive_id)
    assert redrive is not None and redrive.stopped
    undo, retry = (await sim.jobs.audit()).actions
    assert (undo.action, undo.changed, undo.given) == ("undo", 0, {"stopped": True})
    assert (retry.id, retry.undone_by) == (begun.redrive_id, None)
