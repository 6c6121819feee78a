"""Users who have the past of a schedule run: again and again, over the same slots, in pieces that they stop."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from tests.simulation.flow.world import PATIENCE_S, Content, Flow, Player
from tocsin.actors.scheduler.model.backfill_rows import BackfillRow
from tocsin.actors.scheduler.model.rows import decode
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import RequestError

NAME: Final = "past"
HALF_HOUR_MS: Final = 1_800_000
HOUR_MS: Final = 3_600_000
LASTING = Retry(max_retries=100, base_ms=200, max_ms=1_000)


class Backfills(Player):
    """Each slot of the past runs once, whoever asks for it how often."""

    prefix = "backfills:"

    def __init__(self, flow: Flow, instance: str) -> None:
        super().__init__(flow, instance)
        self.range: tuple[int, int] | None = None
        """All of it has passed, by any clock, when the schedule is made."""
        self.overlap = self.random.choice(("allow", "skip"))
        self.ran: set[int] = set()

    async def ask(self, asked: Awaitable[Any]) -> Any:
        """Return the answer; None if there was none, or a refusal: the schedule may not be there."""
        try:
            return await self.heard(asked)
        except RequestError:
            return None

    async def live(self) -> None:
        first, last = self.range = self.range or (self.now() - 24 * HOUR_MS, self.now() - 4 * HOUR_MS)
        await self.put()
        for _ in range(self.random.randint(1, 4)):
            start = self.random.randrange(first, last)
            rate = self.random.choice((1, 5, 20))
            begun = await self.ask(self.jobs.schedules.backfill(NAME, start, start + 5 * HOUR_MS, rate_per_second=rate))
            await self.pause(0, 0.3, 2)
            if begun is not None and begun.backfill_id and self.random.random() < 0.3:
                await self.ask(self.jobs.schedules.backfill_stop(NAME, begun.backfill_id))

    async def put(self) -> None:
        asked = self.jobs.schedules.put(
            NAME, "backfills:run", cron="*/30 * * * *", overlap=self.overlap, retry=LASTING, pool="backfills"
        )
        await self.ask(asked)

    async def calm_down(self) -> None:
        """Have all that is left run."""
        first, last = self.range or (0, 0)
        await self.put()
        await self.ended()
        await self.ask(self.jobs.schedules.backfill(NAME, first, last + 5 * HOUR_MS, rate_per_second=10))
        await self.ended()

    async def ended(self) -> None:
        for _ in range(PATIENCE_S):
            known = await self.jobs.schedules.backfills(NAME)
            if all(one.state in ("done", "stopped") for one in known):
                return
            await self.pause(1)
        self.must(False, "a backfill does not end")

    def starts(self, content: Content) -> None:
        self.ran.add(content["schedule"]["slot"])

    async def receive(self, content: Content) -> Answer:
        await self.pause(0, 0.2, 1.5)
        return Answer(500, {}, b"again") if self.flow.storm and self.random.random() < 0.1 else Answer(200, {}, b"")

    async def hold(self) -> None:
        if self.range is None:
            return
        first, last = self.range
        rows = self.flow.rows(self.instance, b"backfill/past/")
        started = sum(decode(BackfillRow, key, value).started for key, value in rows.items())
        slots = set(range(first + -first % HALF_HOUR_MS, last, HALF_HOUR_MS))
        self.must(slots <= self.ran, f"slots never ran: {sorted(slots - self.ran)[:3]}")
        if not self.flow.steps:  # else some later ones may be either's
            past = {slot for slot in self.ran if slot <= last + 4 * HOUR_MS}
            self.must(started == len(past), f"{started} runs were started, of {len(past)} slots")
