"""Users who put jobs off, and whose calls are throttled: many at once, of the same few ids."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from tests.simulation.flow.world import Content, Flow, Player
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import DuplicateScheduleIdError, RequestError

IDS = 2
DEBOUNCE_S, MAX_WAIT_S = 4, 15
TURN_MS = 2_000
"""So long a call may wait for its turn, from which it counts."""
THROTTLE_S = 20
THROTTLED = "THROTTLED"
RETRY = Retry(max_retries=100, base_ms=500, max_ms=4_000)


@dataclass(slots=True)
class Call:
    """One call: when it was asked, and when it was answered; None: nobody heard."""

    n: int
    asked: int
    answered: int | None = None


class PutOff(Player):
    """Debounce: the args of the last call run, and no call waits longer than it was promised."""

    prefix = "put-off:"

    def __init__(self, flow: Flow, instance: str) -> None:
        super().__init__(flow, instance)
        self.calls: dict[str, list[Call]] = defaultdict(list)
        self.ran: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """By id: the call whose args ran, and when its attempt started."""
        self.due: dict[tuple[str, int], int] = {}
        """By id and start: when it was due."""

    async def live(self) -> None:
        for _ in range(self.random.randint(2, 6)):
            job_id = f"off-{self.random.randrange(IDS)}"
            crowd = self.random.choice((1, 1, 3, 12))
            await asyncio.gather(*[self.call(job_id) for _ in range(crowd)])
            await self.pause(0, 0.5, 2, DEBOUNCE_S - 1, DEBOUNCE_S, 9)
        if self.random.random() < 0.4:
            for _ in range(8):  # who never pauses
                await self.call("off-0")
                await asyncio.sleep(DEBOUNCE_S - 1)

    async def call(self, job_id: str) -> None:
        calls = self.calls[job_id]
        call = Call(len(calls), self.now())
        calls.append(call)
        asked = self.jobs.run_debounced(
            DEBOUNCE_S, "put-off:run", {"n": call.n, "id": job_id}, id=job_id, max_wait=MAX_WAIT_S, retry=RETRY
        )
        if await self.heard(asked) is not None:
            call.answered = self.now()

    def starts(self, content: Content) -> None:
        job_id, n = content["args"]["id"], content["args"]["n"]
        self.ran[job_id].append((n, self.now()))
        self.due[job_id, n] = content["scheduledFor"]

    async def receive(self, content: Content) -> Answer:
        await self.pause(0, 0.2, 3)
        return Answer(500, {}, b"again") if self.flow.storm and self.random.random() < 0.2 else Answer(200, {}, b"")

    async def hold(self) -> None:
        for job_id, calls in self.calls.items():
            heard = [call for call in calls if call.answered is not None]
            if heard and self.flow.steps:
                self.must(bool(self.ran[job_id]), f"{job_id} never ran")
            elif heard:
                self._hold(job_id, calls, heard)

    def _hold(self, job_id: str, calls: list[Call], heard: list[Call]) -> None:
        ran = self.ran[job_id]
        asked = [call.asked for call in calls]
        # A call may be overtaken only by one that was asked before its answer came.
        last = heard[-1]
        newest = max((n for n, _ in ran), default=-1)
        rivals = [call.n for call in calls if last.answered is not None and call.asked <= last.answered]
        rivals = [n for n in rivals if n == last.n or (calls[n].answered or self.now()) >= last.asked]
        later = [call.n for call in calls if last.answered is not None and call.asked > last.answered]
        self.must(
            newest in rivals or newest in later or any(n in rivals for n, _ in ran),
            f"the last call {last.n} of {job_id} never ran: {ran}",
        )
        if not self.flow.storm:
            self._is_not_put_off_for_ever(job_id, asked, ran)
        for n, started in ran:
            quiet = started - asked[n]
            self.must(quiet >= DEBOUNCE_S * 1000 or self._was_promised(calls, n, started), f"{job_id}/{n} ran early")

    def _is_not_put_off_for_ever(self, job_id: str, asked: list[int], ran: list[tuple[int, int]]) -> None:
        before = 0
        for n, started in ran:
            due = self.due[job_id, n]
            first = min((at for at in asked if before < at <= due), default=due)
            self.must(due - first <= MAX_WAIT_S * 1000 + TURN_MS, f"{job_id} was put off for {due - first} ms")
            before = started

    def _was_promised(self, calls: list[Call], n: int, started: int) -> bool:
        """Tell whether an earlier call may have been promised that it is not put off any further."""
        return any(started - call.asked >= MAX_WAIT_S * 1000 - 1 for call in calls[: n + 1]) or n != len(calls) - 1


class Throttled(Player):
    """Throttle: no two jobs of an id are due within a period, and a merged call is not lost."""

    prefix = "throttled:"

    def __init__(self, flow: Flow, instance: str) -> None:
        super().__init__(flow, instance)
        self.asked: dict[str, int] = defaultdict(int)
        self.merged: dict[str, int] = {}
        """By id: the highest call that was accepted."""
        self.due: dict[str, dict[int, int]] = defaultdict(dict)
        """By id: when the jobs that ran were due, by call."""
        self.refused = 0

    async def live(self) -> None:
        for _ in range(self.random.randint(2, 6)):
            how = self.random.choice(("refuse", "merge"))
            crowd = self.random.choice((1, 2, 8))
            await asyncio.gather(*[self.call(f"{how}-{self.random.randrange(IDS)}", how) for _ in range(crowd)])
            await self.pause(0, 1, 7, THROTTLE_S)

    async def call(self, job_id: str, how: str) -> None:
        self.asked[job_id] += 1
        n = self.asked[job_id]
        asked = self.jobs.run_after(
            0, "throttled:run", {"n": n, "id": job_id}, id=job_id, throttle=THROTTLE_S, on_throttle=how, retry=RETRY
        )
        try:
            if await self.heard(asked) is not None:
                self.merged[job_id] = max(self.merged.get(job_id, 0), n)
        except DuplicateScheduleIdError:
            self.must(how == "refuse", f"{job_id}: a call that is merged was refused")
        except RequestError as refusal:
            assert refusal.code == THROTTLED, refusal
            self.must(how == "refuse", f"{job_id}: a call that is merged was refused")
            self.refused += 1

    def starts(self, content: Content) -> None:
        self.due[content["args"]["id"]].setdefault(content["args"]["n"], content["scheduledFor"])

    async def receive(self, content: Content) -> Answer:
        await self.pause(0, 0.2, 3)
        return Answer(200, {}, b"")

    async def hold(self) -> None:
        for job_id in self.merged:
            self.must(bool(self.due[job_id]), f"{job_id} was accepted, and never ran")
            if self.flow.steps:
                continue
            dues = sorted(set(self.due[job_id].values()))
            late = (
                3_000 if self.flow.storm else 0
            )  # a call counts from when its turn comes, its job from when it was asked
            for one, other in pairwise(dues):
                apart = other - one
                self.must(apart >= THROTTLE_S * 1000 - late, f"{job_id}: two jobs are due {apart} ms apart")
