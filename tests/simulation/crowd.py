"""Users who come at one instant: what they ask for stands side by side in line, and shares turns."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from tocsin.actors.scheduler.client.scheduler import Scheduler, port_of
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.transitions.events import Cancel, Submit, SubmitOnce
from tocsin.errors import ActorError, InvalidInputError, StoreError

if TYPE_CHECKING:
    from tests.simulation.instance import Instance
    from tests.simulation.promises import Wish

UNHEARD = (ActorError, StoreError)
NO_RENDERER = -1


class Crowd:
    """Some of them, in one life of the host."""

    def __init__(self, instance: Instance, jobs: Scheduler) -> None:
        self.instance, self.random, self.jobs = instance, instance.random, jobs
        self.id, self.runtime = actor_of(instance.name), instance.world.current.runtime

    async def come(self) -> None:
        """All schedule; then all change what they have, and some take the ids of others."""
        wishes: list[Wish] = []

        async def schedule() -> None:
            wishes.append(await self.instance.schedule(self.jobs))

        await self.at_once(*[schedule() for _ in range(self.random.randint(2, 5))])
        there = [wish for wish in wishes if wish.accepted]
        await self.at_once(*[self.change(wish) for wish in there])

    async def at_once(self, *work: Coroutine[Any, Any, None]) -> None:
        """Do all of this, and now and then something that cannot be done."""
        # A turn for each of them takes its time, which in good weather the short leases of workers do not have.
        fails = (self.instance.storm or not self.instance.pullers) and self.random.random() < 0.3
        others = [self.change_its_mind] * (self.random.random() < 0.5) + [self.fail] * fails
        await asyncio.gather(*work, *[other() for other in others])

    async def change(self, wish: Wish) -> None:
        """Cancel a job, or move it, or ask for another one of its id."""
        dice = self.random.random()
        if dice < 0.3:
            await self.instance.cancel(self.jobs, wish)
        elif dice < 0.5:
            await self.instance.schedule(self.jobs, wish.id)
        elif dice < 0.7:
            try:
                await self.jobs.reschedule(wish.id, after=self.random.choice((0, 0.5, 5)))
            except UNHEARD:
                assert self.instance.storm, "nothing failed, yet a caller heard an error"
            except InvalidInputError as refusal:
                assert "it would never run" in str(refusal), "whoever has this id now expires before that"

    async def change_its_mind(self) -> None:
        """Schedule and cancel in one breath: the cancel stands behind, and finds the job."""
        instance = self.instance
        instance.ids += 1
        wish, _ = instance.wish(f"job{instance.ids}")
        wish.may_die, wish.pool, wish.expires = True, None, None
        job = port_of(self.jobs).checks.wire_job(
            function_path="sim:run", workflow=None, raw_args=msgspec.json.encode({"n": wish.n}), scheduled_for=wish.due,
            delay_ms=None, options={"id": wish.id},
        )  # fmt: skip
        asked = self.runtime.call(self.id, Submit([job])), self.runtime.call(self.id, Cancel(wish.id))
        await asyncio.wait(asked)
        errors = [error for one in asked if (error := one.exception()) is not None]
        assert all(isinstance(error, UNHEARD) for error in errors) and (instance.storm or not errors), errors
        if errors:
            wish.unsure = True
            return
        [scheduled], cancelled = asked[0].result(), asked[1].result()
        wish.unsure = not isinstance(scheduled, Scheduled)
        wish.cancelled = cancelled.cancelled and not cancelled.was_running
        if not wish.unsure and not cancelled.cancelled:
            instance.promises.broken.append(f"{wish.id} was scheduled, and the cancel behind it did not find it")

    async def fail(self) -> None:
        """Send an event that raises: nothing of it is left, and its neighbours notice nothing."""
        try:
            await self.runtime.call(self.id, SubmitOnce((), b"raises", b"", NO_RENDERER))
        except KeyError:
            return
        except UNHEARD:
            assert self.instance.storm, "nothing failed, yet a caller heard an error"
            return
        self.instance.promises.broken.append("an event that cannot be carried out was answered")
