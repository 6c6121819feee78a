"""An instance with a test clock, beside the live ones: somebody advances it through some days, over crashes and faults.

Each commit that moves its clock is judged by the rows that it leaves: nothing of the time before is left, nothing was
passed over, and what has begun has begun now. At the end all that was asked for has come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.rows import LeaseRow, decode, lease_key, split_line_tail, split_timer_key
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import ActorError, ConflictError, NotYetError, StoreError
from tocsin.storage.memory import MemoryDisk, MemoryProvider, SortedMap

if TYPE_CHECKING:
    from tests.simulation.origin import Callback
    from tests.simulation.world import World

NAME = "traveller"
ACTOR = f"scheduler/{NAME}"
START_MS = 1_600_000_000_000
HOUR_MS = 3_600_000
DAYS = 3
EVERY_MS = 5 * HOUR_MS
END_MS = START_MS + DAYS * 24 * HOUR_MS
TIMEOUT_MS = 8_000
UNHEARD = (ActorError, StoreError, NotYetError)


class Traveller:
    """The one who advances, the receiver of what comes of it, and the judge of its rows."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.jobs = {f"job-{n}": random.randrange(0, END_MS - START_MS, 1_000) for n in range(random.choice((2, 8)))}
        self.came: Counter[str] = Counter()
        self.slots: set[int] = set()
        self.broken: list[str] = []
        self.moves = 0
        self.asked = False

    # ---- The user --------------------------------------------------------------------------------

    async def live(self) -> None:
        """Ask for all, in this life of the host, and advance part of the way or all of it."""
        while True:
            try:
                await self._travel(self.world.current.scheduler(NAME))
                return
            except UNHEARD:
                await asyncio.sleep(self.random.choice((0.5, 5)))

    async def _travel(self, jobs: Scheduler) -> None:
        state = await jobs.clock.get()
        if state is None:
            state = await jobs.clock.create(START_MS)
        if not self.asked:
            given = [
                Job("work", {"n": n}, at=START_MS + after, options={
                    "id": id, "on_conflict": "keep", "timeout_ms": TIMEOUT_MS, "retry": Retry(max_retries=50),
                })
                for n, (id, after) in enumerate(self.jobs.items())
            ]  # fmt: skip
            await jobs.submit_many(given)
            await jobs.schedules.put(
                "often", every=EVERY_MS / 1000, path="work", args={"n": 0}, misfire="all", overlap="allow",
                timeout_ms=TIMEOUT_MS, retry=Retry(max_retries=50),
            )  # fmt: skip
            self.asked = True
        while state.now < END_MS or state.advancing:
            if not state.advancing:
                by = self.random.choice((0, HOUR_MS, 20 * HOUR_MS, END_MS))
                try:
                    await jobs.clock.start(to=min(state.now + by, END_MS))
                except ConflictError:
                    self.world.note("another advance of the traveller goes on")
            if self.random.random() < 0.1:
                await jobs.clock.freeze()
            state = await jobs.clock.wait(self.random.choice((1, 10, 60)))
        self.world.note(f"the traveller has come to {state.now}")

    # ---- The receiver ----------------------------------------------------------------------------

    def sent(self, content: dict[str, Any]) -> None:
        """A callback leaves: its lease is on disk, and was given where the clock stands."""
        clock, lease = self._clock(self.world.disk.maps[ACTOR]), content["lease"]
        row = self.world.disk.maps[ACTOR].get(lease_key(content["id"], lease))
        if clock is None or row is None:
            return self._fault(f"{content['id']} is sent without a lease or a clock")
        if decode(LeaseRow, b"", row).started != clock.at or content["scheduledFor"] > clock.at:
            self._fault(f"{content['id']}, due {content['scheduledFor']}, is sent at {clock.at}, not when it began")

    async def receive(self, one: Callback) -> Answer:
        storm = self.world.storm_now
        dice = self.random.random() if storm else 1.0
        if dice < 0.05:
            await asyncio.sleep(self.random.choice((2, 30)))
        if dice < 0.2:
            return Answer(500, {}, b"broken")
        if dice < 0.25:
            return Answer(429, {"retry-after": "90"}, b"")
        await asyncio.sleep(self.random.choice((0, 0.05, 1)))
        self.came[one.content["id"]] += 1
        if (planned := one.content.get("schedule")) is not None:
            self.slots.add(planned["slot"])
        self.world.record.runs(one.content)
        return Answer(200, {}, b"")

    # ---- The judge -------------------------------------------------------------------------------

    def moved(self, before: ClockRow | None, rows: SortedMap) -> None:
        """Judge a commit by the rows that it left."""
        after = self._clock(rows)
        if before is None or after is None or after == before:
            if before is not None and after is None:
                self._fault("the clock is gone")
            return
        if after.at == before.at:
            return
        self.moves += 1
        if not before.at < after.at <= (before.target or after.target):
            self._fault(f"the clock went from {before} to {after}")
        for key, value in rows.range(b"lease/", b"lease0", 10_000, False):
            if decode(LeaseRow, key, value).started < after.at:
                self._fault(f"time went on to {after.at} while {key!r} was under way")
        waiting = [split_line_tail(key)[0] for key, _ in rows.range(b"line/", b"line0", 10_000, False)]
        timers = [split_timer_key(key)[0] for key, _ in rows.range(b"timer/", b"timer0", 10_000, False)]
        if left := [ms for ms in waiting + timers if ms < after.at]:
            self._fault(f"time went on to {after.at}, and what was due at {min(left)} was left")

    def _clock(self, rows: SortedMap) -> ClockRow | None:
        value = rows.get(CLOCK)
        return None if value is None else decode(ClockRow, CLOCK, value)

    def _fault(self, what: str) -> None:
        self.broken.append(what)

    async def rows_are_sound(self, disk: MemoryDisk) -> None:
        """Check the invariants beside the host, which is gone."""
        provider = MemoryProvider(disk)
        await provider.start()
        try:
            assert await check(provider.view(ACTOR), disk.wakes.get(ACTOR)) == []
        finally:
            await provider.stop()

    def check(self) -> None:
        """Judge the end: all has come, and a frozen instance has no alarm."""
        assert self.broken == [], self.broken[:3]
        missing = self.jobs.keys() - self.came.keys()
        assert not missing, f"{missing} never came"
        anchor = min(self.slots)
        assert self.slots == set(range(anchor, END_MS + 1, EVERY_MS)), "a slot was passed over"
        assert anchor - START_MS <= EVERY_MS
        if not self.world.storm:
            assert set(self.came.values()) == {1}
        assert self.moves >= len(set(self.jobs.values()))
        assert self.world.disk.wakes[ACTOR] is None, "a frozen instance is rung"


def of_world(world: World) -> Traveller | None:
    """Make one for some worlds. It draws from a source of its own, so that the others are as they were without it."""
    random = Random(repr(world.random.getstate()[1][:4]))
    return Traveller(world, random) if random.random() < 0.3 else None
