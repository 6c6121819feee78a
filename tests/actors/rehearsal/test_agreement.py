"""A rehearsal of a day agrees with the day itself, within five in a hundred.

The day is lived in virtual time by a host whose callbacks are HTTP requests to an ASGI app. The app measures it: it
counts its requests and those that it serves at once. Lateness is read from the history afterwards.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tests.actors.rehearsal.copies import CALL_MS, DAY_MS, HOUR_MS, MIDNIGHT, DiskLook, a_host
from tocsin import Job
from tocsin.actors.rehearsal.copying import Copy, copy_store
from tocsin.actors.rehearsal.rehearse import Plan, rehearse
from tocsin.actors.rehearsal.report import Late, PoolFound
from tocsin.actors.scheduler.model.rows import HistRow, decode, hist_day
from tocsin.actors.testing import VirtualClock, simulate
from tocsin.dispatch.asgi_transport import AsgiTransport, Message, Receive, Send
from tocsin.storage.api import after
from tocsin.storage.memory import MemoryDisk

SECOND_DAY = MIDNIGHT + DAY_MS
CAPS = {"stripe": 4, "mail": 2}
POOLS = {"charge": "stripe", "mail": "mail", "report": ""}
TOLERANCE = 0.05
SEED = 4


@dataclass
class App:
    """The receiver, which takes its time and fails now and then."""

    random: Random
    clock: VirtualClock
    starts: Counter[int] = field(default_factory=Counter)
    """By hour of the second day."""
    full_ms: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    since: dict[str, int] = field(default_factory=dict)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body: dict[str, Any] = json.loads((await receive())["body"])
        path = body["functionPath"]
        pool = POOLS[path]
        now = self.clock.now_ms()
        if now >= SECOND_DAY:
            self.starts[(now - SECOND_DAY) // HOUR_MS] += 1
        self.serve(pool, 1)
        fails = path == "charge" and self.random.random() < 0.03
        await self.clock.sleep(0.4 if fails else max(self.random.gauss(3, 0.25), 0.5))
        self.serve(pool, -1)
        await send({"type": "http.response.start", "status": 503 if fails else 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def serve(self, pool: str, change: int) -> None:
        """Count requests under way, and for how long they fill their pool."""
        now = self.clock.now_ms()
        if pool in CAPS and self.served[pool] == CAPS[pool]:
            self.full_ms[pool] += max(now - max(self.since[pool], SECOND_DAY), 0)
        self.served[pool] += change
        self.since[pool] = now


@dataclass
class Day:
    """What was measured of the second day."""

    app: App
    late: dict[str, list[int]]
    outcomes: Counter[str]


def lived(seed: int) -> tuple[Copy, Day]:
    """Live two days; return the store as it was between them, and the second one as it was."""

    async def main(random: Random) -> tuple[Copy, Day]:
        disk, clock = MemoryDisk(), VirtualClock(MIDNIGHT)
        app = App(Random(seed), clock)
        async with a_host(disk, clock, AsgiTransport(app), random=random, idle_after_s=1e6) as host:
            jobs = host.scheduler("shop")
            for name, cap in CAPS.items():
                await jobs.set_pool(name, max_concurrency=cap)
            for hour in range(48):
                at = MIDNIGHT + hour * HOUR_MS
                bulk = [Job("charge", at=at + 60_000, options={"pool": "stripe"}) for _ in range(20)]
                alone = [Job("mail", at=at + random.randrange(HOUR_MS), options={"pool": "mail"}) for _ in range(8)]
                await jobs.submit_many([*bulk, *alone])
            await jobs.schedules.put("report", cron="*/10 * * * *", path="report")
            await clock.sleep(DAY_MS / 1000 - 1)
            copy = await copy_store(DiskLook(disk), None, CALL_MS)
            await clock.sleep(DAY_MS / 1000 + 1)
        return copy, measured(disk, app)

    return simulate(seed, main)


def measured(disk: MemoryDisk, app: App) -> Day:
    day = Day(app, {pool: [] for pool in POOLS.values()}, Counter())
    prefix = hist_day(SECOND_DAY // DAY_MS)
    for key, value in disk.maps["scheduler/shop"].range(prefix, after(prefix), 10**9, False):
        row = decode(HistRow, key, value)
        if row.started < SECOND_DAY + DAY_MS:
            day.late[row.ran[1]].append(row.started - row.due)
            day.outcomes[row.outcome] += 1
    return day


def test_a_rehearsal_of_a_day_agrees_with_the_day() -> None:
    copy, day = lived(SEED)
    found = rehearse(copy, Plan(SECOND_DAY, SECOND_DAY + DAY_MS, SEED))

    assert found.attempts_known > 600
    hours = {(one.at - SECOND_DAY) // HOUR_MS: one.fires for one in found.hours}
    assert hours.keys() == day.app.starts.keys() == set(range(24))
    assert found.fires == pytest.approx(day.app.starts.total(), rel=TOLERANCE)
    apart = sum(abs(hours[hour] - count) for hour, count in day.app.starts.items())
    assert apart <= TOLERANCE * found.fires, "hour by hour"
    assert found.outcomes["done"] == pytest.approx(day.outcomes["done"], rel=TOLERANCE)
    pools = {one.name: one for one in found.pools}
    for name in CAPS:
        agree(pools[name], day)


def agree(pool: PoolFound, day: Day) -> None:
    """Compare saturation and lateness of a pool; a tenth of a second is no difference."""
    late = Late.of(day.late[pool.name])
    assert pool.full == pytest.approx(day.app.full_ms[pool.name] / DAY_MS, rel=TOLERANCE, abs=0.00005)
    assert pool.late.p50_ms == pytest.approx(late.p50_ms, rel=TOLERANCE, abs=100)
    assert pool.late.p99_ms == pytest.approx(late.p99_ms, rel=TOLERANCE, abs=100)
