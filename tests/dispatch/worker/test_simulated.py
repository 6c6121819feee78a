"""Workers on a real host in virtual time, over a line that loses and delays, that are killed and stopped: whoever owns
an attempt owns it alone, a pool has no more owners than slots, and every job comes to its end."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost
from tocsin import Context, LeaseLostError, Retry, RetryLater, TerminalError, Worker
from tocsin.actors.scheduler.client.scheduler import port_of
from tocsin.actors.testing import simulate
from tocsin.errors import TocsinError, UnreachableError

JOBS = 40
CAP = 2
ENDS = ("done", "dead", "cancelled")


class Line:
    """A `Source` behind a bad line: what is asked is lost on its way, or its answer is, or it takes its time."""

    def __init__(self, source: Any, random: Random) -> None:
        self._source, self._random = source, random
        self.dead = False
        self.away_until = 0.0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._source, name)

        async def over_the_line(*args: Any, **more: Any) -> Any:
            await self._travel()
            answer = await call(*args, **more)
            await self._travel()
            return answer

        return over_the_line

    async def _travel(self) -> None:
        if self.dead:
            await asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        if self._random.random() < 0.02:
            self.away_until = loop.time() + self._random.choice([1, 5, 30])
        await asyncio.sleep(self._random.choice([0, 0.001, 0.01, 0.3]))
        if loop.time() < self.away_until or self._random.random() < 0.05:
            raise UnreachableError("the line is cut")


class Watch:
    """Who owns what, as handlers see it at each of their steps."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.at_work: dict[Context, str] = {}
        self.faults: list[str] = []
        self.runs = 0

    async def work(self, args: Any, context: Context) -> Any:
        self.runs += 1
        self.at_work[context] = context.pool or ""
        try:
            for _ in range(self.random.randrange(1, 8)):
                self.look()
                await asyncio.sleep(self.random.choice([0, 0.1, 1, 2]))
            return self.end()
        finally:
            del self.at_work[context]

    def end(self) -> Any:
        draw = self.random.random()
        if draw < 0.1:
            raise ValueError("fails")
        if draw < 0.15:
            raise RetryLater(3)
        if draw < 0.2:
            raise TerminalError("never")
        return {"n": draw}

    def look(self) -> None:
        owned = [context for context in self.at_work if owns(context)]
        ids = [context.id for context in owned]
        if len(set(ids)) < len(ids):
            self.faults.append(f"two own one job: {ids}")
        if sum(context.pool == "p" for context in owned) > CAP:
            self.faults.append(f"{ids} of pool p")


def owns(context: Context) -> bool:
    try:
        context.assert_ownership()
    except LeaseLostError:
        return False
    return True


async def run(seed: int, random: Random) -> None:
    sim = SimulatedHost(random)
    await sim.open()
    jobs, watch = sim.jobs, Watch(random)
    ids = [
        await jobs.run_after(
            random.choice([0, 0.5, 5]), "work", n, queue=random.choice(["a", "b"]), keep_result="1d",
            pool="p" if n % 3 == 0 else None, max_concurrency=CAP if n % 3 == 0 else None,
            retry=Retry(max_retries=4, base_ms=500),
        )
        for n in range(JOBS)
    ]  # fmt: skip
    living: list[tuple[Worker, Line, asyncio.Task[None]]] = []

    def hire() -> None:
        line = Line(jobs, random)
        worker = Worker(line, {"work": watch.work}, concurrency=random.choice([1, 3]), lease_ms=4_000, wait=2,
                        clock=sim.clock, random=random)  # fmt: skip
        living.append((worker, line, asyncio.create_task(quietly(worker))))

    for _ in range(3):
        hire()
    for _ in range(25):
        await asyncio.sleep(random.choice([0.2, 1, 3]))
        worker, line, task = living.pop(random.randrange(len(living)))
        how = random.random()
        if how < 0.3:
            line.dead = True  # SIGKILL, or a machine that is gone: nothing of it is heard any more
        elif how < 0.6:
            await worker.stop_and_drain(random.choice([0, 0.5]))
        elif how < 0.8:
            task.cancel()
        else:
            living.append((worker, line, task))
            continue
        hire()
        if how >= 0.5 and random.random() < 0.3:
            await jobs.cancel(random.choice(ids))
    while True:
        states = [(await port_of(jobs).queues.outcome(id, 0)).state for id in ids]
        if all(state in ENDS for state in states):
            break
        await asyncio.sleep(5)
        assert sim.clock.monotonic() < 20_000, (seed, states)
    assert watch.faults == [], seed
    assert watch.runs >= JOBS / 2
    for worker, _, _ in living:
        worker.stop()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if task.get_coro().__name__ == "quietly":  # type: ignore[union-attr]
            task.cancel()
    await asyncio.sleep(60)
    status = await jobs.status()
    assert (status.backlog, status.in_flight) == (0, 0), seed
    await sim.close()
    assert await sim.faults() == []


async def quietly(worker: Worker) -> None:
    try:
        await worker.run()
    except TocsinError:
        return


@pytest.mark.parametrize("seed", range(6))
def test_an_attempt_has_one_owner_whatever_befalls_workers(seed: int) -> None:
    async def main(random: Random) -> None:
        await run(seed, random)

    simulate(seed, main)
