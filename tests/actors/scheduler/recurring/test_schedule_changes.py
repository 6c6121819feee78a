"""Changes of schedules in virtual time: edits, pauses, triggers, owners; and clocks and crashes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.actors.scheduler.recurring.slots import occurrences, slots_of
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.cron.rule import Rule
from tocsin.actors.scheduler.schedules import series
from tocsin.errors import ConflictError, InvalidCronError, InvalidInputError, NotFoundError, UnknownTimezoneError

# ---- Changing ------------------------------------------------------------------------------------


@on_simulated_host()
async def test_the_same_definition_again_changes_nothing(sim: SimulatedHost) -> None:
    first = await sim.jobs.schedules.put("x", "work:run", {"n": 1}, every="1h")
    await sim.sleep(600)
    again = await sim.jobs.schedules.put("x", "work:run", {"n": 1}, every="1h")

    assert again == first


@on_simulated_host()
async def test_a_stale_revision_changes_nothing(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", cron="0 9 * * *")
    await schedules.put("x", "work:run", cron="0 10 * * *", revision=1)
    for change in (
        schedules.put("x", "work:run", cron="0 11 * * *", revision=1),
        schedules.pause("x", revision=1),
        schedules.resume("x", revision=3),
        schedules.delete("x", revision=1),
    ):
        with pytest.raises(ConflictError, match="is at revision 2"):
            await change
    record = await schedules.get("x")

    assert record is not None and (record.cron, record.revision) == ("0 10 * * *", 2)
    await schedules.delete("x")
    for name in ("new", "x"):
        with pytest.raises(ConflictError, match=r"there is none \(any more\)"):
            await schedules.put(name, "work:run", every=60, revision=3)


@on_simulated_host()
async def test_an_edit_fires_nothing_and_counts_from_now(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", cron="0 9 * * *")
    await sim.sleep(86_400)
    before = len(sim.deliveries)
    put = await schedules.put("x", "work:run", cron="0 22 * * *", timezone="America/New_York")
    await sim.sleep(60)

    assert len(sim.deliveries) == before
    assert put.next_at is not None and put.next_at > sim.now
    same = await schedules.put("x", "work:other", cron="0 22 * * *", timezone="America/New_York")
    assert (same.next_at, same.revision) == (put.next_at, 3)


@on_simulated_host()
async def test_an_occurrence_keeps_what_was_defined_when_it_was_made(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await sim.jobs.set_pool("p", paused=True)
    await schedules.put("x", "work:old", {"v": 1}, every=10, pool="p")
    await sim.sleep(11)
    await schedules.put("x", "work:new", {"v": 2}, every=10, pool="p")
    await schedules.delete("x")
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(5)

    assert [(one.body["functionPath"], one.body["args"]) for one in sim.deliveries] == [("work:old", {"v": 1})]


@on_simulated_host()
async def test_slots_that_pass_while_paused_are_skipped(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", every=60)
    await sim.sleep(61)
    paused = await schedules.pause("x")
    await sim.sleep(600)
    resumed = await schedules.resume("x")
    await sim.sleep(61)

    assert (paused.state, paused.next_at) == ("paused", None) and resumed.state == "active"
    found = await occurrences(sim, "x")
    assert [(one.state, one.reason, one.count) for one in found] == [
        ("fired", None, None), ("skipped", "paused", 10), ("fired", None, None),
    ]  # fmt: skip
    run = found[1]
    assert run.until is not None and run.lateness_ms == run.decided_at - run.until < 60_000


@on_simulated_host()
async def test_a_run_is_as_late_as_its_newest_slot_with_its_jitter(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=60, jitter=30, pool="p")
    await sim.sleep(3_000)

    run = (await occurrences(sim, "x"))[-1]
    assert (run.reason, run.count) == ("overlap", 48) and run.due > run.slot
    assert run.lateness_ms < 1_000, "each was decided when it was due"


@on_simulated_host()
async def test_paused_left_out_stays_as_it_is(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", every=60, paused=True)
    await schedules.put("x", "work:run", every=30)
    record = await schedules.get("x")

    assert record is not None and record.paused
    await sim.sleep(120)
    assert sim.deliveries == []


@on_simulated_host()
async def test_a_trigger_runs_once_per_key_even_when_paused(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", cron="0 0 1 1 *", paused=True)
    first = await schedules.trigger("x", "k1")
    again = await schedules.trigger("x", "k1")
    other = await schedules.trigger("x")
    await sim.sleep(1)

    assert first.created and not again.created and (again.id, again.slot) == (first.id, first.slot)
    assert other.id != first.id and len(sim.deliveries) == 2
    found = await occurrences(sim, "x")
    assert [one.triggered for one in found] == [True, True]
    with pytest.raises(NotFoundError):
        await schedules.trigger("nothing")
    await schedules.delete("x")
    await schedules.put("x", "work:run", cron="0 0 1 1 *", paused=True)
    kept = await schedules.trigger("x", "k1")
    assert not kept.created and kept.id == first.id, "as long as its occurrence is kept"


@on_simulated_host()
async def test_an_instant_that_has_passed_is_late_for_a_new_schedule_and_nothing_for_an_edit(
    sim: SimulatedHost,
) -> None:
    schedules, past = sim.jobs.schedules, sim.now - 3_600_000
    new = await schedules.put("new", "work:run", at=past)
    skipped = await schedules.put("skipped", "work:run", at=past, misfire="skip")
    await schedules.put("edited", "work:run", at=sim.now + 3_600_000)
    edited = await schedules.put("edited", "work:run", at=past)
    await sim.sleep(7_200)

    assert (new.next_at, skipped.next_at, edited.next_at, edited.preview) == (past, past, None, [])
    assert [one.body["schedule"]["name"] for one in sim.deliveries] == ["new"]
    found = await schedules.get("edited")
    assert found is not None and found.state == "completed"


@on_simulated_host()
async def test_a_name_that_never_was_has_no_occurrences(sim: SimulatedHost) -> None:
    assert await occurrences(sim, "nothing") == []


@on_simulated_host()
async def test_a_schedule_made_again_goes_on_with_its_revision_and_uses_no_slot_twice(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    at = sim.now + 5_000
    await schedules.put("x", "work:run", at=at)
    await sim.sleep(6)
    assert await schedules.delete("x") and not await schedules.delete("x")
    assert await schedules.get("x") is None
    made = await schedules.put("x", "work:run", at=at)
    await sim.sleep(60)

    assert made.revision == 2 and len(sim.deliveries) == 1


@on_simulated_host()
async def test_a_one_time_rule_that_is_over_is_not_recorded_anew_when_it_is_made_again(sim: SimulatedHost) -> None:
    at = sim.now + 5_000
    await sim.jobs.schedules.put("x", "work:run", at=at, misfire="skip", grace=0)
    await sim.sleep(60)
    before = await occurrences(sim, "x")
    await sim.jobs.schedules.delete("x")
    await sim.jobs.schedules.put("x", "work:run", at=at, misfire="skip", grace=0)
    await sim.sleep(60)

    assert await occurrences(sim, "x") == before and before[0].state == "fired"


@on_simulated_host()
async def test_deleting_may_cancel_what_is_pending(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=10, pool="p", overlap="allow")
    await sim.sleep(35)
    assert await sim.jobs.schedules.delete("x", cancel_pending=True)

    assert (await sim.jobs.status()).backlog == 0
    assert [one.state for one in await occurrences(sim, "x")] == ["cancelled"] * 3


@on_simulated_host(look_again_s=3_600, idle_after_s=86_400)
async def test_history_of_a_deleted_schedule_goes_after_thirty_days(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=10)
    await sim.sleep(35)
    await sim.jobs.schedules.delete("x")
    await sim.sleep(29 * 86_400)
    assert len(await occurrences(sim, "x")) == 3
    await sim.sleep(2 * 86_400)
    assert await occurrences(sim, "x") == []


@on_simulated_host()
async def test_a_thousand_occurrences_are_kept(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=1)
    await sim.sleep(1_350)

    found = (await sim.jobs.schedules.occurrences("x", limit=1000)).occurrences
    assert len(found) == 1_000
    assert len(set(slots_of(sim.deliveries))) == len(sim.deliveries) >= 1_340


@on_simulated_host()
async def test_what_cannot_be_is_refused_and_changes_nothing(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    for change, error, words in (
        (schedules.put("x", "w:r"), InvalidInputError, "exactly one of cron, every and at"),
        (schedules.put("x", "w:r", cron="* * * * *", every=5), InvalidInputError, "exactly one of cron"),
        (schedules.put("x", every=5), InvalidInputError, "exactly one of path and workflow"),
        (schedules.put("x", "w:r", every=0.5), InvalidInputError, r"every \(in ms\) must be 1000"),
        (schedules.put("x", "w:r", cron="61 * * * *"), InvalidCronError, "minute field"),
        (schedules.put("x", "w:r", cron="* * * * *", timezone="Mars"), UnknownTimezoneError, "Mars"),
        (schedules.put("a/b", "w:r", every=5), InvalidInputError, "name must match"),
        (schedules.put("x", "w:r", every=5, misfire="maybe"), InvalidInputError, "misfire must be one of"),
        (schedules.put("x", "w:r", every=5, max_concurrency=2), InvalidInputError, "give pool as well"),
        (schedules.put("x", "w:r", every=5, catch_up_limit=0), InvalidInputError, "catch_up_limit must be 1"),
    ):
        with pytest.raises(error, match=words):
            await change

    assert (await schedules.list()).schedules == []


# ---- Owners --------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_set_is_registered_as_a_whole_and_again_without_effect(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    own = [("sweep", {"path": "w:sweep", "cron": "17 * * * *"}), ("mail", {"path": "w:mail", "every": "5m"})]
    first = await schedules.register("app", own)
    again = await schedules.register("app", own)

    assert [one.name for one in first.schedules] == ["app:sweep", "app:mail"]
    assert again == first
    left = await schedules.register("app", own[:1])
    assert left.orphaned == ["app:mail"] and left.removed == []
    mail = await schedules.get("app:mail")
    assert mail is not None and mail.orphaned and mail.owner == "app"
    back = await schedules.register("app", own)
    mail = await schedules.get("app:mail")
    assert mail is not None and not mail.orphaned and back == first
    pruned = await schedules.register("app", own[1:], prune=True)
    assert pruned.removed == ["app:sweep"] and await schedules.get("app:sweep") is None


@on_simulated_host()
async def test_a_name_of_another_owner_refuses_the_whole_set(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("app:mail", "w:mail", every=60)
    with pytest.raises(ConflictError, match="'app:mail' is there already"):
        await schedules.register("app", [("new", {"path": "w:n", "every": 60}), ("mail", {"path": "w:m", "every": 60})])

    assert [one.name for one in (await schedules.list()).schedules] == ["app:mail"]
    with pytest.raises(InvalidCronError, match="schedule 'bad': cron"):
        await schedules.register("app", [("bad", {"path": "w:n", "cron": "nonsense"})])


# ---- Preview -------------------------------------------------------------------------------------


@on_simulated_host()
async def test_preview_and_refusals_are_those_of_a_definition(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    start = datetime(2025, 3, 8, 12, tzinfo=UTC)
    coming = await schedules.preview("30 2 * * *", timezone="America/New_York", start=start, count=2)

    assert [datetime.fromtimestamp(ms / 1000, UTC).isoformat() for ms in coming.next] == [
        "2025-03-09T07:00:00+00:00", "2025-03-10T06:30:00+00:00",
    ]  # fmt: skip
    with pytest.raises(InvalidCronError):
        await schedules.preview("nonsense")


@on_simulated_host()
async def test_a_zone_that_is_gone_stops_one_schedule_until_it_is_back(sim: SimulatedHost) -> None:
    """It says why, the others go on, and resuming it mends it."""
    schedules = sim.jobs.schedules
    await schedules.put("gone", "work:run", cron="* * * * *", timezone="Europe/Berlin", overlap="allow")
    await schedules.put("there", "work:run", cron="* * * * *", overlap="allow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series, "_rule", lost)
        await sim.sleep(130)
        record = await schedules.get("gone")
        assert record is not None and record.state == "error" and "Europe/Berlin" in (record.error or "")
        assert (await schedules.resume("gone")).state == "error"
    assert {one.body["schedule"]["name"] for one in sim.deliveries} == {"there"}
    resumed = await schedules.resume("gone")
    await sim.sleep(60)

    assert resumed.state == "active"
    assert "gone" in {one.body["schedule"]["name"] for one in sim.deliveries}


def lost(cron: str, timezone: str) -> Rule:
    if timezone != "UTC":
        raise UnknownTimezoneError(f"timezone {timezone!r} is not known here")
    return Rule(cron, timezone)
