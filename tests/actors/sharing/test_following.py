"""A process that does not hold the store does all that one does which holds it, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from tests.actors.sharing.town import Town, jobs
from tocsin import Actor, ActorHost, Job
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.dispatch.pulled import WorkerSnapshot
from tocsin.errors import (
    ActorBrokenError,
    DuplicateScheduleIdError,
    HostClosedError,
    InvalidInputError,
    InvalidScheduleIdError,
    OriginNotConfiguredError,
    StaleLeaseError,
    TocsinError,
)
from tocsin.testing import crash, simulate

SNAPSHOT = WorkerSnapshot(
    id="w1", name="w", hostname="h", pid=1, queues=["q"], concurrency=1, status="idle", started_at=1, heartbeat_at=1
)


class Counter(Actor):
    async def add(self, n: Any) -> Any:
        value = int(await self.ctx.storage.get(b"n") or b"0") + n
        self.ctx.storage.put(b"n", b"%d" % value)
        return value

    async def huge(self) -> set[int]:
        return {1}

    async def echo(self, *args: Any) -> Any:
        return args


def in_town(main: Callable[[Town], Awaitable[None]], seeds: int = 1) -> None:
    async def run(random: Random) -> None:
        await main(Town(random))

    for seed in range(seeds):
        simulate(seed, run)


def groups_and_redrives(t: Scheduler) -> Iterator[Awaitable[Any]]:
    yield t.groups.open("g", then=[Job("a:b")], size=2)
    yield from (t.groups.get("g"), t.groups.list(), t.groups.members("g"))
    yield from (t.groups.seal("none"), t.groups.cancel("g"), t.redrive("none"), t.redrive_stop("none"))


async def every_operation(t: Scheduler) -> list[Any]:
    """One answer, or one error, of each kind of operation."""
    said: list[Any] = []

    async def ask(answer: Awaitable[Any]) -> Any:
        try:
            said.append(await answer)
        except TocsinError as error:
            said.append((type(error).__name__, error.message, error.details))
        return said[-1]

    await ask(t.run_after("1h", "a:b", {"n": 1}, id="one", labels=["x"], pool="p"))
    await ask(t.run_after("1h", "a:b", {"n": 1}, id="one"))
    await ask(t.run_after("1h", "a:b", {"n": 1}, id="one", on_conflict="keep"))
    await ask(t.submit_many([Job(path="a:b", after="2h", options={"id": f"m{n % 2}"}) for n in range(3)]))
    await ask(t.get("one"))
    await ask(t.get("none"))
    await ask(t.list(order="id", limit=2))
    await ask(t.list(cursor="forged"))
    await ask(t.why("one"))
    await ask(t.reschedule("one", after="3h"))
    await ask(t.cancel("m0"))
    await ask(t.cancel("not an id"))
    await ask(t.cancel_all(label="x", dry_run=True))
    await ask(t.history("m0"))
    await ask(t.set_pool("p", max_concurrency=3))
    await ask(t.pool("p"))
    await ask(t.delete_pool("p"))
    await ask(t.run_after(0, "q:w", {"q": 1}, id="pulled", queue="q", keep_result="1h"))
    (claimed,) = await ask(t.claim("q", wait=0, lease_ms=5_000))
    await ask(t.extend("pulled", claimed.lease, 10_000))
    await ask(t.extend("pulled", "1.2.wrong", 10_000))
    await ask(t.complete("pulled", claimed.lease, result={"r": [1, 2]}))
    await ask(t.result("pulled"))
    await ask(t.result("one", timeout=0))
    await ask(t.queues())
    await ask(t.pending("a:"))
    await ask(t.announce(SNAPSHOT))
    await ask(t.workers())
    await ask(t.schedules.put("s", "a:b", cron="0 3 * * *", timezone="Europe/Paris"))
    await ask(t.schedules.get("s"))
    await ask(t.schedules.put("bad", "a:b", cron="61 * * * *"))
    await ask(t.schedules.list())
    await ask(t.schedules.pause("s"))
    await ask(t.schedules.resume("s", revision=99))
    await ask(t.schedules.trigger("s", "key"))
    await ask(t.schedules.occurrences("s"))
    await ask(t.schedules.backfill("s", 1_700_000_000_000, 1_700_000_000_000))
    await ask(t.schedules.backfill("s", 1_700_000_000_000, 1_701_000_000_000, dry_run=True))
    await ask(t.schedules.backfills("s"))
    await ask(t.schedules.backfill_stop("s", "none"))
    await ask(t.schedules.preview("*/5 * * * *"))
    await ask(t.schedules.register("app", [("x", {"path": "a:b", "every": 60})], prune=True))
    await ask(t.schedules.delete("s", cancel_pending=True))
    await ask(t.dead())
    await ask(t.dead_retry("one"))
    await ask(t.dead_cancel("one"))
    await ask(t.dead_retry_all(all=True))
    await ask(t.free_slot("none"))
    for one in groups_and_redrives(t):
        await ask(one)
    await ask(t.set_instance(timeout_ms=5_000))
    await ask(t.pause(False))
    await ask(t.clock.get())
    await ask(t.clock.start("1h"))
    await ask(t.clock.freeze())
    await asyncio.sleep(10)  # what was triggered has been sent
    await ask(t.status())
    await ask(t.remove())
    return said


def shown(said: list[Any]) -> list[str]:
    """What is drawn by chance, or an instant, left out."""
    drawn = {"incarnation", "lease", "redriveId", "id", "uid", "walBytes", "host", "token", "cursor", "rows"}

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: clean(one) for key, one in value.items() if key not in drawn and not key.endswith(("At", "Until"))
            }
        if isinstance(value, list):
            return [clean(one) for one in value]
        return "…" if isinstance(value, int) and value > 10**11 else value

    return [repr(clean(msgspec.json.decode(msgspec.json.encode(one, enc_hook=repr)))) for one in said]


def test_every_operation_answers_as_in_the_process_that_holds_the_store() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (holder, follower):
            assert follower._sharing is not None and follower._sharing.follows
            here, there = await every_operation(jobs(holder, "a")), await every_operation(jobs(follower, "b"))
            assert len(here) == len(there)
            for mine, theirs in zip(shown(here), shown(there), strict=True):
                assert mine.replace("'a'", "'b'") == theirs

    in_town(main)


def test_a_test_clock_is_advanced_from_a_process_that_does_not_hold_the_store() -> None:
    async def main(town: Town) -> None:
        start = 1_577_836_800_000
        async with town.two() as (holder, follower):
            t = jobs(follower, "clocked")
            assert await t.clock.create(start) == await jobs(holder, "clocked").clock.get()
            id = await t.run_after("1h", "a:b")
            job = await t.get(id)
            assert job is not None and job.scheduled_for == start + 3_600_000
            assert (await t.clock.advance("2h")).now == start + 7_200_000
            assert await t.get(id) is None

    in_town(main)


def test_errors_arrive_by_their_names_with_what_they_say() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (_, follower):
            t = jobs(follower)
            await t.run_after("1h", "a:b", id="x")
            with pytest.raises(DuplicateScheduleIdError, match="taken by a pending job") as taken:
                await t.run_after("1h", "a:b", id="x")
            assert taken.value.details == {"id": "x", "state": "pending"}
            with pytest.raises(InvalidScheduleIdError):
                await t.get("no id")
            with pytest.raises(StaleLeaseError):
                await t.complete("x", "1.2.abc")
            with pytest.raises(InvalidScheduleIdError, match="not 5"):
                await t.get(5)  # type: ignore[arg-type]
            with pytest.raises(InvalidInputError, match=r"^id must be text, .* not a Town"):
                await t.get(town)  # type: ignore[arg-type]

    in_town(main)


def test_the_last_hour_is_the_holder_s_and_each_process_measures_itself() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (holder, follower):
            await jobs(follower, "a").run_after(0, "a:b")
            await asyncio.sleep(5)
            there = await jobs(follower, "a").activity(5)
            assert sum(one.done for one in there.minutes) == 1
            assert there.minutes == (await jobs(holder, "a").activity(5)).minutes
            assert (await follower.measures()).schedulers is None
            measured = (await holder.measures()).schedulers
            assert measured is not None and measured.totals.started["callback"] == 1

    in_town(main)


def test_instances_and_health_are_those_of_the_holder() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (holder, follower):
            for name in ("a", "b", "c"):
                await jobs(follower, name).run_after("1h", "x:y")

            async def shown(name: str) -> bool:
                return name != "b"

            assert await follower.instances() == await holder.instances()
            page = await follower.instances(limit=1, shown=shown)
            assert ([one.name for one in page.instances], page.cursor) == (["a"], "a")
            rest = await follower.instances(limit=1, cursor="a", shown=shown)
            assert ([one.name for one in rest.instances], rest.truncated) == (["c"], False)
            await town.clock.sleep(1)
            assert follower.ready and list(follower.health()) == list(holder.health()) == []
            assert follower.trouble is None

    in_town(main)


def test_own_actors_are_called_with_plain_data_and_others_are_named() -> None:
    async def main(town: Town) -> None:
        async with town.two(actors=[Counter]) as (holder, follower):
            counter = follower.actor(Counter, "c")
            assert [await counter.add(2), await holder.actor(Counter, "c").add(3)] == [2, 5]
            plain = [None, True, 1, 2.5, "t", b"\x00\xff", [1], {"k": {"l": b"m"}}]
            assert await counter.echo(*plain) == plain, "bytes too; a tuple arrives as a list"
            with pytest.raises(InvalidInputError, match=r"args of Counter.add\[0\]\['k'\] is a set: another process"):
                await counter.add({"k": {1}})
            with pytest.raises(InvalidInputError, match=r"the args of Counter.echo cannot go .* ints"):
                await counter.echo(2**70)
            with pytest.raises(InvalidInputError, match=r"the answer of Counter.huge is a set"):
                await counter.huge()
            with pytest.raises(ActorBrokenError, match="TypeError in the process that holds the store"):
                await counter.add("text")
            assert await counter.add(0) == 5

    in_town(main)


def test_a_claim_that_is_cancelled_gives_back_what_it_was_about_to_get() -> None:
    """Whenever the cancel comes, before, while and after the answer travels, the job is free at once, uncharged."""

    async def main(town: Town) -> None:
        town.delay_s = 0.01
        async with town.two() as (holder, follower):
            far, near = jobs(follower), jobs(holder)
            for n in range(25):
                await near.run_after(0, "q:w", id=f"j{n}", queue="q")
                claim = asyncio.ensure_future(far.claim("q", wait=60))
                await town.clock.sleep(n * 0.002)
                claim.cancel()
                await asyncio.wait([claim])
                await town.clock.sleep(1)
                if claim.cancelled():
                    (again,) = await near.claim("q", wait=5)
                    assert again.id == f"j{n}" and again.attempts == 0
                    await near.complete(again.id, again.lease)
                else:
                    (got,) = claim.result()
                    await far.complete(got.id, got.lease)

    in_town(main, seeds=3)


def test_a_follower_that_dies_leaves_no_claim_that_waits() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (holder, follower):
            waits = asyncio.ensure_future(jobs(follower).claim("q", wait=60))
            await town.clock.sleep(1)
            await crash(follower)
            await town.clock.sleep(0.001)
            await jobs(holder).run_after(0, "q:w", queue="q")
            (got,) = await jobs(holder).claim("q", wait=0)
            assert got.attempts == 0
            with pytest.raises(HostClosedError):
                await waits

    in_town(main)


def test_a_follower_that_stops_lets_nobody_wait_and_ends_its_handles() -> None:
    async def main(town: Town) -> None:
        holder, follower = town.host("first"), town.host("second")
        async with holder:
            async with follower:
                t = jobs(follower)
                await t.run_after("1h", "a:b", id="x", keep_result="1h")
                claim = asyncio.ensure_future(t.claim("q", wait=60))
                result = asyncio.ensure_future(t.result("x"))
                await town.clock.sleep(1)
                follower.stop_waiting()
                assert await claim == []
                with pytest.raises(HostClosedError, match="'x' is pending, and the host is stopping"):
                    await result
                with pytest.raises(HostClosedError):
                    await t.claim("q", wait=60)
            with pytest.raises(HostClosedError, match="not open"):
                await t.cancel("x")
            assert holder.ready and not follower.ready
            async with follower:
                assert await t.get("x") is not None, "the same handle, after it was entered again"

    in_town(main)


def test_a_stranger_without_the_token_is_turned_away() -> None:
    async def main(town: Town) -> None:
        async with town.host("first"):
            town.token = "guessed"
            with pytest.raises(TocsinError, match=r"does not let this process in|is not that of the lock file"):
                await town.host("second").__aenter__()

    in_town(main)


def test_a_process_that_is_configured_differently_is_served_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(town: Town) -> None:
        first = town.host("first")
        second = town.host("second", lanes=3)
        async with first, second:
            assert await jobs(second).run_after("1h", "a:b")

    in_town(main)
    (said,) = [record.getMessage() for record in caplog.records if "not configured as" in record.getMessage()]
    assert "serves it: lanes;" in said


def test_a_process_without_an_origin_schedules_callbacks_while_the_holder_has_one() -> None:
    async def main(town: Town) -> None:
        first, script = town.host("first"), town.host("script", origin=None)
        with pytest.raises(OriginNotConfiguredError):
            await jobs(script).run_after(0, "a:b")
        async with first, script:
            t = jobs(script)
            await t.run_after(0, "a:b", id="x")
            await t.schedules.put("s", "a:b", every=60)
            await town.clock.sleep(5)
            assert [one for _, one in town.arrived] == ["x"]
            await crash(first)
            await t.run_after("1h", "q:w", queue="q")
            with pytest.raises(OriginNotConfiguredError):
                await t.run_after(0, "a:b")
            await crash(script)

    in_town(main)


def test_two_followers_have_done_what_is_due_and_wait_for_nobody_who_waits() -> None:
    async def main(town: Town) -> None:
        async with town.host("first"), town.host("second") as second, town.host("third") as third:
            waits = asyncio.ensure_future(jobs(second).claim("q", wait=60))
            await jobs(second).run_after(5, "a:b")
            runs = await asyncio.gather(second.run_due("10s"), third.run_due("10s"))
            assert [one.succeeded for one in runs] == [1, 1] and town.clock.monotonic() < 20
            waits.cancel()

    in_town(main)


def test_a_store_in_memory_is_nobody_elses() -> None:
    assert ActorHost.open("memory:")._sharing is None


def test_the_audit_log_names_who_asked_in_whichever_process_they_did() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (holder, follower):
            for host, user in ((holder, "alice"), (follower, "bob")):
                by = host.scheduler("a", by=user)
                await by.run_after("1h", "a:b", id=user)
                gone = await by.cancel_all(all=True)
                assert gone.action_id is not None
                undone = await by.undo(gone.action_id)
                assert undone.restored == 1
                await by.cancel(user)
                await asyncio.sleep(1)
            await jobs(follower, "a").set_pool("p", max_concurrency=2)
            found = [(one.action, one.by.user) for one in (await jobs(follower, "a").audit()).actions]
            assert found[0] == ("set_pool", None)
            assert {user for _, user in found[1:4]} == {"bob"} and {user for _, user in found[4:]} == {"alice"}
            assert len(found) == 7

    in_town(main)
