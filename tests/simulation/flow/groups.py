"""Users who count jobs together: what follows starts once, when all have ended, over deaths, retries and cancels."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable
from typing import Any

from tests.simulation.flow.world import PATIENCE_S, Content, Flow, Player
from tocsin.actors.scheduler.client.job_checks import Group, Job
from tocsin.actors.scheduler.model.groups import GroupRow
from tocsin.actors.scheduler.model.rows import decode
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import RequestError

LASTING = Retry(max_retries=100, base_ms=200)
LEASE_S = 30
RETRIES = Retry(max_retries=1, base_ms=200, max_ms=400)


class Groups(Player):
    """Jobs of a few groups at once."""

    prefix = "groups:"

    def __init__(self, flow: Flow, instance: str) -> None:
        super().__init__(flow, instance)
        self.made = 0
        self.members: dict[str, set[int]] = defaultdict(set)
        """By group: those that were accepted, for all that is known."""
        self.done: dict[str, set[int]] = defaultdict(set)
        self.cancelled: set[str] = set()
        self.all_done: dict[str, set[str]] = defaultdict(set)
        """By group: the webhook ids, less the attempt, of what followed; and ..."""
        self.some_died: dict[str, set[str]] = defaultdict(set)
        """... of what followed because some had died."""
        self.calm = False

    async def ask(self, asked: Awaitable[Any]) -> Any:
        """Return the answer; None if there was none, or a refusal: a group may be complete, or was never made."""
        try:
            return await self.heard(asked)
        except RequestError:
            return None

    async def live(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.made += 1
            name = f"group-{self.made}"
            then = [Job(path="groups:all", args={"g": name}, options={"retry": LASTING})]
            died = [Job(path="groups:some", args={"g": name}, options={"retry": LASTING})]
            group: str | Group = Group(name, then=then, on_dead=died)
            if self.random.random() < 0.5 and await self.ask(self.jobs.groups.open(name, then=then, on_dead=died)):
                group = name
            for n in range(self.random.choice((1, 3, 12))):
                await self.join(name, group, n)
                await self.pause(0, 0, 0.4)
            if self.random.random() < 0.2:
                self.cancelled.add(name)
                await self.ask(self.jobs.groups.cancel(name))
            elif self.random.random() < 0.8:
                await self.ask(self.jobs.groups.seal(name))
            await self.retry_the_dead(3)
            await self.pause(0, 1, 6)

    async def join(self, name: str, group: str | Group, n: int) -> None:
        follows = [Job(path="groups:run", args={"g": name, "n": 100 + n}, options={"group": name, "retry": RETRIES})]
        asked = self.jobs.run_after(
            self.random.choice((0, 0.5)), "groups:run", {"g": name, "n": n}, id=f"{name}-{n}", group=group,
            retry=RETRIES, then=follows if n % 4 == 1 else None,
        )  # fmt: skip
        if await self.ask(asked) is not None:
            self.members[name] |= {n, 100 + n} if n % 4 == 1 else {n}

    async def retry_the_dead(self, limit: int) -> None:
        page = await self.ask(self.jobs.dead(limit=limit))
        for one in () if page is None else page.records:
            if str(one.function_path) == "groups:run":
                await self.ask(self.jobs.dead_retry(one.id))

    async def calm_down(self) -> None:
        self.calm = True
        for n in range(1, self.made + 1):
            await self.ask(self.jobs.groups.seal(f"group-{n}"))
        await self.retry_the_dead(100)
        for _ in range(PATIENCE_S // LEASE_S):  # a job that was cancelled while it ran has its lease to the end
            if not self.flow.rows(self.instance, b"lease/group-"):
                break
            await asyncio.sleep(LEASE_S)

    def starts(self, content: Content) -> None:
        name = content["args"]["g"]
        if content["functionPath"] != "groups:all" or self.all_done[name]:
            return
        left = self.members[name] - self.done[name]
        self.must(not left, f"what follows {name} starts before {sorted(left)[:3]} are done")
        told: dict[str, int] = content["parent"]["result"]
        self.must(told["done"] == told["members"] and not told["dead"], f"what follows {name} is told {told}")

    async def receive(self, content: Content) -> Answer:
        name = content["args"]["g"]
        if content["functionPath"] != "groups:run":
            followed = self.all_done if content["functionPath"] == "groups:all" else self.some_died
            followed[name].add(content["id"])
            return Answer(200, {}, b"")
        await self.pause(0, 0.1, 2)
        if not self.calm and self.random.random() < 0.15:
            return Answer(self.random.choice((410, 500)), {}, b"no")
        self.done[name].add(content["args"]["n"])
        return Answer(200, {}, b"")

    async def hold(self) -> None:
        for key, value in self.flow.rows(self.instance, b"group/").items():
            name, row = key.decode().removeprefix("group/"), decode(GroupRow, key, value)
            if not name.startswith("group-"):
                continue
            followed, died = len(self.all_done[name]), len(self.some_died[name])
            self.must(row.state != "open", f"{name} is open: {row}")
            self.must(followed == (row.state == "done"), f"{name} is {row.state}, and {followed} jobs followed")
            self.must(died <= 1 and (died == 1 or row.state != "dead"), f"{name} is {row.state}, {died} were told")
            self.must(row.state != "dead" or row.dead > 0, f"nobody of {name} is dead: {row}")
            self.must(row.state != "cancelled" or name in self.cancelled, f"nobody cancelled {name}")
            if row.state == "done":
                self.must(row.members == row.done >= len(self.members[name]), f"{name} has lost some: {row}")
