"""Stores of every layout that a program wrote are opened, read and worked off by this one.

`layouts/` holds one file of each, with a bit of everything: written by the program of that time with `write_store`.
"""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import pytest
from click.testing import CliRunner

from tests.storage.host_on_file import GatedTransport
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.runtime.clock import SystemClock
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.records import Record
from tocsin.actors.scheduler.model.rows import LAYOUT
from tocsin.cli import main
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio

FOLDER: Final = Path(__file__).parent / "layouts"
STORES: Final = sorted(FOLDER.glob("*.db.gz"))
WRITTEN_MS: Final = 1_796_049_560_000
"""When the earliest of them was written; each within a few seconds of it, or later."""
TWO_HOURS_MS: Final = 2 * 3_600_000
FAR_MS: Final = 4_102_444_800_000


class Later(SystemClock):
    """Two hours after the store was written, however long ago that is: leases are over, nothing is too old to keep."""

    def __init__(self) -> None:
        self._ahead = WRITTEN_MS + TWO_HOURS_MS - time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead


def layout_of(store: Path) -> int:
    found = re.fullmatch(r"layout-(\d+)\.db\.gz", store.name)
    assert found is not None, f"{store.name} is to be named by its layout"
    return int(found[1])


def test_there_is_a_store_of_every_layout() -> None:
    assert [layout_of(store) for store in STORES] == list(range(1, LAYOUT + 1)), (
        "a new layout needs a store that the program before it wrote, and one of its own: see write_store.py"
    )


def unpack(store: Path, path: Path) -> None:
    path.write_bytes(gzip.decompress(store.read_bytes()))


async def record_once(jobs: Scheduler, id: str, is_so: Callable[[Record | None], bool]) -> Record | None:
    """The record of a job, once it is so; at most ten seconds."""
    for _ in range(1_000):
        if is_so(record := await jobs.get(id)):
            return record
        await asyncio.sleep(0.01)
    raise AssertionError(f"{id} is {record}")


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
async def test_a_store_of_each_layout_is_read_and_worked_off(store: Path, tmp_path: Path) -> None:
    path, transport, has_queues = tmp_path / "jobs.db", GatedTransport(), layout_of(store) > 1
    unpack(store, path)
    transport.open.clear()
    for again in (False, True):
        async with (
            asyncio.timeout(30),
            ActorHost.open(
                SQLiteProvider(path), origin="http://127.0.0.1:9", insecure=True, transport=transport, clock=Later(),
                drain_s=1.0,
            ) as host,
        ):  # fmt: skip
            jobs = host.scheduler("default")
            if again:
                await _as_it_was_left(jobs)
            else:
                await _as_it_was_written(jobs, has_queues)
                transport.open.set()
                await _worked_off(jobs, transport, has_queues)
    checked = await asyncio.to_thread(CliRunner().invoke, main, ["check", "--store", f"sqlite:///{path}"])

    assert checked.exit_code == 0, checked.output


async def _as_it_was_written(jobs: Scheduler, has_queues: bool) -> None:
    pending, long = cast(Any, await jobs.get("pending")), cast(Any, await jobs.get("long"))
    dead, retrying = cast(Any, await jobs.get("dead")), cast(Any, await jobs.get("retrying"))
    status, daily = await jobs.status(), cast(Any, await jobs.schedules.get("daily"))
    labelled = [one.id for one in (await jobs.list(label="a")).records]
    letters = [one.id for one in (await jobs.dead(label="a")).records]

    assert pending.args == {"n": 1, "sum": Decimal("1.5")}
    assert (pending.scheduled_for, pending.pool, pending.priority, pending.labels) == (FAR_MS, "stripe", 3, ("a", "b"))
    assert pending.retry.max_retries == 2
    assert long.args == {"long": "x" * 100_000}
    assert (dead.state, dead.reason, dead.last_status, dead.args) == ("dead", "refused", 410, {"n": 2})
    assert (retrying.attempts, retrying.last_error.status, retrying.last_error.code) == (1, 500, None)
    assert (labelled, letters) == (["pending"], ["dead"])
    assert [one.outcome for one in await jobs.history("done")] == ["done"]
    assert [one.outcome for one in await jobs.history("cancelled")] == ["cancelled"]
    assert ((await jobs.pool("paused")).paused, (await jobs.pool("paused")).max_concurrency) == (True, 5)
    assert (daily.cron, daily.timezone, daily.pool, daily.args) == ("0 9 * * *", "Europe/Berlin", "stripe", {"n": 7})
    assert cast(Any, await jobs.schedules.get("paused")).paused
    assert status.dead == 1 and status.trouble is None
    assert (await jobs.pending("work:pulled")).count == int(has_queues)
    if has_queues:
        assert await jobs.result("kept", 0) == {"n": 1}


async def _worked_off(jobs: Scheduler, transport: GatedTransport, has_queues: bool) -> None:
    """What was due is delivered, what was running is tried again, the dead one is retried, the chain goes on."""
    assert (await jobs.dead_retry("dead")).retried
    lapsed = cast(Any, await record_once(jobs, "running", lambda one: one is None or one.state != "running"))
    assert (lapsed.attempts, "not completed" in lapsed.last_error.message) == (1, True)
    for id in ("pending", "running"):
        await jobs.reschedule(id, after=0)
    due = {"retrying", "running", "waiting", "dead", "pending"}
    await transport.until(lambda arrived: due <= set(arrived))
    if has_queues:
        await jobs.reschedule("pulled", after=0)
        for args in ({"n": 8}, {"n": 9}):
            [claimed] = await jobs.claim("mail", wait=10)
            assert claimed.args == args
            assert await jobs.complete(claimed.id, claimed.lease, result=args)
        assert await jobs.result("pulled", 0) == {"n": 8}
    for id in due:
        await record_once(jobs, id, lambda one: one is None)
    assert {id for id in transport.arrived if id in due} == due
    put = await jobs.schedules.put("daily", "work:done", {"n": 10}, cron="0 10 * * *", timezone="Europe/Berlin")
    assert put.revision == 2


async def _as_it_was_left(jobs: Scheduler) -> None:
    left = {record.id async for record in jobs.list_all()}
    status = await jobs.status()

    assert {id for id in left if not id.startswith("__")} == {"long"}
    assert (status.dead, status.in_flight) == (0, 0)
    assert (await jobs.history("pending"))[-1].outcome == "done"
