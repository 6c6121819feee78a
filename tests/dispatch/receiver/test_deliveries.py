"""Deliveries that come twice, overlap, are cut off or cancelled: a job runs once, and no claim is stranded."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.dispatch.receiver.signed_callbacks import NOW_MS, ReceiverFixture, error
from tocsin import Accepted, MemoryDedup, NoDedup, Received, SQLiteDedup
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.outcome import classify
from tocsin.dispatch.receiver.dedup import Claim, Dedup, Found
from tocsin.dispatch.transport import Answer
from tocsin.errors import StoreFull

pytestmark = pytest.mark.anyio


def verdict(answer: Answer) -> Verdict:
    return classify(answer, NOW_MS).verdict


class Gate:
    """A handler that says when it has begun and goes on when it is let."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.runs: list[str] = []

    async def __call__(self, args: Any, job: Received) -> None:
        self.runs.append(job.lease)
        self.begun.set()
        await self.go.wait()


async def test_a_job_that_was_done_is_not_run_again(dedup: Dedup) -> None:
    fixture, runs = ReceiverFixture(dedup), list[int]()
    fixture.receiver.register({"invoices:send": runs.append})

    answers = [await fixture.send(n) for n in range(3)]

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert runs == [0]
    fixture.clock.forward(23 * 3600)
    assert (await fixture.send(3)).status == 200 and runs == [0]
    assert (await fixture.send(4, incarnation="i2")).status == 200
    assert runs == [0, 4], "its id was used again: another job"


async def test_one_attempt_repeated_by_the_network_runs_once_even_if_it_failed(dedup: Dedup) -> None:
    fixture, runs = ReceiverFixture(dedup), list[int]()

    @fixture.receiver.handler("invoices:send")
    async def send(args: int) -> None:
        runs.append(args)
        raise ValueError

    first, second = fixture.scheduler.request(1), fixture.scheduler.request(2)

    assert (await fixture.receiver.handle(*first)).status == 500
    assert verdict(await fixture.receiver.handle(*first)) is Verdict.DECLINED
    assert (await fixture.receiver.handle(*second)).status == 500
    assert runs == [1, 2]


async def test_an_attempt_that_arrives_after_a_later_one_is_not_run(dedup: Dedup) -> None:
    fixture, runs = ReceiverFixture(dedup), list[int]()

    @fixture.receiver.handler("invoices:send")
    async def send(args: int) -> None:
        runs.append(args)
        raise ValueError

    late = fixture.scheduler.request(1)
    fixture.clock.forward(30)
    await fixture.send(2)

    assert verdict(await fixture.receiver.handle(*late)) is Verdict.DECLINED
    assert runs == [2]


async def test_a_delivery_while_another_is_at_work_is_declined_and_costs_no_attempt(dedup: Dedup) -> None:
    fixture, gate = ReceiverFixture(dedup), Gate()
    fixture.receiver.register({"invoices:send": gate})
    first = asyncio.create_task(fixture.send())
    await gate.begun.wait()

    second = await fixture.send()

    assert (second.status, second.headers["tocsin-declined"], verdict(second)) == (409, "1", Verdict.DECLINED)
    gate.go.set()
    assert (await first).status == 200
    assert (await fixture.send()).status == 200
    assert len(gate.runs) == 1


async def test_a_claim_goes_stale_and_its_late_holder_changes_nothing(dedup: Dedup) -> None:
    fixture = ReceiverFixture(dedup)
    gates = [Gate(), Gate()]
    fixture.receiver.register({"invoices:send": lambda args, job: gates[args](args, job)})
    hung = asyncio.create_task(fixture.send(0))
    await gates[0].begun.wait()
    fixture.clock.forward(15 * 60 - 1)
    assert verdict(await fixture.send(1)) is Verdict.DECLINED
    fixture.clock.forward(1)
    taken_over = asyncio.create_task(fixture.send(1))
    await gates[1].begun.wait()

    gates[0].go.set()
    assert (await hung).status == 200, "it did its work, though too late to be on record"
    assert verdict(await fixture.send(1)) is Verdict.DECLINED, "the new holder's claim stands"

    gates[1].go.set()
    assert (await taken_over).status == 200


async def test_a_claim_lasts_as_long_as_the_scheduler_waits(dedup: Dedup) -> None:
    fixture, gate = ReceiverFixture(dedup), Gate()
    fixture.receiver.register({"invoices:send": gate})
    first = asyncio.create_task(fixture.send(timeout_ms=3_600_000))
    await gate.begun.wait()

    fixture.clock.forward(3_600 + 14)
    assert verdict(await fixture.send()) is Verdict.DECLINED
    gate.go.set()
    await first


async def test_accepted_work_declines_until_its_lease_lapses(dedup: Dedup) -> None:
    fixture = ReceiverFixture(dedup)
    fixture.receiver.register({"invoices:send": lambda args: Accepted(60_000)})

    assert (await fixture.send()).status == 202
    fixture.clock.forward(59)
    assert verdict(await fixture.send()) is Verdict.DECLINED
    fixture.clock.forward(1)
    assert (await fixture.send()).status == 202


async def test_a_caller_that_leaves_stops_no_handler(dedup: Dedup) -> None:
    fixture, gate = ReceiverFixture(dedup), Gate()
    fixture.receiver.register({"invoices:send": gate})
    caller = asyncio.create_task(fixture.send())
    await gate.begun.wait()
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()

    gate.go.set()
    await asyncio.wait(fixture.receiver._deliveries.running)
    assert (await fixture.send()).status == 200
    assert len(gate.runs) == 1


async def test_cancelled_at_every_step_a_claim_is_given_up(tmp_path: Path) -> None:
    """As when the event loop ends: whatever it was doing, the next attempt runs."""
    for step in range(40):
        fixture = ReceiverFixture(SQLiteDedup(tmp_path / f"{step}.db"))

        @fixture.receiver.handler("invoices:send")
        async def send(args: Any) -> None:
            for _ in range(args):
                await asyncio.sleep(0)

        caller = asyncio.create_task(fixture.send(10))
        for _ in range(step):
            await asyncio.sleep(0.0002)
        tasks = set(fixture.receiver._deliveries.running)
        for task in tasks:
            task.cancel()
        await asyncio.wait([caller])
        assert caller.result().status in (200, 503)
        assert (await fixture.send(0)).status == 200
        await fixture.receiver.aclose()


async def test_a_stop_waits_for_handlers_then_cancels_them_and_their_callers_come_again(dedup: Dedup) -> None:
    fixture, quick, slow = ReceiverFixture(dedup), Gate(), Gate()
    fixture.receiver.register({"quick": quick, "slow": slow})
    first = asyncio.create_task(fixture.send(id="a", function_path="quick"))
    second = asyncio.create_task(fixture.send(id="b", function_path="slow"))
    await quick.begun.wait()
    await slow.begun.wait()
    stopping = asyncio.create_task(fixture.receiver.aclose(drain_s=0.05))
    await asyncio.sleep(0)
    refused = await fixture.send(id="c", function_path="quick")
    quick.go.set()
    await stopping

    assert verdict(refused) is Verdict.BUSY
    assert (await first).status == 200
    assert verdict(await second) is Verdict.BUSY, "not charged, and soon again"


async def test_a_stop_waits_for_what_runs_in_threads_and_it_is_on_record(tmp_path: Path) -> None:
    fixture = ReceiverFixture(SQLiteDedup(tmp_path / "dedup.db"))
    begun, go = threading.Event(), threading.Event()

    @fixture.receiver.handler("invoices:send")
    def send(args: Any) -> None:
        begun.set()
        go.wait(10)

    caller = asyncio.create_task(fixture.send())
    await asyncio.to_thread(begun.wait, 10)
    stopping = asyncio.create_task(fixture.receiver.aclose(drain_s=0))
    await asyncio.sleep(0.02)
    assert not stopping.done()
    go.set()
    await stopping

    assert (await caller).status == 200
    next_start = SQLiteDedup(tmp_path / "dedup.db")
    assert await next_start.claim(Claim("job-1:i1", "7.9.x", NOW_MS, 2 * NOW_MS), now_ms=NOW_MS) is Found.DONE
    await next_start.aclose()


class Failing(MemoryDedup):
    """A store whose disk is full for some calls."""

    def __init__(self, *failing: str) -> None:
        super().__init__()
        self.failing = set(failing)

    async def claim(self, claim: Claim, *, now_ms: int) -> Found:
        if "claim" in self.failing:
            raise StoreFull("the disk is full")
        return await super().claim(claim, now_ms=now_ms)

    async def finish(self, webhook_id: str, lease: str, *, now_ms: int, answer: bytes | None = None) -> bool:
        if "finish" in self.failing:
            raise StoreFull("the disk is full")
        return await super().finish(webhook_id, lease, now_ms=now_ms, answer=answer)

    async def release(self, webhook_id: str, lease: str, *, now_ms: int) -> bool:
        if "release" in self.failing:
            raise StoreFull("the disk is full")
        return await super().release(webhook_id, lease, now_ms=now_ms)


async def test_without_its_store_nothing_is_run_and_nobody_is_charged() -> None:
    fixture, runs = ReceiverFixture(Failing("claim")), list[int]()
    fixture.receiver.register({"invoices:send": runs.append})

    answer = await fixture.send()

    assert verdict(answer) is Verdict.BUSY
    assert error(answer)["code"] == "UNAVAILABLE" and runs == []


async def test_work_that_is_done_is_answered_as_done_even_if_that_cannot_be_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = ReceiverFixture(Failing("finish"))
    fixture.receiver.register({"invoices:send": lambda args: None})

    assert (await fixture.send()).status == 200
    assert "job-1:i1" in caplog.text
    assert verdict(await fixture.send()) is Verdict.DECLINED, "until the claim lapses: better late than twice"


async def test_a_claim_that_cannot_be_given_up_lapses() -> None:
    fixture = ReceiverFixture(Failing("release"))

    assert (await fixture.send()).status == 404
    assert verdict(await fixture.send()) is Verdict.DECLINED
    fixture.clock.forward(15 * 60)
    assert (await fixture.send()).status == 404


async def test_without_dedup_every_delivery_runs_and_has_what_it_needs_for_its_own() -> None:
    fixture, seen = ReceiverFixture(NoDedup()), set[str]()
    fixture.receiver.register({"invoices:send": lambda args, job: seen.add(job.webhook_id + job.lease)})

    await fixture.send()
    await fixture.send()

    assert len(seen) == 2


def test_frameworks_without_an_event_loop_run_one_per_request(tmp_path: Path) -> None:
    """As Flask does: several threads, a loop for each request."""
    fixture = ReceiverFixture(SQLiteDedup(tmp_path / "dedup.db"))
    runs: list[Any] = []
    fixture.receiver.register({"invoices:send": runs.append})
    requests = [fixture.scheduler.request(n, id=f"job-{n % 5}") for n in range(20)]
    answers: list[Answer] = []

    def serve(some: list[tuple[dict[str, str], bytes]]) -> None:
        answers.extend(asyncio.run(fixture.receiver.handle(headers, body)) for headers, body in some)

    threads = [threading.Thread(target=serve, args=(requests[k::4],)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    asyncio.run(fixture.receiver.aclose())

    assert len(runs) == 5
    assert {answer.status for answer in answers} <= {200, 409}


class Slow(MemoryDedup):
    """A claim that is on its way to the disk, and gets there whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def claim(self, claim: Claim, *, now_ms: int) -> Found:
        self.begun.set()
        while not self.go.is_set():
            with suppress(asyncio.CancelledError):
                await self.go.wait()
        return await super().claim(claim, now_ms=now_ms)


async def test_cancelled_while_it_claims_a_delivery_runs_nothing_and_gives_the_claim_back() -> None:
    dedup, runs = Slow(), list[int]()
    fixture = ReceiverFixture(dedup)
    fixture.receiver.register({"invoices:send": runs.append})
    first = asyncio.create_task(fixture.send(1))
    await dedup.begun.wait()
    stopping = [task for task in fixture.receiver._deliveries.running if task.cancel()]
    await asyncio.sleep(0)
    dedup.go.set()
    await asyncio.wait(stopping)

    assert verdict(await first) is Verdict.BUSY
    assert runs == []
    assert (await fixture.send(2)).status == 200 and runs == [2]
