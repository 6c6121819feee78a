"""`SharedPort`: a scheduler's port that stands on this process while it holds the store, and on the holder else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import msgspec

from tocsin.actors.scheduler.client.port import (
    ChangesPort,
    JobsPort,
    QueuesPort,
    ReadsPort,
    SchedulerPort,
    SchedulesPort,
    Submitted,
)
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.sharing.caller import Caller, Unanswered
from tocsin.actors.sharing.follower import Follower
from tocsin.actors.sharing.operations import OPERATIONS, PARTS, Again, HostPort, Operation
from tocsin.dispatch.refusals import Refusal
from tocsin.errors import HolderLostError, StoreError


class RemotePart:
    """One part of a port; each of its methods is sent as an operation."""

    def __init__(self, caller: Caller, instance: str, who: AskedBy | None = None) -> None:
        self._caller, self._instance, self._who = caller, instance, who


def _method(operation: Operation) -> Any:
    name, values = operation.name, operation.values

    async def call(self: RemotePart, *args: Any, **named: Any) -> Any:
        return await self._caller.ask(name, self._instance, values(args, named), self._who)

    call.__name__, call.__qualname__ = operation.method, operation.name
    return call


@cache
def remote_part(part: str) -> Callable[..., Any]:
    """Return a class with every method of a part of the port."""
    above = RemoteJobs if part == "jobs" else RemotePart
    methods = {
        one.method: _method(one) for one in OPERATIONS.values() if one.part == part and one.method not in vars(above)
    }
    return type(f"Remote{PARTS[part].__name__}", (above,), methods)


class RemoteJobs(RemotePart):
    """Submits jobs with incarnations that are given here, by which the next holder can tell whether the last one
    accepted them."""

    async def submit(self, job: NewJob) -> Scheduled:
        named, sent = self._named(job), False
        while True:
            try:
                answer: Scheduled = await self._caller.ask("jobs.submit", self._instance, [named], again=sent)
                return answer if job.chosen else scheduled(named)
            except Unanswered:
                if (await self._accepted([named]))[0]:
                    return scheduled(named)
                named, sent = again(named), True

    async def submit_many(self, jobs: Sequence[NewJob]) -> Submitted:
        named = [self._named(job) for job in jobs]
        left, sent = named, False
        accepted: set[str] = set()
        while True:
            try:
                said: Submitted = await self._caller.ask("jobs.submit_many", self._instance, [left], again=sent)
                return merged(named, accepted, said)
            except Unanswered:
                known = await self._accepted(left)
                accepted.update(job.job.incarnation for job, is_known in zip(left, known, strict=True) if is_known)
                left, sent = [again(job) for job, is_known in zip(left, known, strict=True) if not is_known], True
                if accepted and not left:
                    return merged(named, accepted, Submitted(()))

    def _named(self, job: NewJob) -> NewJob:
        row = msgspec.structs.replace(job.job, incarnation=self._caller.next_incarnation())
        return msgspec.structs.replace(job, job=row)

    async def _accepted(self, jobs: Sequence[NewJob]) -> Sequence[bool]:
        pairs = [(new.job.id, new.job.incarnation) for new in jobs]
        try:
            known: Sequence[bool] = await self._caller.ask("host.accepted", "", [self._instance, pairs])
        except StoreError as error:
            raise HolderLostError(
                "whoever was to accept this went away before it answered, and the store cannot be asked whether it did:"
                " submit it again with an id of your own and on_conflict='keep'",
                mayRepeat=False,
            ) from error
        return known


async def submit_again(
    method: str, port: JobsPort, host: HostPort, instance: str, given: NewJob | Sequence[NewJob]
) -> Scheduled | Submitted:
    """Do a submission that may have been done before, where its scheduler is: what was accepted stays as it is."""
    jobs = [given] if isinstance(given, NewJob) else given
    known = await host.accepted(instance, [(new.job.id, new.job.incarnation) for new in jobs])
    accepted = {new.job.incarnation for new, is_known in zip(jobs, known, strict=True) if is_known}
    left = [again(new) for new in jobs if new.job.incarnation not in accepted]
    if isinstance(given, NewJob):
        return scheduled(given) if accepted else await port.submit(left[0])
    return merged(jobs, accepted, await port.submit_many(left) if left or not jobs else Submitted(()))


async def run_once(operation: Operation, port: Any, instance: str, values: Sequence[Any], op: str) -> Any:
    """Do an operation where its scheduler is. With an operation id it may have come before: what notes such ids does by
    `port`, and submissions are looked up, at last: nobody but this process accepts them any more."""
    if op and operation.again is Again.LOOKED_UP:
        return await submit_again(operation.method, port.jobs, port.host, instance, values[0])
    return await operation.run(port, values)


def merged(jobs: Sequence[NewJob], accepted: Collection[str], said: Submitted) -> Submitted:
    """Return the answer to jobs of which some, by incarnation, were accepted before, and the others only now."""
    stored = iter(said.accepted)
    answers: list[Scheduled] = []
    refused: dict[int, Refusal] = {}
    n = 0
    for place, new in enumerate(jobs):
        if new.job.incarnation in accepted:
            answers.append(scheduled(new))
            continue
        if n in said.refused:
            refused[place] = said.refused[n]
        else:
            answer = next(stored)
            answers.append(answer if new.chosen else scheduled(new))
        n += 1
    return Submitted(answers, refused)


def again(new: NewJob) -> NewJob:
    """Return a job that is submitted a second time. Nobody else has an id that was minted for it, so whatever has the
    id is this job."""
    return new if new.chosen else msgspec.structs.replace(new, chosen=True, on_conflict="keep")


def scheduled(new: NewJob) -> Scheduled:
    return Scheduled(new.job.id, new.job.scheduled_for, True)


class SharedPort:
    """One scheduler, wherever its store is. Handles hold it from before a take-over to after it: what it stands on
    changes beneath them."""

    jobs: JobsPort
    changes: ChangesPort
    reads: ReadsPort
    queues: QueuesPort
    schedules: SchedulesPort

    def __init__(self, here: SchedulerPort, follower: Follower) -> None:
        self.name, self.checks = here.name, here.checks
        self._here, self._follower = here, follower
        here.checks.ask_elsewhere(follower.holder_has_origin)
        self.stand_here()

    def stand_here(self) -> None:
        """Call this process: it holds the store, or is not open."""
        here = self._here
        self.jobs, self.changes, self.reads = here.jobs, here.changes, here.reads
        self.queues, self.schedules = here.queues, here.schedules

    def part_for(self, here: SchedulerPort, part: str, who: AskedBy) -> Any:
        """Return a part for one who asks: that of `here`, or of the holder, as the others stand now."""
        if self.changes is self._here.changes:
            return getattr(here, part)
        return remote_part(part)(self._follower, self.name, who)

    def stand_there(self) -> None:
        """Send every call to the holder, or have it wait for one."""
        for part in ("jobs", "changes", "reads", "queues", "schedules"):
            setattr(self, part, remote_part(part)(self._follower, self.name))

    def asked_by(self, who: AskedBy) -> SchedulerPort:
        """Return the same scheduler, whose audit log names `who` for what is changed through it."""
        return AskedShared(self, self._here.asked_by(who), who)


class AskedShared:
    """A `SharedPort` for one who asks, wherever the store is when it is called."""

    def __init__(self, shared: SharedPort, here: SchedulerPort, who: AskedBy) -> None:
        self.name, self.checks = shared.name, shared.checks
        self._shared, self._here, self._who = shared, here, who

    @property
    def jobs(self) -> JobsPort:
        return self._shared.jobs

    @property
    def reads(self) -> ReadsPort:
        return self._shared.reads

    @property
    def queues(self) -> QueuesPort:
        return self._shared.queues

    @property
    def changes(self) -> ChangesPort:
        changes: ChangesPort = self._shared.part_for(self._here, "changes", self._who)
        return changes

    @property
    def schedules(self) -> SchedulesPort:
        schedules: SchedulesPort = self._shared.part_for(self._here, "schedules", self._who)
        return schedules

    def asked_by(self, who: AskedBy) -> SchedulerPort:
        """Return it for another one."""
        return self._shared.asked_by(who)
