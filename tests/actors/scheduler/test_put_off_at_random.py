"""Debounced and throttled calls at random instants, over runs that take long, fail and die, cancels and crashes: the
newest args run, in time, and no more often than was said."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import OK, Reply, SimulatedHost, after
from tocsin.actors.testing import simulate
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import DuplicateScheduleIdError, ThrottledError

MAX_WAIT_MS, PERIOD_MS = 20_000, 15_000
ONCE = Retry(max_retries=1, base_ms=3_000)


@dataclass
class Seen:
    """What was asked for under one id, and what was sent: instants in ms."""

    calls: list[tuple[int, int]] = field(default_factory=list)
    """When each accepted call was answered, and its number."""
    cancelled: list[int] = field(default_factory=list)
    """Up to which call was cancelled."""
    starts: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By webhook-id: when its first attempt came, its number and its due instant."""


class Story:
    def __init__(self, sim: SimulatedHost, random: Random) -> None:
        self.sim, self.random, self.n = sim, random, 0
        self.seen: dict[str, Seen] = defaultdict(Seen)
        sim.reply = self.reply

    def reply(self, one: Delivery) -> Reply:
        key, n = one.body["args"]["key"], one.body["args"]["n"]
        seen, now = self.seen[key], self.sim.now
        newest = max((number for at, number in seen.calls if at < now), default=-1)
        assert n >= newest, f"{key}: {n} is sent, and {newest} was asked for after it"
        seen.starts.setdefault(one.webhook_id, (now, n, one.body["scheduledFor"]))
        chance = self.random.random()
        if chance < 0.06:
            return after(self.random.uniform(0, 5), Answer(410, {}, b""))
        return after(self.random.uniform(0, 12), Answer(500, {}, b"") if chance < 0.3 else OK)

    async def call(self, key: str) -> None:
        self.n += 1
        args, options = {"key": key, "n": self.n}, {"id": key, "pool": "p", "max_concurrency": 50, "retry": ONCE}
        options = {**options, **({"labels": ["a", "b"]} if self.random.random() < 0.3 else {})}
        if self.random.random() < 0.05:
            args["long"] = "x" * 100_000
        try:
            await self.ask(key, args, options)
        except ThrottledError as refused:
            assert key[0] == "r" and 0 < refused.details["retryAfterMs"] <= PERIOD_MS
        except DuplicateScheduleIdError as refused:
            assert key[0] == "r" or refused.details["state"] == "dead"
            if refused.details["state"] == "dead":
                await self.sim.jobs.dead_cancel(key)
        else:
            self.seen[key].calls.append((self.sim.now, self.n))

    async def ask(self, key: str, args: dict[str, Any], options: dict[str, Any]) -> None:
        jobs = self.sim.jobs
        if key[0] == "d":
            wait = self.random.uniform(0.5, 6)
            await jobs.run_debounced(wait, "work:run", args, max_wait=MAX_WAIT_MS / 1000, **options)
        else:
            on_throttle = "merge" if key[0] == "m" else "refuse"
            await jobs.run_after(0, "work:run", args, throttle=PERIOD_MS / 1000, on_throttle=on_throttle, **options)

    async def step(self) -> None:
        key = self.random.choice(("d1", "d2", "m1", "m2", "r1"))
        chance = self.random.random()
        if chance < 0.04 and (await self.sim.jobs.cancel(key)).cancelled:
            self.seen[key].cancelled.append(self.n)
        elif chance < 0.06:
            await self.sim.crash()
            await self.sim.open()
        elif chance < 0.65:
            await self.call(key)
        else:
            await self.sim.sleep(self.random.uniform(0, 6))

    def check(self) -> None:
        for key, seen in self.seen.items():
            starts = sorted(seen.starts.values())
            newest = seen.calls[-1][1] if seen.calls else -1
            ran = {n for _, n, _ in starts}
            assert newest in ran or newest <= max(seen.cancelled, default=0), f"{key}: call {newest} was lost"
            dues = sorted(due for _, _, due in starts)
            if key[0] == "d":
                self.check_waits(key, seen, starts)
            else:
                gaps = [later - due for due, later in pairwise(dues)]
                assert all(gap >= PERIOD_MS for gap in gaps), f"{key}: {gaps}"

    def check_waits(self, key: str, seen: Seen, starts: list[tuple[int, int, int]]) -> None:
        before = 0
        for at, n, due in starts:
            gone = max((number for number in seen.cancelled if number < n), default=0)
            first = min((asked for asked, number in seen.calls if asked > before and gone < number <= n), default=at)
            assert due <= first + MAX_WAIT_MS, f"{key}: call {n} is due at {due}, the first came at {first}"
            before = at


@pytest.mark.parametrize("seed", range(4))
def test_the_newest_args_run_in_time_and_no_more_often_than_was_said(seed: int) -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open()
        story = Story(sim, Random(seed))
        for n in range(250):
            await story.step()
            if n % 50 == 0:
                assert await sim.faults() == []
        await sim.sleep(600)
        assert await sim.faults() == []
        story.check()
        rows = await sim.host.runtime.provider.view("scheduler/t").scan(b"later", b"latest", limit=10)
        assert not rows
        await sim.close()

    simulate(seed, main)
