"""Users of a pool that has a rate, and of one that cools when its receiver is busy."""

from __future__ import annotations

import asyncio

from tests.simulation.flow.world import Content, Flow, Player
from tocsin.actors.scheduler.model.rows import LeaseRow, decode, lease_key
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer

RETRY = Retry(max_retries=100, base_ms=300, max_ms=2_000)
RATES = (Rate(5, per="2s", burst=3), Rate(3, per="1s"), Rate(7, per="10s", burst=7))
BUSY_S = 6
ALREADY_S = 4.0
"""So long a callback that was on its way may take to leave, where commits are slow."""


class Paced(Player):
    """In no time of `per` more than `limit + burst` start, over crashes and clocks that are set; and all are done."""

    prefix = "paced:"

    def __init__(self, flow: Flow, instance: str) -> None:
        super().__init__(flow, instance)
        self.rate = self.random.choice(RATES)
        self.by_job = self.random.random() < 0.4
        """Each job says the rate, nobody sets the pool."""
        self.asked = 0
        self.accepted: set[int] = set()
        self.done: set[int] = set()
        self.started: dict[str, int] = {}
        """By lease, which is one start: when, on the disk."""
        self.left: dict[str, float] = {}
        """By lease: when its callback left first, on a clock that is never set."""

    async def live(self) -> None:
        if not self.by_job:
            await self.heard(self.jobs.set_pool("paced", rate=self.rate, max_concurrency=self.random.choice((2, 50))))
        for _ in range(self.random.randint(1, 4)):
            await asyncio.gather(*[self.submit() for _ in range(self.random.choice((1, 4, 9)))])
            await self.pause(0, 0.3, 2, 8)

    async def submit(self) -> None:
        n = self.asked = self.asked + 1
        rate = self.rate if self.by_job else None
        asked = self.jobs.run_after(
            self.random.choice((0, 0, 2)), "paced:run", {"n": n}, pool="paced", rate=rate, retry=RETRY
        )
        if await self.heard(asked) is not None:
            self.accepted.add(n)

    async def calm_down(self) -> None:
        if not self.by_job:  # in the storm nobody may have heard
            await self.jobs.set_pool("paced", rate=self.rate)

    def starts(self, content: Content) -> None:
        lease = content["lease"]
        row = self.flow.rows(self.instance, b"lease/").get(lease_key(content["id"], lease))
        self.must(row is not None, f"{content['id']} was sent before its lease was on disk")
        if row is not None:
            self.started.setdefault(lease, decode(LeaseRow, b"", row).started)
        self.left.setdefault(lease, asyncio.get_running_loop().time())

    async def receive(self, content: Content) -> Answer:
        await self.pause(0, 0.1, 1)
        if self.flow.storm and self.random.random() < 0.1:
            return Answer(500, {}, b"again")
        self.done.add(content["args"]["n"])
        return Answer(200, {}, b"")

    async def hold(self) -> None:
        self.must(self.accepted <= self.done, f"jobs {sorted(self.accepted - self.done)} of a rate never ran")
        most = self.rate.limit + self.rate.burst
        if not self.flow.steps:
            for first, count in _crowded(list(self.started.values()), self.rate.per_ms):
                self.must(count <= most, f"{count} started in {self.rate} from {first} on")
            return
        left = [int(at * 1000) for at in self.left.values()]
        slack = int(ALREADY_S * 1000)
        more = most + self.rate.limit * slack // self.rate.per_ms + 1
        for first, count in _crowded(left, self.rate.per_ms):
            self.must(count <= more, f"{count} left in {self.rate} from {first} on, though the clock was set")


def _crowded(instants: list[int], per_ms: int) -> list[tuple[int, int]]:
    """Return for each instant how many are in the time that begins with it."""
    ordered = sorted(instants)
    return [(one, sum(one <= other < one + per_ms for other in ordered)) for one in ordered]


class Cooled(Player):
    """While the pool cools nothing of it starts: few jobs learn that the receiver is busy."""

    prefix = "cooled:"

    def __init__(self, flow: Flow, instance: str) -> None:
        super().__init__(flow, instance)
        self.busy_until = 0.0
        self.told: list[float] = []
        """When it said that it is busy."""
        self.done: set[int] = set()
        self.accepted: set[int] = set()
        self.asked = 0

    async def live(self) -> None:
        await self.heard(self.jobs.set_pool("cooled", cool_on_retry_after="pool", max_concurrency=2))
        for _ in range(self.random.randint(1, 3)):
            if self.random.random() < 0.5:
                self.busy_until = asyncio.get_running_loop().time() + BUSY_S
            for _ in range(self.random.choice((2, 6))):
                n = self.asked = self.asked + 1
                asked = self.jobs.run_after(0, "cooled:run", {"n": n}, pool="cooled", retry=RETRY)
                if await self.heard(asked) is not None:
                    self.accepted.add(n)
            await self.pause(0, 3, 9)

    async def receive(self, content: Content) -> Answer:
        now = asyncio.get_running_loop().time()
        if now < self.busy_until:
            self.told.append(now)
            return Answer(429, {"retry-after": str(BUSY_S)}, b"")
        self.done.add(content["args"]["n"])
        return Answer(200, {}, b"")

    async def hold(self) -> None:
        self.must(self.accepted <= self.done, f"jobs {sorted(self.accepted - self.done)} of a cooled pool never ran")
        if not self.flow.storm:
            for first in self.told:
                again = sum(first <= other < first + BUSY_S - 0.5 for other in self.told)
                self.must(again <= 4, f"{again} jobs learned that the receiver was busy")
