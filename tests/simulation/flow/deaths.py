"""Users whose jobs die, and name what is to follow: once a death, and told of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.simulation.flow.world import Content, Flow, Player
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer

TOLD = Retry(max_retries=100, base_ms=200)
RETRIES = Retry(max_retries=1, base_ms=200, max_ms=400)


class Deaths(Player):
    """What follows a death starts once for each, also over crashes; nothing follows a success."""

    prefix = "deaths:"

    def __init__(self, flow: Flow, instance: str) -> None:
        super().__init__(flow, instance)
        self.asked = 0
        self.accepted: set[int] = set()
        self.followed: dict[int, set[str]] = {}
        """By job: the webhook ids, less the attempt, of what followed its death."""
        self.retried: Counter[int] = Counter()
        self.done: set[int] = set()

    async def live(self) -> None:
        for _ in range(self.random.randint(2, 6)):
            n = self.asked = self.asked + 1
            pool = self.random.choice((None, "deaths"))
            asked = self.jobs.run_after(
                self.random.choice((0, 1)), "deaths:run", {"n": n}, id=f"death-{n}", pool=pool, retry=RETRIES,
                on_dead=[Job(path="deaths:told", args={"n": n}, options={"retry": TOLD})],
            )  # fmt: skip
            if await self.heard(asked) is not None:
                self.accepted.add(n)
            await self.pause(0, 0.5, 4)
            if self.random.random() < 0.3:
                await self.retry()

    async def retry(self) -> None:
        page = await self.heard(self.jobs.dead(limit=5))
        letters = [] if page is None else [one for one in page.records if str(one.function_path) == "deaths:run"]
        if letters:
            n = letters[0].args["n"]
            self.retried[n] += 1  # also if nobody hears: it may be retried
            await self.heard(self.jobs.dead_retry(letters[0].id))

    async def receive(self, content: Content) -> Answer:
        n = content["args"]["n"]
        if content["functionPath"] == "deaths:told":
            told: dict[str, Any] = content["parent"]["dead"]
            self.must(told["reason"] in ("exhausted", "refused", "lost"), f"job {n} died of {told['reason']}")
            self.must(content["parent"]["id"] == f"death-{n}", f"job {n} has another parent: {content['parent']['id']}")
            self.followed.setdefault(n, set()).add(content["id"])
            return Answer(200, {}, b"")
        if n % 3 == 0:
            self.done.add(n)
            return Answer(200, {}, b"")
        return Answer(410 if n % 3 == 1 else 500, {}, b"no")

    async def hold(self) -> None:
        letters = {key.decode().split("/")[1] for key in self.flow.rows(self.instance, b"dead/")}
        for n in range(1, self.asked + 1):
            followed = len(self.followed.get(n, ()))
            is_dead = f"death-{n}" in letters
            if n in self.accepted:
                self.must(is_dead or n in self.done, f"job {n} is lost")
            if is_dead:
                self.must(followed >= 1, f"nothing followed the death of job {n}")
            self.must(followed <= 1 + self.retried[n], f"job {n} died once, and {followed} jobs followed")
            if n in self.done and not self.flow.storm:
                self.must(not followed, f"job {n} succeeded, and its death was told")
