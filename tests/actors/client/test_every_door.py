"""One suite of what a scheduler does, by each way to it: they answer, refuse and wait alike."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tests.actors.client.doors import each_door, house
from tocsin import Cron, HandlerError, Job, Rate, Retry, Scheduler, WorkerInfo, WorkerSnapshot
from tocsin.actors.scheduler.model import records
from tocsin.errors import (
    ConflictError,
    DuplicateScheduleIdError,
    InvalidCronError,
    InvalidInputError,
    JobFailedError,
    NotAllAcceptedError,
    NotYetError,
    ThrottledError,
)

pytestmark = pytest.mark.anyio

WHEN = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
ARGS = {"sum": Decimal("1.20"), "raw": b"\0", "many": 2**70, "when": WHEN, "no": None, "deep": [{"$tocsin": 1}, 1.5]}


def same(one: object, other: object) -> bool:
    """Lists may be tuples."""
    return type(one) is type(other) and flat(one) == flat(other)


def flat(one: Any) -> Any:
    if isinstance(one, msgspec.Struct):
        return {name: flat(value) for name, value in msgspec.structs.asdict(one).items()}
    if isinstance(one, (list, tuple)):
        return [flat(value) for value in one]
    return bytes(one) if isinstance(one, msgspec.Raw) else one


@each_door
async def test_jobs_are_made_read_moved_and_cancelled(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        assert jobs.name == "t"
        queue: Any = {"queue": "q"}
        options: dict[str, Any] = {
            "id": "a", "queue": "q", "pool": "p", "max_concurrency": 3, "priority": -2, "labels": ["x", "y"],
            "shard_key": "s", "retry": Retry(max_retries=2, backoff="linear", base_ms=1.5), "timeout_ms": 2_000,
            "expires_at": datetime(2032, 1, 1, tzinfo=UTC), "keep_result": timedelta(hours=1),
            "then": [Job("b:c", ARGS, after="5s", options={**queue, "then": [Job("d:e", options={"queue": "r"})]})],
        }  # fmt: skip
        assert await jobs.run_at(WHEN, "work:run", ARGS, **options) == "a"
        mine, theirs = await jobs.get("a"), await found.host.scheduler("t").get("a")
        assert same(mine, theirs) and isinstance(mine, records.Record) and mine.args == ARGS
        assert mine.retry == options["retry"] and mine.then[0].delay_ms == 5_000 and mine.then[0].then[0].queue == "r"
        assert (mine.shard_key, mine.labels, mine.timeout_ms) == ("s", ("x", "y"), 2_000)
        minted = await jobs.run_after("5m", workflow="flow")
        record = await jobs.get(minted)
        assert record is not None and record.workflow == "flow" and record.args == {}
        assert 0 <= record.scheduled_for - record.enqueued_at - 300_000 <= 1_000
        assert await jobs.run_at(WHEN, "work:run", None, id="b", queue="q") == "b"
        assert await jobs.run_at(WHEN, "other", id="b", queue="q", on_conflict="keep") == "b"
        assert await jobs.run_at(WHEN, "other", id="b", queue="q", on_conflict="replace") == "b"
        moved = await jobs.reschedule("b", at=WHEN + timedelta(days=1))
        assert moved == records.Rescheduled(True, int((WHEN + timedelta(days=1)).timestamp() * 1000))
        assert (await jobs.reschedule("b", after="1h")).rescheduled
        assert not (await jobs.reschedule("nobody", after="1h")).rescheduled
        assert await jobs.cancel("b") == records.Cancelled(True, False)
        assert await jobs.cancel("b") == records.Cancelled(False, False)
        assert await jobs.get("b") is None


@each_door
async def test_calls_are_put_off_and_throttled(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        put_off: dict[str, Any] = {"id": "d", "max_wait": "90m", "queue": "q"}
        await jobs.run_debounced("1h", "search:index", {"n": 1}, **put_off)
        first = await jobs.get("d")
        await jobs.run_debounced("2h", "search:index", {"n": 2}, **put_off)
        [one] = await jobs.submit_many([Job("search:index", {"n": 3}, debounce="1s", options={"id": "e"})])
        async with jobs.deferred() as later:
            later.run_debounced("1h", "search:index", {"n": 4}, id="e")
        record = await jobs.get("d")
        assert first is not None and first.put_off is not None and record is not None and record.put_off is not None
        assert isinstance(one, records.Scheduled) and one.created
        assert (record.args, record.put_off.until) == ({"n": 2}, first.put_off.until)
        assert first.put_off.until == record.scheduled_for == (first.put_off.first_at or 0) + 90 * 60_000
        again = await jobs.get("e")
        assert again is not None and again.args == {"n": 4}

        throttled: dict[str, Any] = {"id": "t", "throttle": "1h", "queue": "q"}
        await jobs.run_after(0, "mail:digest", {"n": 1}, **throttled)
        with pytest.raises(ThrottledError, match="the next one is accepted in") as refused:
            await jobs.run_after(0, "mail:digest", {"n": 2}, **throttled)
        assert 3_590_000 < refused.value.details["retryAfterMs"] <= 3_600_000
        await jobs.run_after(0, "mail:digest", {"n": 3}, **throttled, on_throttle="merge")
        merged = await jobs.get("t")
        assert merged is not None and merged.args == {"n": 3}
        with pytest.raises(InvalidInputError, match=r"throttle \(in ms\) must be 1\.\.2592000000, not 0"):
            await jobs.run_after(0, "mail:digest", id="t", throttle=0)


@each_door
async def test_several_jobs_have_one_answer_each(door: str) -> None:
    async with house(door) as found:
        queue: Any = {"queue": "q"}
        good, wrong, taken, initiated = await found.jobs.submit_many([
            Job("a:b", after="1h", options={"id": "a", **queue}),
            Job("a:b", after="1h", options={"pool": "a b", **queue}),
            Job("a:b", at=WHEN, options={"id": "a", **queue}),
            Job("a:b", object(), at=WHEN),
        ])  # fmt: skip
        assert isinstance(good, records.Scheduled) and good.id == "a" and good.created
        assert isinstance(wrong, InvalidInputError) and wrong.message.startswith("jobs[1]: pool must be")
        assert isinstance(taken, DuplicateScheduleIdError) and taken.details["state"] == "pending"
        assert isinstance(initiated, InvalidInputError) and "jobs[3]: args is an object" in initiated.message
        assert await found.jobs.submit_many([]) == []
        with pytest.raises(InvalidInputError, match=r"jobs: 1001 given, at most 1000"):
            await found.jobs.submit_many([Job("a:b", after=1)] * 1001)


@each_door
async def test_a_block_submits_its_jobs_together_or_none(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        async with jobs.deferred() as later:
            first, second = (
                later.run_after("1h", "a:b", {"n": 1}, queue="q"),
                later.run_at(WHEN, "a:b", id="x", queue="q"),
            )
        assert second == "x" and {one.id for one in (await jobs.list()).records} == {first, "x"}
        with pytest.raises(RuntimeError, match="no"):
            async with jobs.deferred() as later:
                later.run_after("1h", "a:b", queue="q")
                raise RuntimeError("no")
        with pytest.raises(NotAllAcceptedError) as refused:
            async with jobs.deferred() as later:
                later.run_after("1h", "a:b", id="x", queue="q")
                later.run_after("1h", "a:b", id="y", queue="q")
        assert refused.value.accepted == ("y",) and refused.value.refused[0][0] == "x"
        with pytest.raises(InvalidInputError, match="this block has ended"):
            later.run_after(1, "a:b")
        assert {one.id async for one in jobs.list_all(queue="q")} == {first, "x", "y"}


async def until(dead: int, jobs: Scheduler) -> None:
    for _ in range(1_000):
        if (await jobs.status()).dead == dead:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("they do not die")


@each_door
async def test_dead_letters_are_listed_retried_and_cancelled(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        for n in range(4):
            await jobs.run_after(0, "a:b", {"n": n}, id=f"d{n}", pool="p" if n else None, labels=["l"])
        await until(4, jobs)
        page = await jobs.dead(pool="p", label="l", reason="refused", since=10**12, limit=2)
        assert page.truncated and {one.state for one in page.records} == {"dead"}
        rest = await jobs.dead(pool="p", label="l", reason="refused", since=10**12, limit=2, cursor=page.cursor)
        assert [one.id for one in (*page.records, *rest.records)] == ["d1", "d2", "d3"]
        assert page.records[0].last_status == 410 and page.records[0].last_response == "gone"
        assert (await jobs.why("d0"))[0].code == "DEAD"
        assert [one.status for one in await jobs.history("d0")] == [410]
        await jobs.pause()
        retried = await jobs.dead_retry("d0")
        assert retried.retried and retried.id == "d0"
        assert await jobs.dead_retry("d0") == records.DeadRetried(False)
        assert await jobs.dead_cancel("d1") is True and await jobs.dead_cancel("d1") is False
        counted = await jobs.dead_retry_all(pool="p", dry_run=True)
        assert (counted.matched, counted.running) == (2, False)
        started = await jobs.dead_retry_all(path="a:b", rate_per_second=1)
        assert (started.matched, started.running) == (2, True)
        with pytest.raises(ConflictError) as running:
            await jobs.dead_retry_all(all=True)
        assert running.value.details["redriveId"] == started.redrive_id
        shown = await jobs.redrive(started.redrive_id)
        assert shown is not None and shown.matched == 2
        assert await jobs.redrive_stop(started.redrive_id) is True
        assert await jobs.redrive_stop("nobody") is False and await jobs.redrive("nobody") is None
        matched = await jobs.cancel_all(path="a:b", dry_run=True)
        assert matched.cancelled == 0 < matched.matched
        assert (await jobs.cancel_all(all=True)).cancelled == matched.matched


@each_door
async def test_work_is_pulled_settled_and_waited_for(door: str) -> None:
    async with house(door) as found:
        jobs, me = found.jobs, WorkerInfo(id="w1", name="me", pid=7)
        assert await jobs.claim("q", wait=0) == []
        waiting = asyncio.ensure_future(jobs.claim(["q", "r"], max=5, lease_ms=30_000, wait=20, worker=me))
        await asyncio.sleep(0.05)
        then: Any = [Job("then:run", options={"queue": "r", "keep_result": "1h"})]
        id = await jobs.run_after(0, "a:b", ARGS, queue="q", keep_result="1h", then=then, retry=Retry(base_ms=0))
        [job] = await waiting
        assert (job.id, job.args, job.queue, job.lease_ms, job.then) == (id, ARGS, "q", 30_000, True)
        assert (await jobs.queues())[0].in_flight == 1
        assert await jobs.extend(id, job.lease, 60_000) > job.lease_until
        assert (await jobs.pending("then:")) == records.Pending(True, 1)
        with pytest.raises(NotYetError, match="is running"):
            await jobs.result(id, 0.01)
        failed = await jobs.settle(id, job.lease, ok=False, error="not now", delay=0)
        assert failed.state == "retrying"
        [job] = await jobs.claim("*", exclude=["r"], wait=5)
        assert (job.attempt, job.attempts) == (2, 1)
        ended = asyncio.ensure_future(jobs.result(id, "20s"))
        await asyncio.sleep(0.02)
        assert await jobs.complete(id, job.lease, result=ARGS) is True
        assert await jobs.complete(id, job.lease, result=ARGS) is True
        assert await ended == ARGS
        attempts = await jobs.history(id)
        assert [one.outcome for one in attempts] == ["failed", "done"] and attempts[-1].result == ARGS
        [follower] = await jobs.claim("r", wait=5)
        assert follower.parent is not None and follower.parent.id == id and follower.parent.result == ARGS
        assert (await jobs.settle(follower.id, follower.lease, ok=False, error="gone", retryable=False)).state == "dead"
        with pytest.raises(JobFailedError, match=r"is dead: .*gone") as dead:
            await jobs.result(follower.id)
        assert dead.value.details["state"] == "dead"
        coded = await jobs.run_after(0, "a:b", queue="q", keep_result="1h", retry=Retry(max_retries=0))
        [job] = await jobs.claim("q", wait=5)
        why = HandlerError("no such card", code="card.unknown", status=404, data={"card": ARGS["sum"]})
        assert (await jobs.settle(coded, job.lease, ok=False, error=why)).state == "dead"
        with pytest.raises(JobFailedError, match="no such card") as told:
            await jobs.result(coded)
        failed_by = told.value
        assert (failed_by.code, failed_by.status, failed_by.data) == ("card.unknown", 404, {"card": ARGS["sum"]})


@each_door
async def test_a_claim_that_is_given_up_takes_no_job_with_it(door: str) -> None:
    if door == "sync":
        return  # its own tests interrupt it
    async with house(door) as found:
        waiting = asyncio.ensure_future(found.jobs.claim("q", wait=20))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        await found.jobs.run_after(0, "a:b", id="a", queue="q")
        [job] = await found.jobs.claim("q", wait=5)
        assert (job.id, job.attempts) == ("a", 0)


@each_door
async def test_workers_are_heard_of(door: str) -> None:
    async with house(door) as found:
        said = WorkerSnapshot(id="w1", queues=["q"], concurrency=2, status="idle", started_at=1, heartbeat_at=2)
        await found.jobs.announce(said)
        page = await found.jobs.workers(limit=5)
        [heard] = page.workers
        assert isinstance(heard, records.WorkerRecord) and (heard.id, list(heard.queues), heard.lost) == (
            "w1",
            ["q"],
            False,
        )
        assert (await found.jobs.workers(cursor="w1")).workers == []
        wrong = WorkerSnapshot(id="w1", queues=["q"], concurrency=0, status="idle", started_at=1, heartbeat_at=2)
        with pytest.raises(InvalidInputError, match="concurrency"):
            await found.jobs.announce(wrong)


@each_door
async def test_schedules_are_put_held_run_and_removed(door: str) -> None:
    async with house(door) as found:
        schedules = found.jobs.schedules
        put = await schedules.put(
            "s", "a:b", ARGS, cron="0 9 * * mon-fri", timezone=ZoneInfo("Europe/Berlin"), misfire="all", grace="5s",
            catch_up_limit=None, overlap="queue", jitter="1m", queue="q", pool="p", max_concurrency=2, priority=1,
            labels=["x"], retry=Retry(max_retries=1), timeout_ms=5_000, expires_after="1h",
            then=[Job("c:d", {"n": 1}, options={"queue": "q"})],
        )  # fmt: skip
        assert put.revision == 1 and len(put.preview) == 5
        assert put == await schedules.put(
            "s", "a:b", ARGS, cron="0 9 * * mon-fri", timezone="Europe/Berlin", misfire="all", grace="5s",
            catch_up_limit=None, overlap="queue", jitter="1m", queue="q", pool="p", max_concurrency=2, priority=1,
            labels=["x"], retry=Retry(max_retries=1), timeout_ms=5_000, expires_after="1h",
            then=[Job("c:d", {"n": 1}, options={"queue": "q"})],
        )  # fmt: skip
        mine, theirs = await schedules.get("s"), await found.host.scheduler("t").schedules.get("s")
        assert same(mine, theirs) and mine is not None and mine.args == ARGS and mine.catch_up_limit is None
        assert mine.then[0].function_path == "c:d" and mine.retry == Retry(max_retries=1)
        assert await schedules.get("nobody") is None
        assert (await schedules.occurrences("nobody")).occurrences == []
        paused = await schedules.pause("s", revision=1)
        assert paused.state == "paused"
        with pytest.raises(ConflictError, match="is at revision") as stale:
            await schedules.resume("s", revision=99)
        assert stale.value.details["revision"] == paused.revision
        assert (await schedules.resume("s")).state == "active"
        run = await schedules.trigger("s", "once")
        assert run.created and run == (await schedules.trigger("s", "once")).__class__(
            name="s", slot=run.slot, id=run.id, created=True
        )
        assert (await schedules.trigger("s")).id != run.id
        listed = await schedules.occurrences("s", limit=1)
        assert listed.truncated and listed.occurrences[0].triggered
        assert [one.name for one in (await schedules.list(limit=1)).schedules] == ["s"]
        coming = await schedules.preview("30 1 * * *", timezone="America/New_York", start=WHEN, count=2)
        assert len(coming.next) == 2 and coming.next[0] > WHEN.timestamp() * 1000
        assert await schedules.delete("s", cancel_pending=True) is True and await schedules.delete("s") is False
        assert (await found.jobs.status()).backlog == 0


@each_door
async def test_a_set_of_schedules_is_registered_as_a_whole(door: str) -> None:
    async with house(door) as found:
        schedules = found.jobs.schedules
        cron = (
            Cron()
            .hourly("sweep", minute=17, target="a:b", queue="q")
            .daily("report", hour=6, minute=0, workflow="w", queue="q")
        )
        first = await schedules.register("app", cron)
        assert first == await schedules.register("app", cron)
        assert [one.name for one in first.schedules] == ["app:sweep", "app:report"]
        fewer = [("sweep", {"path": "a:b", "every": "1h", "args": ARGS, "queue": "q", "paused": True})]
        second = await schedules.register("app", fewer)
        assert (second.orphaned, second.removed, second.closed) == (["app:report"], [], False)
        record = await schedules.get("app:sweep")
        assert record is not None and (record.owner, record.every_ms, record.paused) == ("app", 3_600_000, True)
        assert record.args == ARGS
        assert (await schedules.register("app", fewer, prune=True)).removed == ["app:report"]
        await schedules.put("web:sweep", "a:b", every="1h", queue="q")
        with pytest.raises(ConflictError, match="nothing of this set was registered"):
            await schedules.register("web", fewer)
        with pytest.raises(InvalidCronError, match=r"'sweep'.*61"):
            await schedules.register("app", [("sweep", {"path": "a:b", "cron": "61 * * * *"})])
        assert (await schedules.register("app", [], prune=True)).removed == ["app:sweep"]


@each_door
async def test_queues_are_set(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        queue = await jobs.set_queue("q", fair=True, weights={"k": 2}, max_per_key=3)
        assert (queue.name, queue.fair, queue.weights, queue.max_per_key) == ("q", True, {"k": 2}, 3)
        assert list(await jobs.queues()) == [queue]
        with pytest.raises(InvalidInputError, match=r"weights\['k'\]"):
            await jobs.set_queue("q", weights={"k": 0})
        with pytest.raises(InvalidInputError, match="queue"):
            await jobs.set_queue("q/r", fair=True)
        plain = await jobs.set_queue("q", fair=False, weights={}, max_per_key=0)
        assert not plain.fair and plain.weights is None and not await jobs.queues()


@each_door
async def test_pools_and_the_instance_are_set(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        made = await jobs.set_pool("p", max_concurrency=0)
        assert made.created and made.max_concurrency == 0
        assert (await jobs.set_pool("p", paused=True)).paused and (await jobs.pool("p")).known
        flow = await jobs.set_pool(
            "p", rate=Rate(100, per="1m", burst=5), cool_on_retry_after="pool", fair=True, weights={"k": 2},
            max_per_key=3,
        )  # fmt: skip
        assert (flow.rate, flow.cool_on_retry_after, flow.fair) == (Rate(100, per=60.0, burst=5), "pool", True)
        assert (flow.weights, flow.max_per_key, flow.max_concurrency) == ({"k": 2}, 3, 0)
        plain = await jobs.set_pool("p", rate="none", cool_on_retry_after="none", fair=False, weights={}, max_per_key=0)
        assert plain == await jobs.set_pool("p", paused=True) and plain.rate is None
        with pytest.raises(InvalidInputError, match=r"rate must be as Rate\(100"):
            await jobs.set_pool("p", rate="100/1m")  # type: ignore[arg-type]
        await jobs.run_after("1h", "a:b", id="a", pool="p")
        with pytest.raises(ConflictError):
            await jobs.delete_pool("p")
        await jobs.cancel("a")
        assert await jobs.delete_pool("p") is True and await jobs.delete_pool("p") is False
        await jobs.pause()
        assert (await jobs.status()).paused
        assert await jobs.set_instance(paused=False, timeout_ms=9_000) == records.InstanceState("t", False, 9_000)
        await jobs.run_after("1h", "a:b", id="a")
        assert (await jobs.status()).backlog == 1
        assert (await jobs.remove()).jobs == 1
        assert (await jobs.status()).backlog == 0
