"""One scheduler of the simulation: who uses it, and what it has promised. Instances know nothing of each other, and
use the same ids and the same names."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from tests.simulation.crowd import Crowd
from tests.simulation.operator import Operator
from tests.simulation.planner import Planner
from tests.simulation.promises import Promises, Wish
from tests.simulation.pulled import HIGHEST_CAP
from tests.simulation.pullers import QUEUES, Puller, Watch
from tests.simulation.schedules import Watched
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.dispatch.retry import Retry
from tocsin.errors import (
    ActorError,
    DuplicateScheduleIdError,
    InvalidInputError,
    JobFailedError,
    NotFoundError,
    NotYetError,
    StoreError,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

TIMEOUT_MS = 8_000
CALM_S = 130
"""So long schedules go on in good weather before they are stopped."""
UNHEARD = (ActorError, StoreError)
decode = msgspec.json.decode


class Instance:
    """One of them; it lives as long as the world, over the lives of its host."""

    def __init__(self, world: World, name: str, disk: Watched) -> None:
        self.world, self.name, self.disk = world, name, disk
        self.random, self.storm, self.clock, self.weather = world.random, world.storm, world.clock, world.weather
        self.note = world.note
        self.promises = Promises(disk, world.clock)
        self.promises.wishes[0] = Wish(0, "", 0, None, None, may_die=True)  # what follows occurrences
        self.planners = self.users = 0
        """How many there are; of users, in one life of the host."""
        self.pullers = 0
        """Workers; without any there are no queues."""
        self.pullers_made = self.ids = 0
        self.definitions: dict[str, dict[str, Any]] = {}
        """Of schedules, as asked for last."""
        self.claims: dict[int, Puller] = {}
        """Whose claims wait, or are on their way."""
        self.claims_made = 0
        self.operated = self.random.random() < 0.4
        """Operators cancel and retry in bulk, and undo that."""
        self.claims_are_watched = True
        """A claim that waits gets what it may have within an instant."""
        self.crowds = True
        """Users come at one instant, now and then."""
        self.actions: list[str] = []
        self.pausing = False
        """Somebody stops pool a just now: two would not know of each other."""
        disk.pulled.calm, disk.pulled.on_start, disk.pulled.on_done = not self.storm, self.starts, self.is_done
        disk.pulled.on_cancelled = self.is_cancelled
        disk.acts.on_swept, disk.acts.on_restored = self.is_swept, self.is_restored

    @property
    def storm_now(self) -> bool:
        return self.world.storm_now

    @property
    def over(self) -> bool:
        return self.world.over

    def scheduler(self) -> Scheduler:
        """Of the host that lives just now."""
        jobs: Scheduler = self.world.current.scheduler(self.name)
        return jobs

    # ---- In a life of the host -------------------------------------------------------------------

    def begin(self, host: ActorHost, *, first: bool, quiet: bool) -> list[asyncio.Future[None]]:
        """Those who are done before the host stops."""
        jobs = host.scheduler(self.name)
        users: list[asyncio.Future[None]]
        users = [asyncio.ensure_future(self.user(jobs, host)) for _ in range(0 if quiet else self.users)]
        users += [asyncio.ensure_future(Planner(self, jobs).live()) for _ in range(0 if quiet else self.planners)]
        self.pull(jobs, others=first)
        return users

    def crashed(self) -> None:
        self.promises.paused_since = None
        self.pausing = False
        self.promises.crashes += 1

    async def calm_down(self) -> None:
        """The storm is over: nothing is held back any more, and all work is taken by somebody."""
        self.promises.paused_since = None
        await self.scheduler().set_pool("a", paused=False)
        if self.pullers:
            self.world.spare(Puller(self, 0, None, sweeps=True).live())

    async def retire(self) -> None:
        """After some time in good weather."""
        self.disk.schedules.are_on_time(self.clock.now_ms())
        await Planner(self, self.scheduler()).retire()

    # ---- Workers ---------------------------------------------------------------------------------

    def pull(self, jobs: Scheduler, *, others: bool) -> None:
        """Workers in the process of the host, and once the others."""
        if not self.pullers:
            return
        if others and self.claims_are_watched:
            self.world.spare(Watch(self).live())
        for n in range(self.pullers):
            inside = n % 2 == 1
            if inside or others:
                task = asyncio.ensure_future(self.workers(jobs if inside else None))
                task.add_done_callback(self.world.must_not_fail)
                if not inside:
                    self.world.spare(task)

    async def workers(self, jobs: Scheduler | None) -> None:
        """One after the other."""
        while not self.over:
            self.pullers_made += 1
            await Puller(self, self.pullers_made, jobs).live()
            await asyncio.sleep(self.random.choice((0.1, 3)))

    def wish_of(self, job: JobRow) -> Wish | None:
        n = None if job.schedule else decode(parts_of(job, job.args).args)["n"]
        return self.promises.wishes[n] if n else None

    def starts(self, job: JobRow) -> None:
        """Its parent is done."""
        if (wish := self.wish_of(job)) is not None:
            wish.id, wish.accepted = job.id, True
            self.note(f"started {wish.n} after {job.parent}")

    def is_done(self, job: JobRow) -> None:
        wish = self.wish_of(job)
        if wish is not None:
            self.promises.done.add(wish.n)
        if wish is not None and job.queue:
            self.promises.delivered[wish.n] += 1
            self.note(f"done {wish.n}")

    def is_swept(self, job: JobRow) -> None:
        """A bulk action is about to cancel it."""
        if (wish := self.wish_of(job)) is not None:
            self.promises.must_be_operated(self.operated, wish)
            wish.swept = True
            self.note(f"swept {wish.n}")

    def is_cancelled(self, job: JobRow) -> None:
        """It is about to be cancelled. No undo puts it back if it runs."""
        if self.operated and (wish := self.wish_of(job)) is not None:
            wish.swept = True

    def is_restored(self, job: JobRow) -> None:
        """An undo is about to put it back."""
        if job.schedule is not None:
            self.disk.schedules.of(job.schedule.name).exclusive = False
        if (wish := self.wish_of(job)) is not None:
            wish.swept = False
            self.note(f"restored {wish.n}")

    # ---- Users -----------------------------------------------------------------------------------

    async def user(self, jobs: Scheduler, host: ActorHost) -> None:
        for _ in range(self.random.randint(3, 8)):
            await asyncio.sleep(self.random.choice((0, 0, 0.01, 0.5, 2)))
            wish = await self.schedule(jobs)
            if wish.accepted and self.random.random() < 0.2:
                await asyncio.sleep(self.random.choice((0, 0.02, 0.5, 4)))
                await self.cancel(jobs, wish)
                if self.random.random() < 0.5:
                    await self.schedule(jobs, wish.id)  # the id is free at once
            if self.promises.steps and self.random.random() < 0.1:
                self.world.step(self.random.choice((-3_600_000, 3_600_000)))
            await self.operate(jobs, wish)
            if self.crowds and self.random.random() < 0.2:
                await Crowd(self, jobs).come()
            if self.operated and self.random.random() < 0.3:
                await Operator(self, jobs).act()
            await self.world.tally(host)

    async def operate(self, jobs: Scheduler, wish: Wish) -> None:
        """Now and then an operator sets or stops a pool, somebody moves a job, or the origin is away."""
        dice = self.random.random()
        try:
            if dice < 0.06:
                self.promises.lowered.update("ab")
                await jobs.set_pool(self.random.choice("ab"), max_concurrency=self.random.randint(1, HIGHEST_CAP))
            elif dice < 0.10 and not self.pausing:
                self.pausing = True
                await jobs.set_pool("a", paused=True)
                self.promises.paused_since = self.clock.now_ms()
                await asyncio.sleep(self.random.choice((0.1, 3)))
                self.promises.paused_since = None
                await jobs.set_pool("a", paused=False)
                self.pausing = False
            elif dice < 0.16:
                with contextlib.suppress(InvalidInputError):  # it would have expired by then, and stays where it is
                    await jobs.reschedule(wish.id, after=self.random.choice((0, 0.5, 5)))
            elif dice < 0.19 and self.storm:
                self.world.down = True
                await asyncio.sleep(self.random.choice((1, 20)))
                self.world.down = False
        except UNHEARD:
            assert self.storm, "nothing failed, yet a caller heard an error"
        except InvalidInputError as refusal:
            assert "it would never run" in str(refusal), "whoever has this id now expires before that"

    def wish(self, id: str = "") -> tuple[Wish, dict[str, Any]]:
        """Something to be done, and its options."""
        self.world.numbers += 1
        now = self.clock.now_ms()
        may_die = self.random.random() < 0.2
        wish = Wish(
            n=self.world.numbers,
            id=id,
            due=now + self.random.choice((-5, 0, 10, 900, 4000)),
            pool=self.random.choice((None, None, "a", "b")),
            expires=self.random.choice((None, None, None, now + 6_000)),
            may_die=may_die,
        )
        self.promises.wishes[wish.n] = wish
        options = {
            "pool": wish.pool,
            "max_concurrency": 2 if wish.pool == "b" else None,
            "priority": self.random.choice((None, None, 9, -9)),
            "expires_at": wish.expires,
            "timeout_ms": TIMEOUT_MS,
            "retry": Retry(max_retries=1 if may_die else 60, base_ms=500, max_ms=20_000, jitter=0.2),
        }
        if self.pullers:
            options["queue"] = self.random.choice((None, *QUEUES, *QUEUES))
            options["keep_result"] = self.random.choice((None, 7_200))
        return wish, options

    def following(self, levels: int) -> list[Job]:
        """What a `then` may hold."""
        jobs: list[Job] = []
        for _ in range(self.random.choice((0, 1, 1, 2)) if levels else 0):
            wish, options = self.wish()
            options["then"] = self.following(levels - 1)
            jobs.append(
                Job(path="sim:run", args={"n": wish.n}, after=self.random.choice((None, 0.5, 5)), options=options)
            )
        return jobs

    async def wait_for(self, jobs: Scheduler, wish: Wish) -> None:
        """Somebody wants the result."""
        timeout = self.random.choice((None, None, None, 0, 2, 60))
        try:
            result = await jobs.result(wish.id, timeout)
        except JobFailedError as error:
            must, ends = error.details["state"], [how for how, _ in self.disk.pulled.came_to.get(wish.id, [])]
            self.disk.pulled.must(must == "dead" or must in ends, f"{wish.id} is said to be {must}, it is {ends}")
        except NotYetError:
            self.disk.pulled.must(timeout is not None, f"{wish.id} is not awaited for ever")
        except NotFoundError:
            # Its id was free again, and a job that keeps no result has it now.
            again = any(other.id == wish.id and other is not wish for other in self.promises.wishes.values())
            self.disk.pulled.must(wish.may_die or again or self.promises.steps, f"nothing is known of {wish.id}")
        except UNHEARD:
            self.disk.pulled.must(self.storm, "nothing failed, yet a caller heard an error")
        else:
            ends = [decode(told) for how, told in self.disk.pulled.came_to.get(wish.id, []) if how == "done"]
            self.disk.pulled.must(result in ends, f"{wish.id} is said to have come to {result!r}, it came to {ends}")

    async def schedule(self, jobs: Scheduler, id: str | None = None) -> Wish:
        if id is None:
            self.ids += 1  # the same in every instance
        wish, options = self.wish(id or f"job{self.ids}")
        if self.pullers and self.random.random() < 0.4:
            options["then"] = self.following(3)
        try:
            await jobs.run_at(wish.due, "sim:run", {"n": wish.n}, id=wish.id, **options)
        except DuplicateScheduleIdError:
            wish.unsure = True
        except UNHEARD:
            assert self.storm, "nothing failed, yet a caller heard an error"
            wish.unsure = True
        else:
            self.note(f"accepted {wish.n}")
            self.promises.accepted(wish)
            if options.get("keep_result") and (wish.may_die or self.random.random() < 0.6):
                self.world.waiters.append(asyncio.ensure_future(self.wait_for(jobs, wish)))
        return wish

    async def cancel(self, jobs: Scheduler, wish: Wish) -> None:
        wish.may_die = True  # from here on it may be cancelled, though nobody hears of it
        try:
            answer = await jobs.cancel(wish.id)
        except UNHEARD:
            assert self.storm, "nothing failed, yet a caller heard an error"
        else:
            # An attempt that runs already may still arrive; one that does not, never.
            wish.cancelled = answer.cancelled and not answer.was_running
            self.note(f"cancelled {wish.n} {answer.cancelled}")
