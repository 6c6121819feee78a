"""Each change of a job is a line of the log at DEBUG, once it is on disk, and costs nothing where nobody reads it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

import pytest

from tocsin import ActorHost, Job, Retry, Scheduler
from tocsin.actors.scheduler.actor import change_log
from tocsin.actors.scheduler.actor.scheduler_actor import SchedulerActor
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.dispatch.transport import Answer
from tocsin.errors import NotFoundError, StoreError
from tocsin.testing import Delivery, FakeReceiver, FaultyProvider, MemoryDisk, SimNetwork, VirtualClock, simulate

SECRET = "whsec_" + "ZWFjaCBjaGFuZ2Ugb2YgYSBqb2IgaXMgYSBsaW5l"


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.DEBUG:
            self.records.append(record)

    def of(self, job_id: str) -> list[str]:
        """What was said of a job, without its name."""
        found = [one for one in self.records if vars(one).get("id") == job_id]
        return [one.getMessage().partition(") ")[2] for one in found]

    def field(self, name: str) -> list[Any]:
        return [vars(one)[name] for one in self.records if name in vars(one)]

    @property
    def operated(self) -> list[str]:
        return [one.getMessage() for one in self.records if "id" not in vars(one)]


@contextmanager
def reading(level: int = logging.DEBUG) -> Iterator[Lines]:
    lines, before = Lines(), change_log.log.level
    change_log.log.addHandler(lines)
    change_log.log.setLevel(level)
    try:
        yield lines
    finally:
        change_log.log.setLevel(before)
        change_log.log.removeHandler(lines)


class World:
    def __init__(self, random: Random) -> None:
        self.random, self.clock, self.disk = random, VirtualClock(), MemoryDisk()
        self.answers: list[Answer] = []
        self.fault = 0.0
        self.receiver = FakeReceiver([SECRET], now_ms=self.clock.now_ms, answer=self._answer)

    def _answer(self, delivery: Delivery) -> Answer:
        return self.answers.pop(0) if self.answers else Answer(200, {}, b"")

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[Scheduler]:
        async with ActorHost.open(
            FaultyProvider(self.disk, self.random, fault=lambda: self.fault), origin="https://app.example",
            secrets=[SECRET], transport=SimNetwork(self.receiver, self.random), clock=self.clock, random=self.random,
        ) as host:  # fmt: skip
            yield host.scheduler("shop")


def told(story: Callable[[World, Scheduler], Coroutine[Any, Any, None]], level: int = logging.DEBUG) -> Lines:
    async def main(random: Random) -> None:
        world = World(random)
        async with world.scheduler() as jobs:
            await story(world, jobs)

    with reading(level) as lines:
        simulate(1, main)
    return lines


def briefly(said: list[str]) -> list[str]:
    """Return lines without instants and what follows them."""
    return [words.partition(",")[0].partition(" at ")[0] for words in said]


def test_the_life_of_a_job_is_told_line_by_line() -> None:
    async def story(world: World, jobs: Scheduler) -> None:
        world.answers = [Answer(500, {}, b"")]
        await jobs.run_after(0, "mail:send", {"private": 1}, id="a", pool="smtp", retry=Retry(base_ms=60_000))
        await asyncio.sleep(90)

    lines = told(story)
    assert briefly(lines.of("a")) == ["accepted", "started: attempt 1", "retry", "started: attempt 2", "done"]
    assert "HTTP 500" in lines.of("a")[2]
    assert lines.field("change") == ["accepted", "started", "retry", "started", "done"]
    assert lines.field("attempt") == [1, 1, 2, 2]
    assert lines.field("status") == [500]
    assert set(lines.field("instance")) == {"shop"} and set(lines.field("path")) == {"mail:send"}
    assert "private" not in "".join(str(vars(one)) for one in lines.records)


def test_other_ends_and_operators_are_told_of() -> None:
    async def story(world: World, jobs: Scheduler) -> None:
        world.answers = [Answer(500, {}, b"")]
        now = world.clock.now_ms()
        await jobs.run_after(0, "mail:send", id="dies", retry=Retry(max_retries=0))
        await asyncio.sleep(10)
        await jobs.dead_retry("dies")
        await asyncio.sleep(10)
        await jobs.set_pool("smtp", paused=True)
        await jobs.submit_many([Job(path="b", at=now + 90_000, options={"id": f"b{n}"}) for n in range(3)])
        await jobs.run_at(now + 30_000, "c", id="expires", pool="smtp", expires_at=now + 60_000)
        await jobs.reschedule("b0", after="1h")
        await jobs.run_after("1h", "b", id="b1", on_conflict="replace")
        await jobs.cancel("b1")
        await jobs.run_after(0, "work", id="pulled", queue="q")
        [claimed] = await jobs.claim("q")
        await jobs.complete("pulled", claimed.lease)
        await jobs.schedules.put("nightly", "b", cron="0 0 * * *")
        await jobs.schedules.pause("nightly")
        with pytest.raises(NotFoundError):
            await jobs.schedules.pause("another")
        await jobs.schedules.delete("nightly")
        await asyncio.sleep(60)

    lines = told(story)
    assert briefly(lines.of("dies")) == [
        "accepted", "started: attempt 1", "dead: exhausted: HTTP 500", "due", "started: attempt 2", "done",
    ]  # fmt: skip
    assert lines.of("expires")[-1] == "expired: it waited too long"
    assert lines.of("b0")[-1].startswith("due at ")
    assert briefly(lines.of("b1")) == ["accepted", "replaced by a job of its id", "accepted", "cancelled"]
    assert briefly(lines.of("pulled")) == ["accepted", "started: attempt 1 by worker without a name", "done"]
    assert lines.operated == [
        "instance shop: pool smtp: paused", "instance shop: schedule nightly: defined",
        "instance shop: schedule nightly: paused", "instance shop: schedule nightly: deleted",
    ]  # fmt: skip


def test_what_an_undo_puts_back_is_told() -> None:
    async def story(world: World, jobs: Scheduler) -> None:
        await jobs.run_after("1h", "b", id="a")
        cancelled = await jobs.cancel_all(all=True)
        assert cancelled.action_id is not None
        await jobs.undo(cancelled.action_id)

    assert briefly(told(story).of("a")) == ["accepted", "cancelled", "put back by an undo"]


def test_a_lease_that_is_held_on_is_no_start() -> None:
    async def story(world: World, jobs: Scheduler) -> None:
        await jobs.run_after(0, "work", id="a", queue="q")
        [claimed] = await jobs.claim("q")
        await jobs.extend("a", claimed.lease, 60_000)
        await jobs.cancel("a")

    assert briefly(told(story).of("a")) == ["accepted", "started: attempt 1 by worker without a name", "cancelled"]


def test_what_did_not_reach_the_disk_is_not_told() -> None:
    async def story(world: World, jobs: Scheduler) -> None:
        await jobs.run_after("1h", "mail:send", id="before")
        world.fault = 2.0  # each commit is refused
        with pytest.raises(StoreError):
            await jobs.run_after("1h", "mail:send", id="lost")
        world.fault = 0.0
        await jobs.run_after("1h", "mail:send", id="kept")

    lines = told(story)
    assert lines.of("lost") == [] and len(lines.of("kept")) == 1


def test_nothing_is_noted_where_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Turn] = []
    make = SchedulerActor._turn

    def noted(actor: SchedulerActor) -> Turn:
        turns.append(make(actor))
        return turns[-1]

    monkeypatch.setattr(SchedulerActor, "_turn", noted)

    async def story(world: World, jobs: Scheduler) -> None:
        await jobs.run_after(0, "mail:send")
        await asyncio.sleep(10)

    lines = told(story, logging.INFO)
    assert lines.records == [] and turns and all(turn.changes is None for turn in turns)
