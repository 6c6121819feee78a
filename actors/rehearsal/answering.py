"""The other side of the schedulers in a rehearsal: receivers and workers that take as long, and fail as often, as those
of the history did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, Final

from tocsin.actors.actor_host import ActorHost
from tocsin.actors.rehearsal.history import Ended, History
from tocsin.actors.rehearsal.watching import Run
from tocsin.actors.scheduler.model.rows import PULLED
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed
from tocsin.errors import StaleLeaseError

SAID: Final = "as in the history"
EXTEND_S: Final = 30.0
LEASE_MS: Final = 60_000
CLAIM_MOST: Final = 100
CLAIM_WAIT_S: Final = 300.0
EVERY_QUEUE: Final = "*"
ENOUGH: Final = 1_000
"""So many jobs of the queues of an instance are worked on at once where nobody said how many workers there are."""


class Answering:
    """Answers attempts by draws from the history."""

    def __init__(self, history: History, random: Random, runs: Mapping[str, Run], tasks: asyncio.TaskGroup) -> None:
        """`runs` are the attempts under way, by token."""
        self._history, self._random, self._runs, self._group = history, random, runs, tasks
        self._tasks = set[asyncio.Task[None]]()
        self.host: ActorHost

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin something that goes on beside the schedulers, at the latest until `stop`."""
        task = self._group.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """End what goes on."""
        while running := list(self._tasks):
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    def draw(self, token: str) -> Ended:
        run = self._runs[token]
        return self._history.draw(run.path, run.pool, self._random)

    # ---- Callbacks: a `Transport` ------------------------------------------------------------------

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        connect_timeout: float,
        timeout: float,
        max_body: int,
    ) -> Answer:
        """Answer one callback. Work that takes longer than its deadline is accepted, and completed when it ends."""
        token = headers["tocsin-lease"]
        drawn = self.draw(token)
        if drawn.outcome == "unknown":
            await asyncio.sleep(timeout)
            raise DeadlinePassed(SAID)
        if drawn.took_ms >= timeout * 1000:
            self.start(self._work(token, drawn, drawn.took_ms / 1000))
            return Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": str(LEASE_MS)}, b"")
        await asyncio.sleep(drawn.took_ms / 1000)
        return _answer(drawn)

    async def aclose(self) -> None:
        """Close nothing: there are no connections."""

    # ---- Work that is completed --------------------------------------------------------------------

    def finish_what_runs(self, now: int) -> None:
        """Let the attempts go on that ran when the store was copied: their hosts and workers are not here."""
        for token, run in list(self._runs.items()):
            if run.kind in ("fired", "accepted", PULLED):
                drawn = self.draw(token)
                self.start(self._work(token, drawn, max(run.started + drawn.took_ms - now, 0) / 1000))

    async def _work(self, token: str, drawn: Ended, seconds: float) -> None:
        """Work on an attempt, extend its lease meanwhile, and complete it. One that was cancelled ends at that."""
        run = self._runs[token]
        jobs = self.host.scheduler(run.instance)
        try:
            while seconds > EXTEND_S:
                await asyncio.sleep(EXTEND_S)
                await jobs.extend(run.id, token, LEASE_MS)
                seconds -= EXTEND_S
            await asyncio.sleep(seconds)
            if drawn.outcome == "unknown":
                return  # never completed: its lease ends
            ok, refused = drawn.outcome == "done", drawn.outcome == "dead"
            if ok:
                await jobs.complete(run.id, token)
            else:
                charge = refused or drawn.outcome == "failed"
                await jobs.complete(run.id, token, ok=False, error=SAID, retryable=not refused, charge=charge)
        except StaleLeaseError:
            pass  # cancelled, or its lease has ended: its job goes on without it

    async def pull(self, instance: str, queue: str, exclude: tuple[str, ...], workers: int) -> None:
        """Work on the jobs of a queue, so many at once, for ever."""
        jobs, free, room = self.host.scheduler(instance), workers, asyncio.Event()

        def ended(_: object) -> None:
            nonlocal free
            free += 1
            room.set()

        while True:
            while not free:
                room.clear()
                await room.wait()
            most = min(free, CLAIM_MOST)
            claimed = await jobs.claim(queue, max=most, lease_ms=LEASE_MS, wait=CLAIM_WAIT_S, exclude=exclude)
            for one in claimed:
                free -= 1
                drawn = self.draw(one.lease)
                task = self.start(self._work(one.lease, drawn, drawn.took_ms / 1000))
                task.add_done_callback(ended)


class Workers:
    """Starts workers for an instance when the first work for them is seen."""

    def __init__(
        self,
        limits: Mapping[str, int],
        start: Callable[[str, str, tuple[str, ...], int], None],
    ) -> None:
        """`limits`: how many jobs of a queue are worked on at once; `*`: of all queues that are not named."""
        self._limits, self._start, self._served = limits, start, set[str]()

    def seen(self, instance: str, queue: str) -> None:
        """Start the workers of an instance, unless they are at work."""
        if instance in self._served:
            return
        self._served.add(instance)
        named = tuple(name for name in self._limits if name != EVERY_QUEUE)
        for name in named:
            if self._limits[name]:
                self._start(instance, name, (), self._limits[name])
        if self._limits.get(EVERY_QUEUE, ENOUGH):
            self._start(instance, EVERY_QUEUE, named, self._limits.get(EVERY_QUEUE, ENOUGH))


def _answer(drawn: Ended) -> Answer:
    """Return an answer that is judged as that of the history was."""
    match drawn.outcome:
        case "done":
            return Answer(drawn.status or 200, {}, b"")
        case "busy":
            return Answer(drawn.status or 503, {"retry-after": str(-(-drawn.wait_ms // 1000))}, b"")
        case "declined" | "returned":
            return Answer(409, {"tocsin-declined": "1"}, b"")
        case "dead":
            return Answer(drawn.status or 422, {"tocsin-retry": "never"}, b"")
        case _ if drawn.status is None or 200 <= drawn.status <= 299:
            raise BrokenExchange(SAID)
    return Answer(drawn.status, {}, b"")
