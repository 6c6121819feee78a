"""Undo where it meets a limit: of a commit, of what is kept, of the log, of a pool, and a bulk retry that waits."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tests.actors.scheduler.test_audit import bury
from tests.actors.scheduler.test_undo import left_over, sim_hang
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.crockford import mint_id
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.state import turn as turns
from tocsin.actors.scheduler.transitions import acts as keeping
from tocsin.actors.scheduler.transitions import events
from tocsin.errors import ConflictError

DAY_S = 86_400
ME = actor_of("t")


async def submit(sim: SimulatedHost, count: int, *, after: str = "5h", label: str = "l", prefix: str = "j") -> None:
    jobs = [Job(path="work:run", after=after, options={"id": f"{prefix}{n}", "labels": [label]}) for n in range(count)]
    for first in range(0, count, 500):
        await sim.jobs.submit_many(jobs[first : first + 500])


@pytest.mark.parametrize("what", ["actions", "days"])
def test_what_is_forgotten_at_one_instant_fits_into_commits(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of actions whose ten minutes, or days whose history was over, while the host was down."""
    monkeypatch.setattr(turns, "KEYS_PER_TURN", 200)
    page = 60

    @on_simulated_host()
    async def story(sim: SimulatedHost) -> None:
        for n in range(12):
            await submit(sim, page, after="5h" if what == "actions" else "1s", label=f"l{n}", prefix=f"j{n}-")
            if what == "days":
                await sim.sleep(DAY_S)
            else:
                assert (await sim.jobs.cancel_all(label=f"l{n}")).cancelled == page
        await sim.crash()
        await sim.sleep(700 if what == "actions" else 400 * DAY_S)
        sizes: list[int] = []
        apply = sim.disk.apply

        def sized(writes: object) -> None:
            sizes.extend(len(one.rows) for one in writes)  # type: ignore[attr-defined]
            apply(writes)  # type: ignore[arg-type]

        monkeypatch.setattr(sim.disk, "apply", sized)
        await sim.open()
        await sim.sleep(60)
        assert max(sizes) < 200 + 2 * page + 60
        view = sim.host.runtime.provider.view(str(ME))
        assert await left_over(sim) == []
        if what == "days":
            assert await view.scan(b"hist/", b"hist0", limit=10) == []

    story()


@on_simulated_host()
async def test_an_undo_ends_though_its_day_of_the_log_is_dropped_meanwhile(sim: SimulatedHost) -> None:
    await submit(sim, 1_200, after="200d")
    gone = await sim.jobs.cancel_all(all=True)
    assert gone.action_id is not None
    undo_id = mint_id(sim.now, 7)
    await sim.host.runtime.call(ME, events.StartUndo(undo_id, gone.action_id, AskedBy(user="alice")))
    await sim.host.runtime.call(ME, events.UndoPage(undo_id))
    await sim.crash()
    await sim.sleep(92 * DAY_S)
    await sim.open()
    await sim.sleep(60)
    assert (await sim.jobs.status()).backlog == 1_200
    await sim.sleep(600)
    assert await left_over(sim) == [] and (await sim.jobs.audit()).actions == [] and await sim.faults() == []


@on_simulated_host()
async def test_what_comes_back_leaves_a_pool_as_who_came_later_set_it(sim: SimulatedHost) -> None:
    for pool in ("p", "q"):
        await sim.jobs.run_after("1h", "work:run", pool=pool, max_concurrency=2)
    gone = await sim.jobs.cancel_all(all=True)
    await sim.jobs.run_after("1h", "work:run", pool="p", max_concurrency=10)
    await sim.jobs.delete_pool("q")
    await sim.jobs.undo(gone.action_id or "")
    caps = {one.name: one.max_concurrency for one in (await sim.jobs.status()).pools}
    assert caps == {"p": 10, "q": 2}


@on_simulated_host()
async def test_a_bulk_retry_that_still_waits_is_stopped_by_its_undo(sim: SimulatedHost) -> None:
    names = [f"j{n}" for n in range(8)]
    await bury(sim, *names, pool="p")
    sim.reply = lambda _: sim_hang()
    await sim.jobs.dead_retry_all(ids=names[:4], rate_per_second=1)
    waiting = await sim.jobs.dead_retry_all(ids=names[4:], rate_per_second=1)
    assert waiting.waits_for is not None
    undone = await sim.jobs.undo(waiting.redrive_id)
    assert (undone.matched, undone.restored, undone.undo_until) == (0, 0, None)
    redrive = await sim.jobs.redrive(waiting.redrive_id)
    assert redrive is not None and redrive.stopped
    await sim.sleep(10)
    assert {one.id for one in (await sim.jobs.dead()).records} == set(names[4:])
    with pytest.raises(ConflictError, match="nothing could be put back"):
        await sim.jobs.undo(waiting.redrive_id)
    assert await sim.faults() == []


@on_simulated_host()
async def test_of_an_action_over_many_turns_all_is_kept_or_none(sim: SimulatedHost) -> None:
    await submit(sim, 2_500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "KEPT_MOST", 600)
        gone = await sim.jobs.cancel_all(all=True)
    assert (gone.cancelled, gone.undo_until) == (2_500, None)
    with pytest.raises(ConflictError, match="at most 100,000 jobs"):
        await sim.jobs.undo(gone.action_id or "")
    await sim.sleep(5)
    assert await left_over(sim) == []


@on_simulated_host()
async def test_a_bulk_retry_at_a_pace_is_kept_whole_or_not_at_all(sim: SimulatedHost) -> None:
    names = [f"j{n}" for n in range(13)]
    await bury(sim, *names)
    sim.reply = lambda _: sim_hang()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "KEPT_MOST", 4)
        started = await sim.jobs.dead_retry_all(all=True, rate_per_second=2)
        await sim.sleep(30)
    (noted,) = (await sim.jobs.audit(action="dead_retry_all")).actions
    assert (noted.changed, noted.undo_until) == (13, None)
    with pytest.raises(ConflictError, match="at most 100,000 jobs"):
        await sim.jobs.undo(started.redrive_id)
    assert await left_over(sim) == []


@on_simulated_host()
async def test_an_undo_that_nobody_drives_ends_soon(sim: SimulatedHost) -> None:
    await submit(sim, 6_000)
    gone = await sim.jobs.cancel_all(all=True)
    await sim.host.runtime.call(ME, events.StartUndo(mint_id(sim.now, 7), gone.action_id or "", AskedBy()))
    await sim.sleep(4)
    assert (await sim.jobs.status()).backlog == 0
    await sim.sleep(4)
    assert (await sim.jobs.status()).backlog == 6_000
