"""Schedules of a host in virtual time: each slot once, misfires, overlaps, and how occurrences end."""

from __future__ import annotations

from tests.actors.scheduler.recurring.slots import HOUR, MINUTE, after, occurrences, slots_of
from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.model.schedule_records import Occurrence
from tocsin.dispatch.transport import Answer

# ---- Firing --------------------------------------------------------------------------------------


@staged()
async def test_each_slot_becomes_one_callback_at_its_instant(stage: Stage) -> None:
    put = await stage.jobs.schedules.put("report", "reports:send", {"n": 1}, cron="*/5 * * * *")
    first = put.preview[0]
    await stage.sleep((first - stage.now) / 1000 + 16 * 60)

    assert put.revision == 1 and put.next_at == first and len(put.preview) == 5
    assert slots_of(stage.deliveries) == [first + n * 5 * MINUTE for n in range(4)]
    assert [one.body["scheduledFor"] for one in stage.deliveries] == slots_of(stage.deliveries)
    assert all(one.body["schedule"] == {"name": "report", "slot": one.body["scheduledFor"]} for one in stage.deliveries)
    assert stage.deliveries[0].body["args"] == {"n": 1} and stage.deliveries[0].body["functionPath"] == "reports:send"
    assert (
        max(at - one.body["scheduledFor"] for (at, _), one in zip(absolute(stage), stage.deliveries, strict=True))
        < 5_000
    )


def absolute(stage: Stage) -> list[tuple[int, str]]:
    return [(int(one.headers["webhook-timestamp"]) * 1000, one.id) for one in stage.deliveries]


@staged()
async def test_an_interval_counts_from_its_creation(stage: Stage) -> None:
    created = stage.now
    await stage.jobs.schedules.put("tick", "work:run", every=5400)
    await stage.sleep(5 * 3600)

    assert slots_of(stage.deliveries) == [created + n * 5_400_000 for n in (1, 2, 3)]


@staged()
async def test_a_one_time_rule_fires_once_and_is_completed(stage: Stage) -> None:
    at = stage.now + HOUR
    await stage.jobs.schedules.put("once", "work:run", at=at)
    await stage.sleep(2 * 3600)
    record = await stage.jobs.schedules.get("once")

    assert slots_of(stage.deliveries) == [at]
    assert record is not None and (record.state, record.next_at) == ("completed", None)
    await stage.jobs.schedules.put("once", "work:run", at=at)
    await stage.jobs.schedules.pause("once")
    await stage.jobs.schedules.resume("once")
    await stage.sleep(3600)
    assert len(stage.deliveries) == 1


@staged()
async def test_jitter_is_the_same_offset_at_every_slot(stage: Stage) -> None:
    for n in range(50):
        await stage.jobs.schedules.put(f"s{n}", "work:run", cron="0 * * * *", jitter=60)
    await stage.sleep(3 * 3600)

    offsets: dict[str, set[int]] = {}
    for one in stage.deliveries:
        schedule = one.body["schedule"]
        offsets.setdefault(schedule["name"], set()).add(one.body["scheduledFor"] - schedule["slot"])
    assert len(offsets) == 50 and all(len(found) == 1 for found in offsets.values())
    spread = sorted(found.pop() for found in offsets.values())
    assert 0 <= spread[0] < spread[-1] < MINUTE and spread[-1] - spread[0] > 30_000


# ---- Misfire -------------------------------------------------------------------------------------


async def down_for_a_week(stage: Stage, misfire: str, **options: object) -> list[Occurrence]:
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", misfire=misfire, **options)  # type: ignore[arg-type]
    await stage.sleep(90 * 60)
    await stage.close()
    before = len(stage.deliveries)
    await stage.sleep(7 * 86_400)
    await stage.open()
    await stage.sleep(20 * 60)
    del stage.receiver.deliveries[:before]
    return [one for one in await occurrences(stage, "x") if one.decided_at > stage.now - HOUR]


@staged()
async def test_a_week_down_with_misfire_one_is_one_job_for_all(stage: Stage) -> None:
    run, fired = await down_for_a_week(stage, "one")

    assert (run.state, run.count, run.reason) == ("coalesced", 167, None)
    assert (fired.state, fired.first_slot, fired.coalesced) == ("fired", run.slot, 167)
    assert run.until == fired.slot - HOUR
    [one] = stage.deliveries
    assert one.body["schedule"] == {"name": "x", "slot": fired.slot, "firstSlot": run.slot, "coalesced": 167}


@staged()
async def test_a_week_down_with_misfire_skip_is_recorded_and_fires_nothing(stage: Stage) -> None:
    [run] = await down_for_a_week(stage, "skip")

    assert (run.state, run.reason, run.count) == ("skipped", "misfire", 168)
    assert stage.deliveries == []
    await stage.sleep(3600)
    assert len(stage.deliveries) == 1


@staged()
async def test_a_week_down_with_misfire_all_fires_the_newest_in_order(stage: Stage) -> None:
    run, *fired = await down_for_a_week(stage, "all", overlap="allow", catch_up_limit=20)

    assert (run.state, run.reason, run.count) == ("skipped", "catch_up", 148)
    assert [one.state for one in fired] == ["fired"] * 20
    assert sorted(slots_of(stage.deliveries)) == [one.slot for one in fired]


@staged()
async def test_a_week_down_with_misfire_all_and_no_limit_fires_all(stage: Stage) -> None:
    fired = await down_for_a_week(stage, "all", overlap="allow", catch_up_limit=None)

    assert [one.state for one in fired] == ["fired"] * 168
    assert len(set(slots_of(stage.deliveries))) == 168


@staged()
async def test_a_slot_within_its_grace_is_on_time(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", misfire="skip", grace="10m")
    await stage.close()
    await stage.sleep(3600 + 5)
    await stage.open()
    await stage.sleep(60)
    states = [(one.state, one.reason) for one in await occurrences(stage, "x")]

    assert states in ([("fired", None)], [("skipped", "misfire")])


# ---- Overlap -------------------------------------------------------------------------------------


@staged()
async def test_a_slot_that_meets_a_live_occurrence_is_skipped(stage: Stage) -> None:
    stage.reply = lambda one: after(50)
    await stage.jobs.schedules.put("x", "work:run", every=30)
    await stage.sleep(5 * 60)
    found = await occurrences(stage, "x")

    assert [(one.state, one.reason) for one in found[:4]] == [
        ("fired", None), ("skipped", "overlap"), ("fired", None), ("skipped", "overlap"),
    ]  # fmt: skip


@staged()
async def test_a_retrying_occurrence_counts_as_live(stage: Stage) -> None:
    stage.reply = lambda one: Answer(500, {}, b"") if one.attempt == 1 else OK
    await stage.jobs.schedules.put("x", "work:run", every=20)
    await stage.sleep(61)

    assert [one.reason for one in await occurrences(stage, "x")] == [None, "overlap", None]


@staged()
async def test_one_slot_is_held_back_until_the_live_one_has_ended(stage: Stage) -> None:
    stage.reply = lambda one: after(50)
    await stage.jobs.schedules.put("x", "work:run", every=20, overlap="queue")
    await stage.sleep(65)
    held = [(one.state, one.reason) for one in await occurrences(stage, "x")]
    record = await stage.jobs.schedules.get("x")
    await stage.sleep(10)
    later = [(one.state, one.reason) for one in await occurrences(stage, "x")]

    assert held == [("fired", None), ("queued", None), ("skipped", "overlap")]
    assert record is not None and record.held_back is not None
    assert later[1] == ("fired", None)
    assert len(stage.deliveries) == 2


@staged()
async def test_overlaps_are_allowed_when_asked_for(stage: Stage) -> None:
    stage.reply = lambda one: after(50)
    await stage.jobs.schedules.put("x", "work:run", every=10, overlap="allow")
    await stage.sleep(45)
    record = await stage.jobs.schedules.get("x")

    assert len(stage.deliveries) == 4 and record is not None and record.live == 4


# ---- How occurrences end -------------------------------------------------------------------------


@staged()
async def test_a_slot_says_how_its_job_ended(stage: Stage) -> None:
    stage.reply = lambda one: Answer(410, {}, b"") if one.body["schedule"]["name"] == "dead" else OK
    schedules = stage.jobs.schedules
    await schedules.put("dead", "work:run", every=10, overlap="allow")
    await schedules.put("expired", "work:run", every=10, pool="closed", expires_after=5)
    await schedules.put("cancelled", "work:run", every=10, pool="closed")
    await stage.jobs.set_pool("closed", paused=True)
    await stage.sleep(11)
    [waiting] = await occurrences(stage, "cancelled")
    assert waiting.live and waiting.job_id is not None
    await stage.jobs.cancel(waiting.job_id)
    await stage.sleep(6)

    for name in ("dead", "expired", "cancelled"):
        assert (await occurrences(stage, name))[0].state == name
        record = await schedules.get(name)
        assert record is not None and record.live == 0
    [dead] = await occurrences(stage, "dead")
    stage.reply = lambda one: OK
    await stage.jobs.dead_retry(dead.job_id or "")
    await stage.sleep(1)
    assert (await occurrences(stage, "dead"))[0].state == "fired"
    record = await schedules.get("dead")
    assert record is not None and record.live == 0


@staged()
async def test_a_taken_id_is_recorded_and_the_next_slot_goes_on(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", every=10)
    await stage.sleep(11)
    [first] = await occurrences(stage, "x")
    assert first.job_id is not None
    taken = first.job_id.replace(f"{first.slot:015d}", f"{first.slot + 10_000:015d}")
    await stage.jobs.run_after("1h", "work:run", id=taken)
    await stage.sleep(20)

    assert [(one.state, one.reason) for one in await occurrences(stage, "x")] == [
        ("fired", None), ("skipped", "id_taken"), ("fired", None),
    ]  # fmt: skip
