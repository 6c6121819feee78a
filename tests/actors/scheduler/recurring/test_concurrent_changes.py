"""What happens to a schedule at an awkward moment: as it is resumed, as its occurrence expires, as it is looked at."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tests.actors.scheduler.recurring.slots import DAY, MINUTE, START, occurrences, slots_of
from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.inflight.ticking import Ticks
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow, cursor_key
from tocsin.actors.scheduler.queries import schedules as reading
from tocsin.actors.scheduler.schedules import recompute, series
from tocsin.errors import ConflictError

# ---- Edits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"args": {"n": 2}}, {"misfire": "all"}, {"jitter": 30}, {"every": 120}])
def test_what_passed_while_paused_stays_passed_though_an_edit_comes_before_it_is_counted(
    changes: dict[str, object],
) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        schedules = sim.jobs.schedules
        given = {"every": 60, "jitter": 50, "paused": True}
        await schedules.put("x", "work:run", **given)  # type: ignore[arg-type]
        await sim.sleep(5 * 86_400)
        await schedules.resume("x")
        await schedules.put("x", "work:run", **{**given, "paused": None, **changes})  # type: ignore[arg-type]
        resumed = sim.now
        await sim.sleep(250)

        passed = [one for one in await occurrences(sim, "x") if one.slot <= resumed]
        assert {(one.state, one.reason) for one in passed} == {("skipped", "paused")}
        assert sim.deliveries and min(slots_of(sim.deliveries)) > resumed

    run()


@on_simulated_host()
async def test_an_edit_that_takes_the_jitter_away_fires_nothing_at_once(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", cron="0 * * * *", jitter=3_000)
    record = await schedules.get("x")
    assert record is not None and record.next_at is not None
    await sim.sleep((record.next_at - sim.now) / 1000 - 30)
    await schedules.put("x", "work:run", cron="0 * * * *")
    await sim.sleep(60)
    assert not sim.deliveries
    await sim.sleep(3_600)

    skipped, fired = await occurrences(sim, "x")
    assert (skipped.state, skipped.reason, fired.state) == ("skipped", "edited", "fired")


@on_simulated_host()
async def test_an_edit_leaves_alone_the_slots_that_a_clock_which_was_ahead_has_used(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", cron="0 0 * * *")
    for _ in range(6):
        sim.clock.step(DAY)
        await sim.sleep(70)
    sim.clock.step(-6 * DAY)
    await sim.sleep(70)
    await schedules.pause("x")
    await sim.sleep(7 * 86_400)
    await schedules.put("x", "work:run", cron="0 1 * * *")

    found = await occurrences(sim, "x")
    assert [one.state for one in found] == ["fired"] * 6 + ["skipped"]
    assert len({one.slot for one in found}) == 7 and found[-1].until is None


@on_simulated_host()
async def test_a_schedule_that_is_only_run_by_hand_keeps_no_more_than_others(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=3_600, paused=True)
    for _ in range(1_050):
        await sim.jobs.schedules.trigger("x")
    await sim.sleep(5)
    page = await sim.jobs.schedules.occurrences("x", limit=1_000)
    rest = await sim.jobs.schedules.occurrences("x", limit=1_000, cursor=page.cursor) if page.truncated else None

    assert len(page.occurrences) == 1_000 and len(rest.occurrences if rest else ()) < 25
    assert len(sim.deliveries) == 1_050


def test_a_set_that_is_edited_after_an_outage_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others on the loop do not wait for the turn, which computes what each schedule has missed."""
    steps, seen = [0], [0]
    next_of = series.next_of

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        def slow(row: DefinitionRow) -> series.Series:
            found = next_of(row)

            def counted(after: int) -> int | None:
                steps[0] += 1
                sim.clock.step(1)
                return found(after)

            return series.Series(counted, found.count)

        async def register(path: str, **rule: object) -> None:
            await sim.jobs.schedules.register("app", [(f"s{n}", {"path": path, **rule}) for n in range(40)])
            steps.append(-1)

        async def look() -> None:
            while steps[-1] >= 0:
                seen.append(steps[0])
                await asyncio.sleep(0)

        await register("work:run", cron="* 5 * * 1", paused=True)
        await sim.sleep(20 * 86_400)
        monkeypatch.setattr(series, "next_of", slow)
        steps[:] = [0]
        await asyncio.gather(register("work:run", cron="* 6 * * 1"), look())
        monkeypatch.undo()

    run()
    assert steps[0] > 1_000
    assert max(later - earlier for earlier, later in pairwise(seen)) < 200


# ---- Ends ----------------------------------------------------------------------------------------


@on_simulated_host()
async def test_an_occurrence_that_expires_with_the_next_slot_is_not_in_its_way(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=60, expires_after=60, pool="p")
    await sim.sleep(190)

    assert [one.state for one in await occurrences(sim, "x")] == ["expired", "expired", "fired"]


@on_simulated_host()
async def test_an_occurrence_that_expired_during_an_outage_is_not_in_the_way_of_the_newest_slot(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *", expires_after=600, pool="p")
    await sim.sleep(3_700)
    await sim.close()
    await sim.sleep(3 * 3_600)
    await sim.open()
    await sim.sleep(1)

    assert [one.state for one in await occurrences(sim, "x")] == ["expired", "coalesced", "fired"]


@on_simulated_host()
async def test_what_lives_is_counted_right_though_some_of_it_expires_while_zones_are_checked(
    sim: SimulatedHost,
) -> None:
    schedules = sim.jobs.schedules
    await sim.jobs.set_pool("p", paused=True)
    await schedules.put("x", "work:run", every=3_600, expires_after=3 * 3_600, pool="p", overlap="allow")
    await sim.sleep(2 * 3_600 + 10)
    await sim.close()
    await sim.sleep(2 * 3_600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recompute, "database_version", lambda: "2099z")
        await sim.open()
        await sim.sleep(1)
    record = await sim.jobs.schedules.get("x")
    live = [one for one in await occurrences(sim, "x") if one.live]

    assert record is not None and record.live == len(live) == 2
    assert await sim.faults() == []


@on_simulated_host()
async def test_a_slot_held_back_expires_where_it_waits_and_the_next_one_is_held(sim: SimulatedHost) -> None:
    """Also behind an overlap."""
    sim.reply = lambda delivery: after(200 if len(sim.deliveries) == 1 else 1)
    await sim.jobs.schedules.put("x", "work:run", every=60, expires_after=90, overlap="queue", timeout_ms=900_000)
    await sim.sleep(215)
    held = (await occurrences(sim, "x"))[1:]
    assert [(one.state, one.reason) for one in held] == [("expired", None), ("skipped", "overlap")]
    assert held[0].decided_at - START == 2 * MINUTE + 90_000
    await sim.sleep(50)
    found = await occurrences(sim, "x")

    assert [one.state for one in found] == ["fired", "expired", "skipped", "fired"]
    assert slots_of(sim.deliveries) == [START + MINUTE, START + 4 * MINUTE]


# ---- Ids that others have taken ------------------------------------------------------------------


@on_simulated_host()
async def test_deleting_cancels_no_other_job_that_took_the_id_of_an_occurrence(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=60)
    await sim.sleep(65)
    (done,) = await occurrences(sim, "x")
    assert done.job_id is not None
    await sim.jobs.run_after("1h", "work:other", id=done.job_id)
    assert [one.live for one in await occurrences(sim, "x")] == [False]
    await sim.jobs.schedules.delete("x", cancel_pending=True)

    assert await sim.jobs.get(done.job_id) is not None


@on_simulated_host()
async def test_deleting_cancels_nothing_of_a_schedule_that_was_made_meanwhile(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await sim.jobs.set_pool("p", paused=True)
    await schedules.put("x", "work:run", every=60, pool="p")
    old = await schedules.trigger("x")
    await schedules.delete("x")
    await schedules.put("x", "work:run", every=60, pool="p")
    new = await schedules.trigger("x")
    live = await reading.live_jobs(sim.host.runtime.provider.view("scheduler/t"), "x")
    await schedules.delete("x", cancel_pending=True)

    assert [job_id for job_id, _ in live] == [old.id]
    assert await sim.jobs.get(new.id) is None


@on_simulated_host()
async def test_a_cursor_of_another_instance_is_refused(sim: SimulatedHost) -> None:
    for name in ("t", "other"):
        schedules = sim.host.scheduler(name).schedules
        await schedules.put("x", "work:run", every=60)
        for _ in range(2):
            await schedules.trigger("x")
    page = await sim.jobs.schedules.occurrences("x", limit=1)
    with pytest.raises(ValueError, match="cursor belongs to another list"):
        await schedules.occurrences("x", limit=1, cursor=page.cursor)


@on_simulated_host()
async def test_arguments_that_have_no_name_are_refused(sim: SimulatedHost) -> None:
    given: dict[object, object] = {1: 2, "no": 3}
    with pytest.raises(ValueError, match="there is no argument"):
        await sim.jobs.schedules.register("app", [("x", given)])  # type: ignore[list-item]


# ---- The hook ------------------------------------------------------------------------------------


def test_a_pass_that_ends_just_as_the_hook_has_been_told_is_told_too() -> None:
    async def main() -> list[int]:
        told: list[int] = []
        ticks = Ticks(lambda until, late: told.append(until), asyncio.sleep, asyncio.ensure_future)
        ticks.note("t", 1, 0)
        # Between the last step of the task that tells and the callbacks of its end.
        asyncio.get_running_loop().call_soon(ticks.note, "t", 2, 0)
        await asyncio.sleep(0.01)
        return told

    assert asyncio.run(main()) == [1, 2]


# ---- A row that was lost, a clock that was wrong -------------------------------------------------


@on_simulated_host()
async def test_a_schedule_whose_cursor_is_found_lost_by_a_change_that_is_refused_goes_on(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=60, paused=True)
    await sim.close()
    sim.disk.maps["scheduler/t"].apply({cursor_key("x"): b"spoilt"})
    await sim.open()
    with pytest.raises(ConflictError):
        await sim.jobs.schedules.resume("x", revision=1)
    await sim.sleep(130)

    assert len(sim.deliveries) == 2
    sim.disk.maps["scheduler/t"].apply({b"bad/" + cursor_key("x"): None})


@on_simulated_host()
async def test_a_run_of_slots_that_have_not_come_after_all_ends_though_one_was_run_by_hand(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=60, misfire="skip", grace=0)
    await sim.sleep(30)
    sim.clock.step(6 * DAY)
    await sim.sleep(70)
    sim.clock.step(-6 * DAY)
    await sim.jobs.schedules.trigger("x", "by hand")
    await sim.sleep(300)
    found = [one for one in await occurrences(sim, "x") if not one.triggered and one.slot < sim.now]

    assert found[0].state == "skipped" and (found[0].until or found[0].slot) < found[1].slot
