"""Sets declared in code: a `Cron` registered as it is, and what is refused of pairs that somebody wrote by hand."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.actors.scheduler.recurring.slots import occurrences
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import Cron, Retry
from tocsin.errors import ConflictError, InvalidCronError, InvalidInputError


def declared() -> Cron:
    return (
        Cron()
        .hourly("sweep", minute=17, target="carts:sweep", args={"n": 1}, misfire="all", catch_up_limit=None)
        .daily(
            "report", hour=6, minute=30, timezone="Europe/Berlin", workflow="report", grace_ms=5_000, jitter_ms=60_000,
            expires_after_ms=3_600_000, overlap="queue", retry=Retry(max_retries=1), labels=["a"], pool="reports",
            max_concurrency=2,
        )
    )  # fmt: skip


@on_simulated_host()
async def test_a_cron_is_registered_as_it_is(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    first = await schedules.register("app", declared())
    again = await schedules.register("app", declared().schedules())
    sweep, report = (await schedules.list()).schedules[::-1]

    assert first == again and [one.revision for one in again.schedules] == [1, 1]
    assert (sweep.name, sweep.cron, sweep.args, sweep.catch_up_limit) == ("app:sweep", "17 * * * *", {"n": 1}, None)
    assert (report.name, report.timezone, report.workflow) == ("app:report", "Europe/Berlin", "report")
    assert (report.grace_ms, report.jitter_ms, report.expires_after_ms) == (5_000, 60_000, 3_600_000)
    assert (report.retry, report.labels, report.pool, report.max_concurrency) == (
        Retry(max_retries=1), ("a",), "reports", 2,
    )  # fmt: skip


@on_simulated_host()
async def test_a_cron_takes_the_names_of_put(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    cron = Cron().hourly(
        "x", minute=1, target="w:r", timezone=ZoneInfo("Asia/Kolkata"), jitter="10m", grace=timedelta(seconds=5),
        expires_after="1h", paused=True, initiator="deploy",
    )  # fmt: skip
    await schedules.register("app", cron)
    found = await schedules.get("app:x")

    assert found is not None and (found.jitter_ms, found.grace_ms, found.expires_after_ms) == (
        600_000,
        5_000,
        3_600_000,
    )
    assert (found.timezone, found.paused) == ("Asia/Kolkata", True)
    assert found.initiator is not None and found.initiator.user == "deploy"
    for wrong, words in (
        ({"jitter": "soon"}, "jitter must look"),
        ({"jitter": 1, "jitter_ms": 1}, "one of jitter and"),
    ):
        with pytest.raises(InvalidInputError, match=f"schedule 'y': .*{words}"):
            await schedules.register("app", Cron().every_minute("y", target="w:r", **wrong))


@on_simulated_host()
async def test_closing_a_registration_removes_nothing(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    registration = await schedules.register("app", declared())
    registration.close()
    registration.close()

    assert registration.closed
    found = (await schedules.list()).schedules
    assert [(one.state, one.orphaned, one.owner) for one in found] == [("active", False, "app")] * 2


@on_simulated_host()
async def test_a_deploy_loses_no_schedule_whichever_process_starts_last(sim: SimulatedHost) -> None:
    """The old version registers again after the new one: what only the new one has is kept, and said to be orphaned."""
    schedules = sim.jobs.schedules
    new = declared().every_minute("beat", target="health:beat")
    await schedules.register("app", new)
    late = await schedules.register("app", declared())
    assert late.orphaned == ["app:beat"]
    back = await schedules.register("app", new)

    assert back.orphaned == [] and [one.revision for one in back.schedules] == [1, 1, 1]


@on_simulated_host()
async def test_pairs_take_the_arguments_of_put_and_no_others(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    every: dict[str, Any] = {"path": "w:r", "every": timedelta(minutes=5)}
    made = await schedules.register("app", [("ok", {**every, "grace": "5s", "initiator": "deploy"})])
    assert made.schedules[0].revision == 1
    for given, words in (
        (
            [("bad", {**every, "mis_fire": "all"})],
            r"schedule 'bad': there is no argument 'mis_fire' \(do you mean misfire\?\), there are path,",
        ),
        ([("bad", {**every, "every_ms": 5_000})], "schedule 'bad': give one of every and every_ms"),
        ([("bad", {**every, "every": "soon"})], "schedule 'bad': every must look like"),
        ([("bad", {**every, "initiator": ""})], "schedule 'bad': initiator"),
        ([("a b", every)], "name must match"),
        (Cron, r"an instance, as from Cron\(\)"),
        (None, "schedules must be a Cron"),
        (["bad"], "schedules must be a Cron, or pairs"),
        ([("bad", every, 1)], "schedules must be a Cron, or pairs"),
        ([("bad", None)], "schedules must be a Cron, or pairs"),
        ([("a", every), ("a", every)], "the name 'app:a' is given twice"),
        ([(f"s{n}", every) for n in range(1001)], "1001 given, at most 1000"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            await schedules.register("app", given)  # type: ignore[arg-type]
    with pytest.raises(InvalidCronError, match="schedule 'bad': cron"):
        await schedules.register("app", [("bad", {"path": "w:r", "cron": "nonsense"})])

    assert [one.name for one in (await schedules.list()).schedules] == ["app:ok"]


@on_simulated_host()
async def test_a_cron_whose_name_another_holds_registers_nothing(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    await schedules.put("app:report", "w:r", every=60)
    with pytest.raises(ConflictError, match="nothing of this set was registered"):
        await schedules.register("app", declared())
    assert len((await schedules.list()).schedules) == 1


# ---- What others see of it -----------------------------------------------------------------------


@on_simulated_host()
async def test_jobs_say_of_which_schedule_they_are_and_who_wanted_it(sim: SimulatedHost) -> None:
    schedules, jobs = sim.jobs.schedules, sim.jobs
    await jobs.set_pool("held", paused=True)
    await schedules.put("x", "w:r", every=10, pool="held", initiator="alice")
    await sim.sleep(11)
    run = await schedules.trigger("x")
    plain = await jobs.run_after(0, "w:other", pool="held")
    by_id = {one.id: one for one in (await jobs.list()).records}
    fired, triggered = by_id.pop(run.id).schedule, by_id.pop(plain).schedule
    [(_, slot)] = by_id.items()

    assert (
        triggered is None and fired is not None and (fired.name, fired.triggered, fired.slot) == ("x", True, run.slot)
    )
    assert slot.schedule is not None and (slot.schedule.slot, slot.schedule.triggered) == (slot.scheduled_for, False)
    assert slot.initiator is not None and slot.initiator.user == "alice"
    record = await schedules.get("x")
    assert record is not None and record.initiator == slot.initiator


@on_simulated_host()
async def test_how_a_triggered_run_ends_is_said_beside_it(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("held", paused=True)
    await sim.jobs.schedules.put("x", "w:r", every=3600, pool="held")
    run = await sim.jobs.schedules.trigger("x", "k")
    await sim.jobs.cancel(run.id)

    assert [(one.state, one.live, one.triggered) for one in await occurrences(sim, "x")] == [("cancelled", False, True)]


@on_simulated_host()
async def test_a_preview_of_many_lines_is_one_of_few_continued(sim: SimulatedHost) -> None:
    start = 1_793_448_000_000
    schedules = sim.jobs.schedules
    whole = await schedules.preview("30 1 * * *", timezone="America/New_York", start=start, count=25)
    parts = [await schedules.preview("30 1 * * *", timezone="America/New_York", start=at, count=1) for at in
             [start, *whole.next[:-1]]]  # fmt: skip

    assert [one.next[0] for one in parts] == list(whole.next) and [one.notes[0] for one in parts] == list(whole.notes)
    assert [bool(note) for note in whole.notes] == [True, True] + [False] * 23
    last = await schedules.preview("0 0 1 1 *", start=250_240_000_000_000, count=100)
    assert len(last.next) == len(last.notes) < 100
    with pytest.raises(InvalidInputError, match="count must be 1"):
        await schedules.preview("* * * * *", count=101)


@on_simulated_host()
async def test_request_keys_are_texts_that_can_be_kept(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "w:r", every=3600)
    for key in ("", "k" * 256, "\ud800", 5):
        with pytest.raises(InvalidInputError, match="request_key"):
            await sim.jobs.schedules.trigger("x", key)  # type: ignore[arg-type]


@on_simulated_host()
async def test_of_two_sets_registered_at_once_the_later_one_stays_whole(sim: SimulatedHost) -> None:
    """Otherwise each would remove what only the other one names."""
    schedules = sim.jobs.schedules
    sets = [[(name, {"path": "work:run", "every": 60}) for name in names] for names in ("ab", "bc")]
    old, new = await asyncio.gather(*(schedules.register("app", one, prune=True) for one in sets))

    assert [one.name for one in (await schedules.list()).schedules] == ["app:b", "app:c"]
    assert (old.removed, new.removed) == ([], ["app:a"])
