"""Users who keep schedules: they define, change, stop, trigger and delete them, also against each other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.dispatch.retry import Retry
from tocsin.errors import ActorError, ConflictError, NotFoundError, StoreError

if TYPE_CHECKING:
    from tests.simulation.instance import Instance

UNHEARD = (ActorError, StoreError)
NAMES = ("hourglass", "owner:bell", "metronome")
STALL_S = 90


class Planner:
    """One of them."""

    def __init__(self, instance: Instance, jobs: Scheduler) -> None:
        self.instance, self.random, self.jobs = instance, instance.random, jobs

    async def live(self) -> None:
        for _ in range(self.random.randint(3, 8)):
            await asyncio.sleep(self.random.choice((0, 0.3, 2, 9, 25)))
            name = self.random.choice(NAMES)
            act = self.random.choice((
                self.put, self.put, self.put, self.pause, self.resume, self.trigger, self.delete, self.make_again,
                self.edit_stale, self.retry_dead,
            ))  # fmt: skip
            try:
                await act(name)
            except NotFoundError:
                pass
            except UNHEARD:
                assert self.instance.storm, "nothing failed, yet a caller heard an error"
            self.disturb()

    def disturb(self) -> None:
        """The clock steps, or the whole process stands still."""
        if self.instance.promises.steps and self.random.random() < 0.2:
            self.instance.world.clock_goes_wrong()
        if self.instance.storm_now and self.random.random() < 0.1:
            self.instance.world.stall(self.random.random() * STALL_S)

    def definition(self) -> dict[str, Any]:
        """Any combination of rule and policies."""
        now = self.instance.clock.now_ms()
        rule = self.random.choice((
            {"every": 3}, {"every": 20}, {"every": 7.5}, {"cron": "*/10 * * * * *"}, {"cron": "* * * * *"},
            {"cron": "*/2 * * * *", "timezone": "Asia/Kolkata"}, {"at": now - 5_000}, {"at": now + 15_000},
        ))  # fmt: skip
        overlap = self.random.choice(("skip", "skip", "queue", "allow"))
        queues = (None, None, "q1", "q2") if self.instance.pullers else (None,)
        then = [Job(path="sim:run", args={"n": 0}, options={"queue": self.random.choice(queues)})]
        return {
            "queue": self.random.choice(queues),
            "then": then if self.instance.pullers and self.random.random() < 0.2 else None,
            **rule,
            "path": "sim:planned",
            "args": {"v": self.random.randrange(1000)},
            "misfire": self.random.choice(("skip", "one", "one", "all")),
            "overlap": overlap,
            "grace": self.random.choice((0, 2, 60)),
            "catch_up_limit": self.random.choice(
                (1, 7, 100) if self.instance.world.far or "every" in rule else (7, None)
            ),
            "jitter": self.random.choice((0, 0, 3)),
            "expires_after": self.random.choice((None, None, None, 4)),
            "pool": self.random.choice((None, None, None, "b")),
            "retry": Retry(max_retries=self.random.choice((0, 2)), base_ms=500, max_ms=5_000),
        }

    async def put(self, name: str) -> None:
        given = self.instance.definitions.get(name) if self.random.random() < 0.25 else None
        given = self.instance.definitions[name] = given or self.definition()
        if given["overlap"] == "allow":
            self.instance.disk.schedules.of(name).exclusive = False
        paused = self.random.choice((None, None, None, True, False))
        made = await self.jobs.schedules.put(name, **given, paused=paused)
        self.instance.note(f"put {name} at {made.revision}")
        if self.random.random() < 0.3:
            again = await self.jobs.schedules.put(name, **given, paused=paused)
            record = await self.jobs.schedules.get(name)
            others = again.revision != made.revision and record is not None and record.args != given["args"]
            leaps = (
                self.instance.promises.steps and self.instance.world.far
            )  # from more than a day ahead a cursor goes back
            if not others and not leaps and "at" not in given and again.revision == made.revision:
                assert list(again.preview) >= list(made.preview), "the same again went back"

    async def make_again(self, name: str) -> None:
        await self.jobs.schedules.delete(name)
        if (given := self.instance.definitions.get(name)) is not None:
            await self.jobs.schedules.put(name, **given)

    async def pause(self, name: str) -> None:
        await self.jobs.schedules.pause(name)

    async def resume(self, name: str) -> None:
        await self.jobs.schedules.resume(name)

    async def delete(self, name: str) -> None:
        await self.jobs.schedules.delete(name, cancel_pending=self.random.random() < 0.5)

    async def edit_stale(self, name: str) -> None:
        """A revision that was never the latest at the time of the call."""
        record = await self.jobs.schedules.get(name)
        if record is None:
            return
        stale = record.revision - 1
        change = self.random.choice(("put", "pause", "delete"))
        try:
            if change == "put":
                await self.jobs.schedules.put(name, **self.definition(), revision=stale)
            elif not await getattr(self.jobs.schedules, change)(name, revision=stale):
                return  # somebody has just deleted it
        except ConflictError:
            return
        if stale or change != "put":  # with 0 it asks for a new one, and somebody may just have deleted this
            self.instance.promises.broken.append(
                f"{change} of {name} at revision {stale} was done, it was at {stale + 1}"
            )

    async def trigger(self, name: str) -> None:
        self.instance.disk.schedules.of(name).exclusive = False
        key = f"key{self.random.randrange(4)}"
        first = await self.jobs.schedules.trigger(name, key)
        again = await self.jobs.schedules.trigger(name, key)
        assert (again.id, again.slot, again.created) == (first.id, first.slot, False)

    async def retry_dead(self, name: str) -> None:
        found = await self.jobs.schedules.occurrences(name)
        for one in found.occurrences:
            if one.state == "dead":
                self.instance.disk.schedules.of(name).exclusive = False
                await self.jobs.dead_retry(one.job_id or "")
                return

    async def retire(self) -> None:
        """The last act: all are stopped, and end what is under way."""
        for name in NAMES:
            with suppress(NotFoundError):
                await self.jobs.schedules.pause(name)
