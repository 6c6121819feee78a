"""Schedules of a host in virtual time: each slot once, misfires, overlaps, and how occurrences end."""

from __future__ import annotations

from tests.actors.scheduler.recurring.slots import HOUR, MINUTE, occurrences, slots_of
from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.model.schedule_records import Occurrence
from tocsin.dispatch.transport import Answer

# ---- Firing --------------------------------------------------------------------------------------


@on_simulated_host()
async def test_each_slot_becomes_one_callback_at_its_instant(sim: SimulatedHost) -> None:
    put = await sim.jobs.schedules.put("report", "reports:send", {"n": 1}, cron="*/5 * * * *")
    first = put.preview[0]
    await sim.sleep((first - sim.now) / 1000 + 16 * 60)

    assert put.revision == 1 and put.next_at == first and len(put.preview) == 5
    assert slots_of(sim.deliveries) == [first + n * 5 * MINUTE for n in range(4)]
    assert [one.body["scheduledFor"] for one in sim.deliveries] == slots_of(sim.deliveries)
    assert all(one.body["schedule"] == {"name": "report", "slot": one.body["scheduledFor"]} for one in sim.deliveries)
    assert sim.deliveries[0].body["args"] == {"n": 1} and sim.deliveries[0].body["functionPath"] == "reports:send"
    assert (
        max(at - one.body["scheduledFor"] for (at, _), one in zip(absolute(sim), sim.deliveries, strict=True)) < 5_000
    )


def absolute(sim: SimulatedHost) -> list[tuple[int, str]]:
    return [(int(one.headers["webhook-timestamp"]) * 1000, one.id) for one in sim.deliveries]


@on_simulated_host()
async def test_an_interval_counts_from_its_creation(sim: SimulatedHost) -> None:
    created = sim.now
    await sim.jobs.schedules.put("tick", "work:run", every=5400)
    await sim.sleep(5 * 3600)

    assert slots_of(sim.deliveries) == [created + n * 5_400_000 for n in (1, 2, 3)]


@on_simulated_host()
async def test_a_one_time_rule_fires_once_and_is_completed(sim: SimulatedHost) -> None:
    at = sim.now + HOUR
    await sim.jobs.schedules.put("once", "work:run", at=at)
    await sim.sleep(2 * 3600)
    record = await sim.jobs.schedules.get("once")

    assert slots_of(sim.deliveries) == [at]
    assert record is not None and (record.state, record.next_at) == ("completed", None)
    await sim.jobs.schedules.put("once", "work:run", at=at)
    await sim.jobs.schedules.pause("once")
    await sim.jobs.schedules.resume("once")
    await sim.sleep(3600)
    assert len(sim.deliveries) == 1


@on_simulated_host()
async def test_jitter_is_the_same_offset_at_every_slot(sim: SimulatedHost) -> None:
    for n in range(50):
        await sim.jobs.schedules.put(f"s{n}", "work:run", cron="0 * * * *", jitter=60)
    await sim.sleep(3 * 3600)

    offsets: dict[str, set[int]] = {}
    for one in sim.deliveries:
        schedule = one.body["schedule"]
        offsets.setdefault(schedule["name"], set()).add(one.body["scheduledFor"] - schedule["slot"])
    assert len(offsets) == 50 and all(len(found) == 1 for found in offsets.values())
    spread = sorted(found.pop() for found in offsets.values())
    assert 0 <= spread[0] < spread[-1] < MINUTE and spread[-1] - spread[0] > 30_000


# ---- Misfire -------------------------------------------------------------------------------------


async def down_for_a_week(sim: SimulatedHost, misfire: str, **options: object) -> list[Occurrence]:
    await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *", misfire=misfire, **options)  # type: ignore[arg-type]
    await sim.sleep(90 * 60)
    await sim.close()
    before = len(sim.deliveries)
    await sim.sleep(7 * 86_400)
    await sim.open()
    await sim.sleep(20 * 60)
    del sim.receiver.deliveries[:before]
    return [one for one in await occurrences(sim, "x") if one.decided_at > sim.now - HOUR]


@on_simulated_host()
async def test_a_week_down_with_misfire_one_is_one_job_for_all(sim: SimulatedHost) -> None:
    run, fired = await down_for_a_week(sim, "one")

    assert (run.state, run.count, run.reason) == ("coalesced", 167, None)
    assert (fired.state, fired.first_slot, fired.coalesced) == ("fired", run.slot, 167)
    assert run.until == fired.slot - HOUR
    [one] = sim.deliveries
    assert one.body["schedule"] == {"name": "x", "slot": fired.slot, "firstSlot": run.slot, "coalesced": 167}


@on_simulated_host()
async def test_a_week_down_with_misfire_skip_is_recorded_and_fires_nothing(sim: SimulatedHost) -> None:
    [run] = await down_for_a_week(sim, "skip")

    assert (run.state, run.reason, run.count) == ("skipped", "misfire", 168)
    assert sim.deliveries == []
    await sim.sleep(3600)
    assert len(sim.deliveries) == 1


@on_simulated_host()
async def test_a_week_down_with_misfire_all_fires_the_newest_in_order(sim: SimulatedHost) -> None:
    run, *fired = await down_for_a_week(sim, "all", overlap="allow", catch_up_limit=20)

    assert (run.state, run.reason, run.count) == ("skipped", "catch_up", 148)
    assert [one.state for one in fired] == ["fired"] * 20
    assert sorted(slots_of(sim.deliveries)) == [one.slot for one in fired]


@on_simulated_host()
async def test_a_week_down_with_misfire_all_and_no_limit_fires_all(sim: SimulatedHost) -> None:
    fired = await down_for_a_week(sim, "all", overlap="allow", catch_up_limit=None)

    assert [one.state for one in fired] == ["fired"] * 168
    assert len(set(slots_of(sim.deliveries))) == 168


@on_simulated_host()
async def test_a_slot_within_its_grace_is_on_time(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *", misfire="skip", grace="10m")
    await sim.close()
    await sim.sleep(3600 + 5)
    await sim.open()
    await sim.sleep(60)
    states = [(one.state, one.reason) for one in await occurrences(sim, "x")]

    assert states in ([("fired", None)], [("skipped", "misfire")])


# ---- Overlap -------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_slot_that_meets_a_live_occurrence_is_skipped(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(50)
    await sim.jobs.schedules.put("x", "work:run", every=30)
    await sim.sleep(5 * 60)
    found = await occurrences(sim, "x")

    assert [(one.state, one.reason) for one in found[:4]] == [
        ("fired", None), ("skipped", "overlap"), ("fired", None), ("skipped", "overlap"),
    ]  # fmt: skip


@on_simulated_host()
async def test_a_retrying_occurrence_counts_as_live(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(500, {}, b"") if one.attempt == 1 else OK
    await sim.jobs.schedules.put("x", "work:run", every=20)
    await sim.sleep(61)

    assert [one.reason for one in await occurrences(sim, "x")] == [None, "overlap", None]


@on_simulated_host()
async def test_one_slot_is_held_back_until_the_live_one_has_ended(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(50)
    await sim.jobs.schedules.put("x", "work:run", every=20, overlap="queue")
    await sim.sleep(65)
    held = [(one.state, one.reason) for one in await occurrences(sim, "x")]
    record = await sim.jobs.schedules.get("x")
    await sim.sleep(10)
    later = [(one.state, one.reason) for one in await occurrences(sim, "x")]

    assert held == [("fired", None), ("queued", None), ("skipped", "overlap")]
    assert record is not None and record.held_back is not None
    assert later[1] == ("fired", None)
    assert len(sim.deliveries) == 2


@on_simulated_host()
async def test_overlaps_are_allowed_when_asked_for(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(50)
    await sim.jobs.schedules.put("x", "work:run", every=10, overlap="allow")
    await sim.sleep(45)
    record = await sim.jobs.schedules.get("x")

    assert len(sim.deliveries) == 4 and record is not None and record.live == 4


# ---- How occurrences end -------------------------------------------------------------------------


@on_simulated_host()
async def test_a_slot_says_how_its_job_ended(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"") if one.body["schedule"]["name"] == "dead" else OK
    schedules = sim.jobs.schedules
    await schedules.put("dead", "work:run", every=10, overlap="allow")
    await schedules.put("expired", "work:run", every=10, pool="closed", expires_after=5)
    await schedules.put("cancelled", "work:run", every=10, pool="closed")
    await sim.jobs.set_pool("closed", paused=True)
    await sim.sleep(11)
    [waiting] = await occurrences(sim, "cancelled")
    assert waiting.live and waiting.job_id is not None
    await sim.jobs.cancel(waiting.job_id)
    await sim.sleep(6)

    for name in ("dead", "expired", "cancelled"):
        assert (await occurrences(sim, name))[0].state == name
        record = await schedules.get(name)
        assert record is not None and record.live == 0
    [dead] = await occurrences(sim, "dead")
    sim.reply = lambda one: OK
    await sim.jobs.dead_retry(dead.job_id or "")
    await sim.sleep(1)
    assert (await occurrences(sim, "dead"))[0].state == "fired"
    record = await schedules.get("dead")
    assert record is not None and record.live == 0


@on_simulated_host()
async def test_a_taken_id_is_recorded_and_the_next_slot_goes_on(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=10)
    await sim.sleep(11)
    [first] = await occurrences(sim, "x")
    assert first.job_id is not None
    taken = first.job_id.replace(f"{first.slot:015d}", f"{first.slot + 10_000:015d}")
    await sim.jobs.run_after("1h", "work:run", id=taken)
    await sim.sleep(20)

    assert [(one.state, one.reason) for one in await occurrences(sim, "x")] == [
        ("fired", None), ("skipped", "id_taken"), ("fired", None),
    ]  # fmt: skip
