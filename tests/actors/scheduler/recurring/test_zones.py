"""Time zones change between runs, are lost and come back; that of the machine changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.actors.scheduler.recurring.slots import MINUTE
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.schedules import recompute, series


@on_simulated_host()
async def test_other_time_zones_at_the_next_start_move_the_stored_next_slots(
    sim: SimulatedHost,
) -> None:
    """A country gives up its summer time between two runs: what is stored was computed with the old rules."""
    await sim.jobs.schedules.put("moved", "work:moved", cron="0 12 * * *", timezone="Europe/Berlin")
    await sim.jobs.schedules.put("kept", "work:kept", cron="0 12 * * *")
    before = await sim.jobs.schedules.get("moved")
    await sim.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recompute, "database_version", lambda: "2099z")
        rule = series.rule_of("0 12 * * *", "Europe/Berlin")
        series._next.cache_clear()
        patch.setattr(rule, "next_ms", series.rule_of("30 11 * * *", "Europe/Berlin").next_ms)
        await sim.open()
        await sim.sleep(1)
        after = await sim.jobs.schedules.get("moved")
        assert before is not None and after is not None
        assert (after.next_at or 0) - (before.next_at or 0) == -30 * MINUTE and after.revision == before.revision
        await sim.sleep(86_400)
    series._next.cache_clear()
    fired = {one.body["functionPath"]: one.body["schedule"]["slot"] for one in sim.deliveries}

    assert fired["work:moved"] == after.next_at and len(sim.deliveries) == 2


@on_simulated_host()
async def test_a_zone_that_is_known_again_takes_its_schedule_up_again(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *", timezone="Europe/Berlin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series, "_rule", unknown)
        await sim.sleep(3601)
        broken = await sim.jobs.schedules.get("x")
        assert broken is not None and broken.state == "error"
    await sim.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recompute, "database_version", lambda: "2099z")
        await sim.open()
        await sim.sleep(10)
        mended = await sim.jobs.schedules.get("x")

    assert mended is not None and mended.state == "active" and len(sim.deliveries) == 1


def unknown(cron: str, timezone: str) -> None:
    from tocsin.errors import UnknownTimezoneError

    raise UnknownTimezoneError(f"timezone {timezone!r} is not known here")


@on_simulated_host()
async def test_zones_that_changed_before_the_second_start_are_noticed(sim: SimulatedHost) -> None:
    """The first start met no schedule, so its zones are noted with the first one."""
    await sim.jobs.schedules.put("x", "work:run", cron="0 12 * * *")
    await sim.close()
    with pytest.MonkeyPatch.context() as patch:
        rung: list[str] = []
        patch.setattr(recompute, "database_version", lambda: "of another year")
        whole = recompute._recompute

        async def watched(turn: object, one: object, allowance: object) -> None:
            rung.append(one.name)  # type: ignore[attr-defined]
            await whole(turn, one, allowance)  # type: ignore[arg-type]

        patch.setattr(recompute, "_recompute", watched)
        await sim.open()
        await sim.sleep(43_200 * 2)
        await sim.close()
        await sim.open()
        await sim.sleep(86_400)

    assert rung == ["x"], "once, not at every start"


HOSTS_ZONE = """
import asyncio, functools, os, time
from tests.actors.scheduler.simulated_host import on_simulated_host

@on_simulated_host(look_again_s=3_600, idle_after_s=86_400)
async def run(sim):
    await sim.jobs.schedules.put("utc", "work:utc", cron="0 12 * * *")
    await sim.jobs.schedules.put("zoned", "work:zoned", cron="30 2 * * *", timezone="America/New_York")
    await sim.sleep(100 * 86_400)
    print(sorted((one.body["schedule"]["name"], one.body["schedule"]["slot"]) for one in sim.deliveries))

run()
"""


def test_the_zone_of_the_machine_changes_nothing() -> None:
    """Scenarios T09 and T13: through the clock changes of each of them."""
    said = {
        subprocess.run(
            [sys.executable, "-c", HOSTS_ZONE],
            env={**os.environ, "TZ": zone, "PYTHONPATH": str(Path(__file__).parents[4])},
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for zone in ("UTC", "Australia/Sydney", "America/New_York")
    }  # fmt: skip

    assert len(said) == 1 and said.pop().count("zoned") == 100
