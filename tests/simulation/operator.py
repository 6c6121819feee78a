"""Operators, who cancel and retry in bulk, and undo what they and others have done: twice, too late, and at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.errors import ActorError, ConflictError, NotFoundError, StoreError

if TYPE_CHECKING:
    from tests.simulation.instance import Instance

UNHEARD = (ActorError, StoreError)


class Operator:
    """One of them."""

    def __init__(self, instance: Instance, jobs: Scheduler) -> None:
        self.instance, self.random, self.jobs = instance, instance.random, jobs

    async def act(self) -> None:
        """Do something to many jobs, or undo something; now and then two things at one instant."""
        for ledger in self.instance.disk.schedules.ledgers.values():
            ledger.exclusive = False  # what comes back lives beside what started meanwhile
        acts = [self.random.choice((self.cancel_all, self.discard_all, self.retry_all))]
        if self.random.random() < 0.3:
            acts.append(self.undo)
        await asyncio.gather(*[act() for act in acts])
        while self.instance.actions and self.random.random() < 0.75:
            await asyncio.sleep(self.random.choice((0, 0, 0.05, 1, 6, 38, 40, 41)))
            await asyncio.gather(*[self.undo() for _ in range(self.random.choice((1, 1, 2)))])

    async def cancel_all(self) -> None:
        which = self.random.choice(({"pool": "a"}, {"pool": "b"}, {"all": True}))
        await self._done(self.jobs.cancel_all(**which))

    async def discard_all(self) -> None:
        await self._done(self.jobs.dead_cancel_all(all=True))

    async def retry_all(self) -> None:
        await self._done(self.jobs.dead_retry_all(all=True, rate_per_second=self.random.choice((1, 50))))

    async def undo(self) -> None:
        choices = self.instance.actions[-4:]
        if self.random.random() < 0.3:
            try:
                choices = [one.id for one in (await self.jobs.audit(action="schedules.delete", limit=2)).actions]
            except UNHEARD:
                assert self.instance.storm, "nothing failed, yet a caller heard an error"
        if choices:
            await self._done(self.jobs.undo(self.random.choice(choices)))

    async def _done(self, asked: Awaitable[Any]) -> None:
        try:
            answer = await asked
        except (ConflictError, NotFoundError) as refusal:
            self.instance.note(f"refused: {refusal}")
        except UNHEARD:
            assert self.instance.storm, "nothing failed, yet a caller heard an error"
        else:
            action = getattr(answer, "action_id", None) or getattr(answer, "redrive_id", None)
            self.instance.note(f"acted {answer}")
            if action:
                self.instance.actions.append(action)
