"""Events of a scheduler that share a turn: answers and rows are those of turns of their own, and the cost is one turn.

Every sequence of events runs twice on equal hosts: one event after the other, and all of them in line at one instant.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost
from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.actor.scheduler_actor import SchedulerActor
from tocsin.actors.scheduler.inflight.completions import Batch
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.transitions import events
from tocsin.actors.scheduler.transitions.job import Completion
from tocsin.actors.scheduler.transitions.submit import Answer
from tocsin.actors.testing import simulate
from tocsin.dispatch.retry import Retry

HOUR: Final = 3_600_000
CONFLICTS: Final = ("error", "keep", "replace")
T = actor_of("t")
NUMBERED: Final = rb".[0-9a-f]{16}-[0-9]+"
"""An incarnation, and the byte before it, which may be its length."""
Outcome = tuple[list[Any], dict[bytes, bytes], int | None]


class Stage:
    """A host with what events may meet: jobs that wait, leases of a worker, dead letters."""

    def __init__(self, sim: SimulatedHost) -> None:
        self.sim = sim
        self.leases: dict[str, str] = {}
        self.minted = self.numbers = 0

    async def set(self) -> None:
        jobs, retry = self.sim.jobs, Retry(max_retries=1, base_ms=1_000, jitter=0.5)
        for name in ("dead", "grave", "run", "busy", "last"):
            await jobs.run_at(self.sim.now, "work:run", {"n": name}, id=name, keep_result=60, queue="q", retry=retry)
        claimed = await jobs.claim("q", max=5, lease_ms=HOUR)
        self.leases = {one.id: one.lease for one in claimed}
        for name in ("dead", "grave"):
            await jobs.complete(name, self.leases[name], ok=False, retryable=False)
        await jobs.run_at(self.sim.now + HOUR, "work:run", id="a", labels=["of-a"], pool="p")
        await jobs.run_at(self.sim.now + HOUR, "work:run", id="b", expires_at=self.sim.now + 2 * HOUR)

    # ---- Events ----------------------------------------------------------------------------------

    def job(
        self, job_id: str | None = None, *, after: int = HOUR, conflict: str = "error", args: bytes = b"{}",
        **options: Any,
    ) -> NewJob:  # fmt: skip
        made = self.sim.port.checks.wire_job(
            function_path="work:run", workflow=None, raw_args=args, scheduled_for=self.sim.now + after, delay_ms=None,
            options={"id": job_id, "on_conflict": conflict, **options},
        )  # fmt: skip
        if job_id is None:  # the same in both runs
            self.minted += 1
            made = msgspec.structs.replace(made, job=msgspec.structs.replace(made.job, id=f"m{self.minted:026d}"))
        return made

    def submit(self, *jobs: NewJob) -> Event[Any]:
        return events.Submit(jobs)

    def once(self, key: bytes, body: bytes, *jobs: NewJob) -> Event[Any]:
        self.numbers -= 1  # below the service's own
        self.sim.host._service.renderers._waiting[self.numbers] = _written
        return events.SubmitOnce(jobs, key, body, self.numbers)

    def complete(self, *said: Completion) -> Event[Any]:
        self.numbers -= 1
        batch = Batch(self.numbers)
        for one in said:
            batch.join((one, asyncio.get_running_loop().create_future()))
        self.sim.host._service.inflight("t").completions._batches[self.numbers] = batch
        return events.Complete(self.numbers)

    def said(self, job_id: str, *, ok: bool = True, **more: Any) -> Completion:
        return Completion(job_id, self.leases.get(job_id, "1.2.3"), ok, **more)

    # ---- Both ways -------------------------------------------------------------------------------

    async def run(self, sent: Sequence[Event[Any]], together: bool) -> list[Any]:
        call = self.sim.host.runtime.call
        if together:
            return await asyncio.gather(*[call(T, event) for event in sent], return_exceptions=True)
        return [(await asyncio.gather(call(T, event), return_exceptions=True))[0] for event in sent]


def _written(answers: Sequence[Answer]) -> tuple[int, bytes]:
    return 200, repr(answers).encode()


Script = Callable[[Stage], list[Event[Any]]]


def outcome(script: Script, together: bool, **options: Any) -> tuple[Outcome, list[int]]:
    """What a script came to, and how many events each turn was given that several shared."""
    shared: list[int] = []

    async def main(random: Random) -> Outcome:
        sim = SimulatedHost(random)
        await sim.open(**options)
        stage = Stage(sim)
        await stage.set()
        answers = await stage.run(script(stage), together)
        rows = dict(sim.disk.scan_many(str(T), [(b"", b"\xff", 10_000)], 1 << 30, False)[0])
        wake = sim.disk.wakes[str(T)]
        await sim.close()
        assert await sim.faults() == []
        return [_plain(one) for one in answers], rows, wake

    with pytest.MonkeyPatch.context() as patch:
        plain = SchedulerActor.handle_many

        async def watched(self: SchedulerActor, sharing: Sequence[Any]) -> Sequence[object]:
            shared.append(len(sharing))
            return await plain(self, sharing)

        patch.setattr(SchedulerActor, "handle_many", watched)
        return simulate(11, main), shared


def _plain(answer: Any) -> Any:
    """In a form that can be compared."""
    if isinstance(answer, BaseException):
        return type(answer).__name__, str(answer)
    return [_plain(one) for one in answer] if isinstance(answer, list | tuple) else answer


SCRIPTS: dict[str, Script] = {
    "ids minted and chosen": lambda s: [s.submit(s.job(f"n{n}" if n % 2 else None)) for n in range(8)],
    "several jobs an event": lambda s: [s.submit(*[s.job(f"n{n}-{m}") for m in range(n)]) for n in range(5)],
    "an id taken before, on conflict as asked": lambda s: [
        s.submit(s.job(name, conflict=conflict, after=HOUR + more))
        for name in ("a", "b", "dead", "run", "x")
        for conflict in CONFLICTS
        for more in (0, 5)
    ],
    "an id taken twice within a turn": lambda s: [
        s.submit(s.job("x")), s.submit(s.job("x")), s.submit(s.job("x", conflict="keep")),
        s.submit(s.job("x", after=5_000_000, conflict="replace")), s.submit(s.job("x", conflict="keep")),
    ],
    "an id free again within a turn": lambda s: [
        events.Cancel("a"), s.submit(s.job("a")), events.Cancel("a"), events.Cancel("a"), s.submit(s.job("a")),
    ],
    "moves and cancels of what the turn itself has made": lambda s: [
        s.submit(s.job("x", labels=["l"])), events.Reschedule("x", s.sim.now + 2 * HOUR), events.Cancel("x"),
        events.Reschedule("x", s.sim.now + HOUR), s.submit(s.job("x", pool="p", max_concurrency=3)),
        events.Reschedule("a", s.sim.now + 2 * HOUR), events.Reschedule("run", s.sim.now), events.Cancel("run"),
    ],
    "dead letters": lambda s: [
        events.RetryDead("dead"), events.RetryDead("dead"), events.CancelDead("grave"), events.CancelDead("grave"),
        events.RetryDead("a"), events.Cancel("dead"), s.submit(s.job("dead")), s.submit(s.job("grave")),
    ],
    "completions": lambda s: [
        s.complete(s.said("run")), s.complete(s.said("run"), s.said("busy", ok=False, error="no")),
        s.complete(s.said("nobody")), events.Extend("last", s.leases["last"], 2 * HOUR),
        events.Extend("run", s.leases["run"], 2 * HOUR), s.submit(s.job("run")), s.complete(s.said("run")),
        events.Cancel("last"), s.complete(s.said("last")), s.complete(s.said("busy", ok=False, retryable=False)),
    ],
    "requests with a key": lambda s: [
        s.once(b"k1", b"x", s.job("x")), s.once(b"k1", b"x", s.job("x")), s.once(b"k1", b"y", s.job("y")),
        s.submit(s.job("x")), s.once(b"k2", b"x", s.job("x")), s.once(b"k2", b"x", s.job("z")), s.once(b"k3", b""),
    ],
    "events that end the group": lambda s: [
        s.submit(s.job("w")), s.submit(s.job("x", pool="p")),
        events.SetPool("p", PoolSettings(max_concurrency=2, paused=True)),
        s.submit(s.job("y", pool="p")),
        events.DeletePool("p"), s.submit(s.job("z")), events.CancelMany([("x", "no")]), s.submit(s.job("u")),
        events.CountPaths(), s.submit(*[s.job(f"n{n}") for n in range(40)]), s.submit(s.job("n7")),
    ],
    "an event that raises": lambda s: [
        s.once(b"k", b"x", s.job("o")), s.submit(s.job("x")), events.SubmitOnce([], b"k", b"", 999_999),
        s.submit(s.job("x")), s.submit(s.job("y")), s.once(b"k", b"y", s.job("o")),
    ],
    "nothing": lambda s: [events.ClaimMore(), events.SettleFinished(), events.ClaimMore()],
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_answers_and_rows_are_those_of_turns_of_their_own(name: str) -> None:
    alone, none = outcome(SCRIPTS[name], together=False)
    together, shared = outcome(SCRIPTS[name], together=True)

    assert none == [] and shared != []
    assert together[0] == alone[0]
    assert together[1:] == alone[1:] if name != "an event that raises" else together[1].keys() == alone[1].keys()


def test_a_quota_counts_what_neighbours_have_taken() -> None:
    def script(stage: Stage) -> list[Event[Any]]:
        return [stage.submit(stage.job(f"n{n}")) for n in range(6)] + [events.Cancel("a"), stage.submit(stage.job("z"))]

    alone, _ = outcome(script, together=False, max_jobs=10)
    together, shared = outcome(script, together=True, max_jobs=10)

    assert [one[0][0] for one in together[0][3:6]] == ["QuotaExceededError"] * 3
    assert together == alone and shared == [8]


def test_a_turn_takes_no_more_events_once_it_has_written_much() -> None:
    def large(stage: Stage) -> list[Event[Any]]:
        return [stage.submit(stage.job(f"n{n}", args=b'"%s"' % (b"x" * 50_000))) for n in range(50)]

    def many(stage: Stage) -> list[Event[Any]]:
        return [stage.submit(*[stage.job(f"n{n}-{m}") for m in range(16)]) for n in range(50)]

    assert outcome(large, together=True)[1] == [50, 29, 8]
    assert outcome(many, together=True)[1] == [50, 18]


def test_large_submissions_share_no_turn() -> None:
    def script(stage: Stage) -> list[Event[Any]]:
        many, small = [stage.job(f"n{n}") for n in range(17)], [stage.job(f"s{n}") for n in range(4)]
        long = stage.job("long", args=b'"%s"' % (b"x" * 100_000))
        return [*map(stage.submit, small[:2]), stage.submit(*many), *map(stage.submit, small[2:]), stage.submit(long)]

    assert outcome(script, together=True)[1] == [2, 2]


def test_nothing_shares_a_turn_while_the_instance_is_removed() -> None:
    def script(stage: Stage) -> list[Event[Any]]:
        jobs = [stage.submit(*[stage.job(f"n{n}-{m}") for m in range(100)]) for n in range(5)]
        return [*jobs, events.ErasePage(), *[stage.submit(stage.job(f"late{n}")) for n in range(3)]]

    (answers, rows, _), shared = outcome(script, together=True)
    assert shared == [] and answers[5].more
    assert [one[0] for one in answers[6:]] == ["ConflictError"] * 3
    assert not [key for key in rows if b"late" in key]


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_crash_at_any_step_leaves_all_of_a_shared_turn_or_nothing_and_loses_nothing_answered(steps: int) -> None:
    async def main(random: Random) -> tuple[int, int]:
        sim = SimulatedHost(random)
        await sim.open()
        stage = Stage(sim)
        await stage.set()
        sent = [stage.submit(stage.job(f"n{n}")) for n in range(8)]
        sent[4:4] = [events.Cancel("a"), events.Reschedule("b", sim.now + HOUR + 1)]
        asked = [sim.host.runtime.call(T, event) for event in sent]
        for _ in range(steps):
            await asyncio.sleep(0)
        answered = sum(one.done() and one.exception() is None for one in asked)
        await sim.crash()
        await sim.open()
        there = sum([await sim.jobs.get(f"n{n}") is not None for n in range(8)])
        moved = await sim.jobs.get("b")
        assert moved is not None
        there += (await sim.jobs.get("a") is None) + (moved.scheduled_for == sim.now + HOUR + 1)
        await sim.close()
        assert await sim.faults() == []
        return answered, there

    answered, there = simulate(steps, main)
    assert there in (0, 10) and answered in (0, 10) and answered <= there


@pytest.mark.parametrize("seed", range(40))
def test_any_sequence_comes_to_the_same_either_way(seed: int) -> None:
    def script(stage: Stage) -> list[Event[Any]]:
        random = Random(seed)
        return [_any_event(stage, random) for _ in range(random.choice((3, 12, 60)))]

    alone, _ = outcome(script, together=False)
    together, _ = outcome(script, together=True)

    assert together == alone


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_in_which_events_raise_comes_to_the_same_either_way(seed: int) -> None:
    """But for the numbers in incarnations: those that a turn without a trace has used are not used again."""

    def script(stage: Stage) -> list[Event[Any]]:
        random = Random(seed)
        sent = [_any_event(stage, random) for _ in range(random.choice((3, 12, 40)))]
        told = [event for event in sent if not isinstance(event, events.Complete)]  # a retry draws its delay
        raising = [events.SubmitOnce([], b"raises", b"", 999_999) for _ in range(random.randint(1, 3))]
        for event in raising:
            told.insert(random.randrange(len(told) + 1), event)
        return told

    def without_numbers(came_to: Outcome) -> tuple[list[Any], list[bytes], int | None]:
        answers, rows, wake = came_to
        return (
            answers,
            sorted(re.sub(NUMBERED, b"-", key + b"=" + value, flags=re.S) for key, value in rows.items()),
            wake,
        )

    alone, _ = outcome(script, together=False)
    together, _ = outcome(script, together=True)

    assert without_numbers(together) == without_numbers(alone)
    assert "KeyError" in [one[0] for one in together[0] if isinstance(one, tuple | list) and one]


def _any_event(stage: Stage, random: Random) -> Event[Any]:
    name = random.choice(("a", "b", "x", "y", "dead", "grave", "run", "busy", "last"))
    due = stage.sim.now + random.choice((HOUR, HOUR + 1, 2 * HOUR))
    job = stage.job(
        random.choice((name, name, None)),
        after=random.choice((HOUR, 2 * HOUR)),
        conflict=random.choice(CONFLICTS),
        queue=random.choice((None, "q")),
        pool=random.choice((None, "p")),
        labels=random.choice((None, ["l", "m"])),
        expires_at=random.choice((None, stage.sim.now + 3 * HOUR)),
        keep_result_ms=random.choice((None, 60_000)),
    )
    said = stage.said(name, ok=random.random() < 0.6, retryable=random.random() < 0.5)
    return random.choice((
        lambda: stage.submit(job), lambda: stage.submit(job), lambda: stage.submit(job, stage.job(f"{name}2")),
        lambda: stage.once(random.choice((b"k1", b"k2")), random.choice((b"x", b"y")), job),
        lambda: events.Cancel(name), lambda: events.Reschedule(name, due), lambda: events.RetryDead(name),
        lambda: events.CancelDead(name), lambda: stage.complete(said), lambda: stage.complete(said, stage.said("last")),
        lambda: events.Extend(name, stage.leases.get(name, ""), random.choice((HOUR, 3 * HOUR))),
        lambda: events.SetPool("p", PoolSettings(max_concurrency=random.choice((1, 5)), paused=random.random() < 0.5)),
        lambda: events.ClaimMore(),
    ))()  # fmt: skip
