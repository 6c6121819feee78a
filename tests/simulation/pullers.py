"""Workers of the simulation: they claim, work, extend, stall, die, answer twice or late, and change their minds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.pulled import Hold
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.line_names import level_in, queue_in
from tocsin.actors.scheduler.model.suspects import ALONE, WORKER_SHARE, level_of, share_of_level, share_of_worker
from tocsin.dispatch.pulled import Claimed, WorkerInfo
from tocsin.errors import ActorError, StaleLeaseError, StoreError

if TYPE_CHECKING:
    from tests.simulation.instance import Instance

QUEUES = ("q1", "q2", "q3")
LOOK_S = 0.5
LOOK_MAX_S = 15.0
LOOKS = 3
LOOKS_OF_STORMS = 40
LOOKS_AFTER = 12
"""A commit that the storm has slowed down may still be under way."""
LOOKS_OF_STEPS = 140
"""A clock that jumps ahead is noticed within a minute."""
T = TypeVar("T")


class Unheard(Exception):
    """Nobody knows what became of the call: its host is gone."""


UNHEARD = (ActorError, StoreError, Unheard)


class Puller:
    """One worker. With `jobs` it lives in the process of the host; without it is another process, and goes on."""

    def __init__(self, instance: Instance, n: int, jobs: Scheduler | None, *, sweeps: bool = False) -> None:
        self.instance, self.random, self.promises = instance, instance.random, instance.disk.pulled
        self.id = f"w{n}"
        self._jobs = jobs
        self._running = True
        self._work: dict[asyncio.Task[None], None] = {}
        self._sweeps = sweeps
        draws = self.random
        everything = sweeps or draws.random() < 0.6
        self.exclude = [] if sweeps or not everything or draws.random() < 0.4 else [draws.choice(QUEUES)]
        self.queues: str | list[str] = "*" if everything else draws.sample(QUEUES, draws.choice((1, 1, 2)))
        self.slots = draws.choice((1, 2, 5))
        self.lease_ms = draws.choice((1_000, 2_000, 5_000, 20_000))
        self.info = WorkerInfo(id=self.id) if sweeps or draws.random() < 0.8 else None
        if everything and self.info:
            self.promises.takes[self.id] = self.takes

    def takes(self, queue: str) -> bool:
        return queue not in self.exclude if self.queues == "*" else queue in self.queues

    @property
    def jobs(self) -> Scheduler:
        return self._jobs or self.instance.scheduler()

    async def live(self) -> None:
        while self._running and not self.instance.over:
            free = self.slots - len(self._work)
            if free <= 0:
                await asyncio.wait(self._work, return_when=asyncio.FIRST_COMPLETED)
                continue
            try:
                got = await self.claim(self.random.randint(1, free))
            except UNHEARD:
                await asyncio.sleep(1)
                continue
            for job in got:
                self.start(job)

    def start(self, job: Claimed) -> None:
        with_id = self.id if self.info else ""
        hold = self.promises.gives(job, with_id, self.instance.clock.now_ms(), steps=self.instance.promises.steps)
        self.instance.note(f"{self.id} has {job.id} attempt {job.attempt}")
        if job.schedule is not None:
            content = {"id": job.id, "schedule": {"name": job.schedule.name, "slot": job.schedule.slot}}
            self.instance.disk.schedules.sent(content, job.webhook_id)
        else:
            wish = self.instance.promises.wishes[job.args["n"]]
            self.promises.must(not wish.cancelled, f"job {wish.n} was given after its cancel was answered")
        task = asyncio.ensure_future(self.work(job, hold))
        self._work[task] = None
        task.add_done_callback(self._worked)
        if self._jobs is None:
            self.instance.world.spare(task)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._work.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.promises.broken.append(f"a worker failed: {error!r}")

    async def claim(self, most: int) -> list[Claimed]:
        wait = 120 if self._sweeps else self.random.choice((0, 0.5, 5, 5, 60, 300))
        patience = self.random.choice((0, 0.001, 0.05, 0.3, 3, 8)) if self.random.random() < 0.15 else None
        claims = self.instance.claims
        self.instance.claims_made += 1
        claims[n := self.instance.claims_made] = self
        try:
            got = await self.call(
                self.jobs.claim(
                    self.queues, max=most, lease_ms=self.lease_ms, wait=wait, worker=self.info, exclude=self.exclude
                ),
                None if self._sweeps else patience,
            )
        finally:
            del claims[n]
        if not got and not wait:
            await asyncio.sleep(self.random.choice((0.05, 0.5, 2)))
        return got or []

    async def call(self, call: Coroutine[Any, Any, T], patience: float | None = None) -> T | None:
        """None: it took too long, and was called off."""
        task = asyncio.ensure_future(call)
        done, _ = await asyncio.wait([task], timeout=patience)
        if not done:
            task.cancel()
            await asyncio.wait([task])
            return None if task.cancelled() else task.result()
        if task.cancelled():
            raise Unheard
        return task.result()

    def die(self) -> None:
        """With all that it holds."""
        self.instance.note(f"{self.id} dies")
        self._running = False
        for task in self._work:
            if task is not asyncio.current_task():
                task.cancel()

    # ---- The work --------------------------------------------------------------------------------

    async def work(self, job: Claimed, hold: Hold) -> None:
        dice = self.random.random() if self.instance.storm_now else 1.0
        if dice < 0.04:
            self.die()
            return
        if dice < 0.08:
            return  # it forgets the job
        if dice < 0.14:
            await asyncio.sleep(self.lease_ms / 1000 + self.random.choice((-0.05, 0, 0.05, 1, 10)))  # it stalls
        elif not await self.take_time(job, hold):
            return
        if job.schedule is not None:
            content = {"id": job.id, "schedule": {"name": job.schedule.name, "slot": job.schedule.slot}}
            self.instance.disk.schedules.delivered(content)
        await self.say(job, hold)

    async def take_time(self, job: Claimed, hold: Hold) -> bool:
        """Renew the lease meanwhile; False if it is lost."""
        left = self.random.choice((0, 0, 0, 0.05, 0.5, 3))
        while left > 0:
            step = min(left, self.lease_ms * 0.4 / 1000)
            await asyncio.sleep(step)
            left -= step
            if left > 0 and not await self.extend(job, hold):
                return False
        return True

    async def extend(self, job: Claimed, hold: Hold) -> bool:
        asked = self.instance.clock.now_ms()
        hold.until = min(hold.until, asked + self.lease_ms)  # an answer that is lost may have been done
        try:
            until = await self.call(self.jobs.extend(job.id, job.lease, self.lease_ms))
        except StaleLeaseError as error:
            if not error.details.get("cancelled"):
                self.promises.refused(hold, self.instance.clock.now_ms(), steps=self.instance.promises.steps)
            return False
        except UNHEARD:
            return True
        hold.until = until or hold.until
        return True

    async def say(self, job: Claimed, hold: Hold) -> None:
        dice = self.random.random() if self.instance.storm_now else 1.0
        may_die = job.schedule is None and self.instance.promises.wishes[job.args["n"]].may_die
        if dice < 0.05:
            await self.settle(job, hold, ok=False, error="broken")
        elif dice < 0.10:
            await self.settle(job, hold, ok=False, charge=False, delay=self.random.choice((None, 0, 0.5, 5)))
        elif dice < 0.13:
            await self.settle(job, hold, ok=False, delay=self.random.choice((0, 2)))
        elif dice < 0.16 and may_die:
            await self.settle(job, hold, ok=False, retryable=False, error="never")
        else:
            times = 2 if self.random.random() < 0.15 else 1
            for n in range(times):
                result = self.random.choice((None, {"of": job.id, "attempt": job.attempt, "time": n}, [n], "x" * 3_000))
                await self.settle(job, hold, ok=True, result=result)
                if self.random.random() < 0.3:
                    await asyncio.sleep(self.random.choice((0.1, 4)))
        if self.random.random() < 0.05:
            await self.meddle(job)

    async def settle(self, job: Claimed, hold: Hold, *, ok: bool, result: Any = None, **how: Any) -> None:
        hold.over = True
        self.promises.says(job.lease, ok, result)
        for _ in range(5):
            try:
                answer = await self.call(self.jobs.settle(job.id, job.lease, ok=ok, result=result, **how))
            except StaleLeaseError:
                self.promises.refused(hold, self.instance.clock.now_ms(), steps=self.instance.promises.steps)
                return
            except UNHEARD:
                await asyncio.sleep(self.random.choice((0.1, 1, 3)))
            else:
                self.promises.settled(hold, ok, answer)
                return

    async def meddle(self, job: Claimed) -> None:
        """A lease that never was, and one of another job, settle nothing."""
        other = self.random.choice([wish for wish in self.instance.promises.wishes.values() if wish.id])
        for id, lease in ((job.id, job.lease[:-1] + "x"), (other.id, job.lease)):
            if id == job.id and lease == job.lease:
                continue
            try:
                await self.call(self.jobs.settle(id, lease, ok=True))
            except (StaleLeaseError, *UNHEARD):
                continue
            self.promises.must(False, f"a lease that is not of {id} settled it")


class Watch:
    """Nobody waits in vain: a claim and a job that fit may stay apart for an instant only."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._apart: dict[tuple[int, bytes], int] = {}
        self._most = 0

    async def live(self) -> None:
        pause = LOOK_S
        while not self.instance.over:
            await asyncio.sleep(pause)
            self.look()
            pause = LOOK_S if self._apart else min(pause * 1.3, LOOK_MAX_S)

    def look(self) -> None:
        instance, promises = self.instance, self.instance.disk.pulled
        startable = list(promises.may_start(instance.clock.now_ms() - 500)) if instance.claims else []
        singly = {queue_in(queue) for queue, _ in startable if level_in(queue) == ALONE}
        most = LOOKS
        if instance.storm:
            most = LOOKS_OF_STEPS if instance.promises.steps else LOOKS_OF_STORMS if instance.storm_now else LOOKS_AFTER
        if most != self._most:  # the weather has changed
            self._most, self._apart = most, {}
        apart: dict[tuple[int, bytes], int] = {}
        for n, worker in instance.claims.items():
            held = [lease for lease in promises.leases.values() if worker.info and lease.host == worker.id]
            alone = any(level_of(lease.at) == ALONE for lease in held)
            share = sum(share_of_worker(lease.at) for lease in held)
            if alone or (held and any(worker.takes(queue) for queue in singly)):
                continue  # it may be the one that is kept free, for as long as its jobs take
            for queue, key in startable:
                if held and share + share_of_level(level_in(queue)) > WORKER_SHARE:
                    continue  # it has its share of suspects
                if worker.takes(queue_in(queue)):
                    times = apart[n, key] = self._apart.get((n, key), 0) + 1
                    promises.must(times < most, f"a claim of {worker.id} waits, and {key!r} may start")
        self._apart = apart
