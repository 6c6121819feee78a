"""Targets of a drain: a scheduler of this process, or whatever has the same two methods.

The answer to a batch is committed with its effect and given again for 24 hours, so a batch is submitted as often as it
takes. For older ones a scheduler still knows most of what became of their jobs.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from tocsin.actors.outbox.job_text import new_job
from tocsin.actors.scheduler.client.scheduler import Scheduler, port_of
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.transitions.idempotency import damaged_answer
from tocsin.actors.scheduler.transitions.kept_answers import Refused as Refused
from tocsin.actors.scheduler.transitions.kept_answers import RowAnswers
from tocsin.errors import SettingsError, TocsinError

CHECKED_AT_ONCE: Final = 64 * 1024
"""Bytes of a batch between two looks at what else waits."""


Answers = Mapping[str, Refused | None]
"""By row: why its job was refused, or None: it is accepted. A row that is missing was not answered."""


class Target(Protocol):
    """One instance, as a drain needs it."""

    name: str

    async def submit_batch(self, jobs: Sequence[tuple[str, str]], key: str) -> Answers:
        """Submit these jobs (row id and text) in one commit, once: the same `key` gets the first answer again for 24
        hours. Raises whatever is not the fault of one of them: then nothing was done, or the next call tells."""
        ...

    async def knows(self, job_id: str, since: int | None) -> bool:
        """Return whether it has a job of that id, or remembers how one ended; `since`: only one made or ended at that
        instant (epoch ms) or later."""
        ...


@runtime_checkable
class Targets(Protocol):
    """An `ActorHost`, or an `OutboxClient`: has a scheduler for every instance. A handle costs nothing until used."""

    def scheduler(self, name: str = ...) -> Scheduler | Target: ...


def target_of(jobs: object) -> Scheduler | Target | Targets:
    """Return what a drain was given, without the wrapping in which a `SyncLab` hands it out. SettingsError for what
    takes no batches, before a row is put into one."""
    given: Any = getattr(jobs, "__wrapped__", jobs)
    if isinstance(given, Scheduler):
        return given
    if callable(getattr(given, "scheduler", None)):
        if _takes_batches(given.scheduler("default")):
            many: Targets = given
            return many
    elif isinstance(getattr(given, "name", None), str) and _takes_batches(given):
        one: Target = given
        return one
    raise SettingsError(
        "jobs must be a Scheduler, an ActorHost, a Client or an OutboxClient, or have `submit_batch` and `knows`, not "
        f"{type(given).__name__}"
    )


def _takes_batches(one: object) -> bool:
    """Return whether this is one instance, as a drain needs it."""
    methods = (getattr(one, "submit_batch", None), getattr(one, "knows", None))
    return isinstance(one, Scheduler) or all(callable(method) for method in methods)


class SchedulerTarget:
    """A `Scheduler` handle as a target."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.name, self._port = scheduler.name, port_of(scheduler)

    async def submit_batch(self, jobs: Sequence[tuple[str, str]], key: str) -> Answers:
        answers: dict[str, Refused | None] = {}
        good: list[tuple[str, NewJob]] = []
        size = 0
        for row, text in jobs:
            size += len(text)
            if size >= CHECKED_AT_ONCE:
                size = 0
                await asyncio.sleep(0)
            try:
                good.append((row, new_job(self._port.checks, self.name, text)))
            except TocsinError as error:
                answers[row] = Refused.by(error)
            except Exception as error:  # a fault of ours in reading one of them must not keep the others back
                answers[row] = Refused(TocsinError.code, f"it cannot be read: {type(error).__name__}", True)
        if good:
            _, kept = await self._port.jobs.submit_once(
                [job for _, job in good],
                key=_digest(f"outbox {key}"),
                body=_digest(key),
                form=RowAnswers([row for row, _ in good]),
            )
            # By row: at the first time more of them, or fewer, may have passed the checks.
            try:
                answers.update(_answers.decode(zlib.decompress(kept)))
            except (zlib.error, msgspec.MsgspecError) as error:
                raise damaged_answer() from error
        return answers

    async def knows(self, job_id: str, since: int | None) -> bool:
        record = await self._port.reads.get(job_id)
        if record is not None and (since is None or record.enqueued_at >= since):
            return True
        attempts = await self._port.reads.history(job_id)  # after the look at the job: it may end in between
        return any(since is None or attempt.ended >= since for attempt in attempts)


_answers: Final = msgspec.json.Decoder(dict[str, Refused | None])


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
