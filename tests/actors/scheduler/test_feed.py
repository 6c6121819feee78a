"""The live feed: what changed, once it is durable, in the order in which it can be taken over by who lists."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from random import Random
from typing import Any

import msgspec
import pytest

from tests.actors.held_provider import HeldProvider
from tests.actors.scheduler.mirror import Mirror, truth
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Job, Scheduler, port_of
from tocsin.actors.scheduler.inflight import feed as feeds
from tocsin.actors.scheduler.model.feed_frames import Change, FeedPage, read_frame
from tocsin.actors.testing import simulate
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import HostClosedError, InvalidInputError, StoreError, TocsinError
from tocsin.storage.memory import MemoryProvider

ONCE = Retry(max_retries=0)


async def page(jobs: Scheduler, since: str | None, wait_s: float | None = None) -> FeedPage:
    return await port_of(jobs).reads.changes(since=since, wait_s=wait_s)


async def frames(jobs: Scheduler, since: str | None, wait_s: float | None = 1.0) -> list[Change]:
    return [read_frame(one) for one in (await page(jobs, since, wait_s)).frames]


async def place(jobs: Scheduler) -> str:
    """Where the feed is now."""
    return (await page(jobs, None)).seq


# ---- What is told ----------------------------------------------------------------------------------------------------


@on_simulated_host()
async def test_it_begins_with_a_snapshot_and_goes_on_with_what_changes(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "a:b", {"secret": "of the args"}, id="first", pool="p", labels=["l"])
    async with aclosing(sim.jobs.changes()) as feed:
        snapshot = await anext(feed)
        assert (snapshot.type, [one.id for one in snapshot.jobs]) == ("snapshot", ["first"])
        assert snapshot.status == await sim.jobs.status()
        assert (snapshot.jobs[0].pool, snapshot.jobs[0].labels, snapshot.jobs[0].state) == ("p", ("l",), "pending")

        await sim.jobs.run_after("2h", "a:b", {"secret": "of the args"}, id="second")
        change = await anext(feed)
        assert (change.type, [one.id for one in change.jobs], change.gone) == ("change", ["second"], [])
        assert change.counts is not None and change.counts.backlog == 2
        assert b"secret" not in msgspec.json.encode([snapshot, change])

        await sim.jobs.cancel("first")
        change = await anext(feed)
        assert [(one.id, one.how) for one in change.gone] == [("first", "cancelled")]


@on_simulated_host()
async def test_every_way_of_a_job_is_told_with_its_end(sim: SimulatedHost) -> None:
    mirror = Mirror()

    async def watch() -> None:
        async for frame in sim.jobs.changes():
            mirror.take(frame)

    watching = asyncio.create_task(watch())
    answers = {"done": Answer(200, {}, b"x"), "dies": Answer(410, {}, b""), "drops": Answer(410, {}, b"")}
    sim.reply = lambda one: answers.get(one.id, Answer(200, {}, b""))
    await sim.sleep(0)
    await sim.jobs.run_after(0, "p", id="done")
    await sim.jobs.run_after(0, "p", id="dies", retry=ONCE)
    await sim.jobs.run_after(0, "p", id="drops", retry=ONCE)
    await sim.jobs.run_after("1h", "p", id="cancelled")
    await sim.jobs.run_after("1s", "p", id="expired", queue="idle", expires_at=sim.now + 2_000)
    await sim.jobs.run_after(0, "p", id="pulled", queue="q")
    await sim.jobs.run_after(0, "p", id="stopped", queue="q")
    (pulled, _) = await sim.jobs.claim("q", max=2)
    await sim.sleep(1)
    assert mirror.jobs == await truth(sim.jobs)
    assert mirror.jobs["dies"][1] == "dead" and mirror.jobs["pulled"][1] == "running"

    await sim.jobs.cancel("cancelled")
    await sim.jobs.cancel("stopped")  # its lease goes on, and its end tells nothing
    await sim.jobs.dead_cancel("drops")
    await sim.jobs.dead_retry("dies")
    await sim.jobs.complete(pulled.id, pulled.lease)
    await sim.jobs.run_after("1h", "p", id="replaced")
    await sim.jobs.run_after("2h", "p", id="replaced", on_conflict="replace")
    await sim.jobs.reschedule("replaced", after="3h")
    await sim.sleep(100)
    assert mirror.jobs == await truth(sim.jobs)
    assert mirror.ends == {
        "done": "done", "pulled": "done", "cancelled": "cancelled", "stopped": "cancelled", "drops": "removed",
        "expired": "expired",
    }  # fmt: skip
    assert mirror.resyncs == 0
    watching.cancel()


@on_simulated_host()
async def test_no_more_than_ten_frames_a_second_and_all_who_watch_get_the_same(sim: SimulatedHost) -> None:
    since = await place(sim.jobs)

    async def watch() -> list[str]:
        seen: list[str] = []
        async for frame in sim.jobs.changes(since=since):
            seen.append(frame.seq)
            if "last" in {one.id for one in frame.jobs}:
                return seen
        raise AssertionError("it ended")

    watching = [asyncio.create_task(watch()) for _ in range(5)]
    for n in range(100):
        await sim.jobs.run_after("1h", "p", id=f"j{n}")
        await sim.sleep(0.02)
    await sim.jobs.run_after("1h", "p", id="last")
    seen = await asyncio.gather(*watching)

    assert all(one == seen[0] for one in seen)
    assert 15 <= len(seen[0]) <= 22


@on_simulated_host()
async def test_a_snapshot_has_a_hundred_jobs_and_says_that_there_are_more(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many([Job("p", after="1h", options={"id": f"j{n:03}"}) for n in range(150)])
    (snapshot,) = await frames(sim.jobs, None)

    assert (len(snapshot.jobs), snapshot.truncated) == (100, True)
    assert snapshot.jobs[0].id == "j000"


# ---- Going on --------------------------------------------------------------------------------------------------------


@on_simulated_host()
async def test_who_comes_back_gets_what_was_missed(sim: SimulatedHost) -> None:
    since = await place(sim.jobs)
    await sim.jobs.run_after("1h", "p", id="one")
    assert [one.id for one in (await frames(sim.jobs, since))[0].jobs] == ["one"]
    await sim.jobs.run_after("1h", "p", id="two")
    await sim.sleep(1)

    missed = await frames(sim.jobs, since)
    assert [one.type for one in missed] == ["change"], "the next question makes the frame of the second job"
    missed += await frames(sim.jobs, missed[-1].seq)
    assert [[one.id for one in frame.jobs] for frame in missed] == [["one"], ["two"]]
    assert await frames(sim.jobs, missed[-1].seq, wait_s=0.5) == []


@on_simulated_host()
async def test_a_place_of_another_life_is_answered_with_a_resync(sim: SimulatedHost) -> None:
    since = await place(sim.jobs)
    await sim.jobs.run_after("1h", "p", id="one")
    last = (await frames(sim.jobs, since))[-1].seq
    await sim.close()
    await sim.open()

    again = await frames(sim.jobs, last)
    assert [one.type for one in again] == ["resync", "snapshot"]
    assert [one.id for one in again[1].jobs] == ["one"]
    assert again[1].seq not in (since, last)
    left_between = await frames(sim.jobs, again[0].seq)
    assert [one.type for one in left_between] == ["resync", "snapshot"], "the snapshot was not had yet"
    elsewhere = sim.host.scheduler("other")
    assert [one.type for one in await frames(elsewhere, last)] == ["resync", "snapshot"]


@on_simulated_host()
async def test_a_feed_that_nobody_watches_ends_after_two_minutes_and_costs_nothing_then(sim: SimulatedHost) -> None:
    since = await place(sim.jobs)
    await sim.sleep(feeds.KEPT_S - 1)
    await sim.jobs.run_after("1h", "p", id="one")
    assert [one.type for one in await frames(sim.jobs, since)] == ["change"]
    await sim.sleep(feeds.KEPT_S)
    await sim.jobs.run_after("1h", "p", id="two")
    assert sim.host._service.inflight("t").feed is None
    assert [one.type for one in await frames(sim.jobs, since)] == ["resync", "snapshot"]


def test_whoever_asks_does_not_look_through_all_the_others() -> None:
    now, looks = 0.0, 0

    class One:
        feed: feeds.Feed | None = None

    class Counted(dict[str, Any]):
        def items(self) -> Any:
            nonlocal looks
            looks += 1
            return super().items()

    all_of_them = feeds.Feeds(lambda: now, lambda: Random(1))
    all_of_them._watched = Counted()
    some = {f"n{n}": One() for n in range(100)}
    for name, one in some.items():
        assert all_of_them.of(name, one) is all_of_them.of(name, one)
    assert looks == 1
    now = feeds.KEPT_S
    first = some["n0"].feed
    assert all_of_them.of("n0", some["n0"]) is not first
    assert len(all_of_them._watched) == 1, "those that nobody watches are let go"
    assert some["n1"].feed is None


def test_more_than_is_kept_is_answered_with_a_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MOST_FRAMES", 4)
    monkeypatch.setattr(feeds, "MOST_UNTOLD", 50)

    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open()
        since = at = await place(sim.jobs)
        for n in range(6):
            await sim.jobs.run_after("1h", "p", id=f"j{n}")
            at = (await frames(sim.jobs, at))[-1].seq
        assert [one.type for one in await frames(sim.jobs, since)] == ["resync", "snapshot"]
        assert await frames(sim.jobs, at, wait_s=0) == []
        await sim.jobs.submit_many([Job("p", after="1h") for _ in range(100)])
        assert [one.type for one in await frames(sim.jobs, at)] == ["resync", "snapshot"]
        await sim.close()

    simulate(3, main)


@on_simulated_host()
async def test_what_is_no_place_is_refused_or_answered_with_a_resync(sim: SimulatedHost) -> None:
    at = await place(sim.jobs)
    name = at.rpartition("-")[0]
    for wrong in ("x", "17", f"{name}-1", f"{name}--1", f"{name}-٣", f"{name}-{'9' * 30}", f"-{at}"):
        assert (await frames(sim.jobs, wrong))[0].type == "resync", wrong
    with pytest.raises(InvalidInputError, match="since must be"):
        await page(sim.jobs, "x" * 65)


@on_simulated_host()
async def test_removing_the_instance_ends_its_feed(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "p", id="one")
    seen: list[Change] = []

    async def watch() -> None:
        async for frame in sim.jobs.changes():
            seen.append(frame)

    watching = asyncio.create_task(watch())
    await sim.sleep(0)
    await sim.jobs.remove()
    async with asyncio.timeout(5):
        await watching
    at = seen[-1].seq
    await sim.jobs.run_after("1h", "p", id="again")
    assert (await page(sim.jobs, at)).ended, "also for who did not ask just then"
    await sim.sleep(feeds.KEPT_S)
    assert [one.type for one in await frames(sim.jobs, at)] == ["resync", "snapshot"]


@on_simulated_host()
async def test_a_host_that_stops_lets_nobody_wait(sim: SimulatedHost) -> None:
    at = await place(sim.jobs)
    waiting = asyncio.create_task(page(sim.jobs, at))
    await sim.sleep(1)
    sim.host.stop_waiting()
    async with asyncio.timeout(1):
        with pytest.raises(HostClosedError):
            await waiting
    with pytest.raises(HostClosedError):
        await page(sim.jobs, at, 5)


@on_simulated_host()
async def test_watching_does_not_make_an_instance_and_the_first_job_is_told(sim: SimulatedHost) -> None:
    nobody = sim.host.scheduler("new")
    at = await place(nobody)
    waiting = asyncio.create_task(frames(nobody, at, None))
    await sim.sleep(300)
    assert "new" not in [one.name for one in (await sim.host.instances()).instances]
    await nobody.run_after("1h", "p", id="first")
    assert [one.id for one in (await waiting)[0].jobs] == ["first"]


@on_simulated_host()
async def test_a_watcher_that_is_cancelled_takes_nothing_away(sim: SimulatedHost) -> None:
    at = await place(sim.jobs)
    await sim.jobs.run_after("1h", "p", id="one")
    await frames(sim.jobs, at)
    await sim.jobs.run_after("1h", "p", id="two")
    gone = asyncio.create_task(page(sim.jobs, at := (await page(sim.jobs, None)).seq))
    await asyncio.sleep(0)
    await sim.jobs.run_after("1h", "p", id="three")
    for _ in range(12):  # wherever it is by now
        await asyncio.sleep(0.01)
    gone.cancel()
    told = await frames(sim.jobs, at)
    assert "three" in {one.id for frame in told for one in frame.jobs}


@on_simulated_host()
async def test_what_a_frame_could_not_be_made_of_is_in_the_next_one(sim: SimulatedHost) -> None:
    at = await place(sim.jobs)
    await sim.jobs.run_after("1h", "p", id="one")
    view = type(sim.host.runtime.provider.view("x")).scan_many
    broken = StoreError("it cannot be read now")

    async def fail(*_: Any, **__: Any) -> Any:
        raise broken

    kind = type(sim.host.runtime.provider.view("x"))
    kind.scan_many = fail  # type: ignore[method-assign]
    try:
        with pytest.raises(StoreError, match="cannot be read now"):
            await page(sim.jobs, at)
    finally:
        kind.scan_many = view  # type: ignore[method-assign]
    assert [one.id for frame in await frames(sim.jobs, at) for one in frame.jobs] == ["one"]


# ---- Durable first ---------------------------------------------------------------------------------------------------


async def held_host() -> tuple[HeldProvider, ActorHost]:
    provider = HeldProvider(MemoryProvider())
    host = ActorHost.open(provider, origin="http://127.0.0.1:9", insecure=True, dispatch=False)
    await host.__aenter__()
    return provider, host


@pytest.mark.anyio
async def test_nothing_is_told_before_it_is_durable() -> None:
    provider, host = await held_host()
    jobs = host.scheduler("t")
    await jobs.run_after("1h", "p", id="before")
    at = await place(jobs)
    provider.holding = True
    submitting = asyncio.create_task(jobs.run_after("1h", "p", id="held"))
    await provider.until_held(1)
    assert await frames(jobs, at, 0.3) == []
    assert not submitting.done()
    provider.holding = False
    provider.release()
    told = await frames(jobs, at, 5.0)
    assert [[one.id for one in frame.jobs] for frame in told] == [["held"]]
    await submitting
    await host.stop()


@pytest.mark.anyio
async def test_who_begins_while_a_commit_is_under_way_misses_nothing() -> None:
    provider, host = await held_host()
    jobs = host.scheduler("t")
    await jobs.run_after("1h", "p", id="before")
    provider.holding = True
    submitting = asyncio.create_task(jobs.run_after("1h", "p", id="held"))
    await provider.until_held(1)
    beginning = asyncio.create_task(page(jobs, None))
    await asyncio.sleep(0.05)
    provider.holding = False
    provider.release()
    await submitting
    (snapshot,) = [read_frame(one) for one in (await beginning).frames]
    assert {one.id for one in snapshot.jobs} == {"before", "held"}
    await host.stop()


@pytest.mark.anyio
async def test_a_commit_that_failed_is_not_told() -> None:
    provider, host = await held_host()
    jobs = host.scheduler("t")
    await jobs.run_after("1h", "p", id="before")
    at = await place(jobs)
    provider.holding = True
    submitting = asyncio.create_task(jobs.run_after("1h", "p", id="lost"))
    await provider.until_held(1)
    provider.holding = False
    provider.fail(StoreError("the disk is gone"))
    with pytest.raises(TocsinError):
        await submitting
    await jobs.run_after("1h", "p", id="next")
    told: list[Change] = []
    while "next" not in {one.id for frame in told for one in frame.jobs}:
        told += await frames(jobs, told[-1].seq if told else at, None)
    assert "lost" not in {one.id for frame in told for one in frame.jobs}
    assert {one.type for one in told} == {"change"}
    await host.stop()
