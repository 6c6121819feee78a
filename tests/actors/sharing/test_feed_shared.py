"""The feed in a process that does not hold the store: its watchers are served there, and over a change of holders."""

from __future__ import annotations

import asyncio

from tests.actors.scheduler.mirror import Mirror, listed, truth
from tests.actors.sharing.test_following import in_town
from tests.actors.sharing.town import Town, jobs
from tests.http.test_changes import Watcher
from tocsin.actors.scheduler.client.scheduler import Scheduler


async def keep(mirror: Mirror, there: Scheduler) -> None:
    async for frame in there.changes(since=mirror.seq):
        mirror.take(frame)
        if frame.type == "snapshot" and mirror.stale:
            mirror.load(await listed(there), [])


def test_who_watches_at_a_follower_knows_what_others_change_also_over_a_take_over() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (holder, follower):
            mirror = Mirror()
            watching = asyncio.create_task(keep(mirror, jobs(follower)))
            for n in range(5):
                await jobs(holder).run_after("1h", "p", id=f"h{n}")
                await jobs(follower).run_after("1h", "p", id=f"f{n}")
            await town.clock.sleep(1)
            assert mirror.jobs == await truth(jobs(holder)) and len(mirror.jobs) == 10
            assert mirror.resyncs == 0

            await town.kill_holder()
            await town.clock.sleep(2)
            await jobs(follower).cancel("h0")
            await jobs(follower).run_after("1h", "p", id="after")
            await town.clock.sleep(2)
            assert mirror.jobs == await truth(jobs(follower)) and "after" in mirror.jobs
            assert mirror.resyncs == 1
            watching.cancel()

    in_town(main, seeds=3)


def test_a_follower_streams_events_of_its_own_and_all_its_watchers_are_one_question_to_the_holder() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (holder, follower):
            app = follower.asgi(insecure=True)
            watchers = [Watcher(app, "/changes") for _ in range(10)]
            for one in watchers:
                await one.until("snapshot")
            await town.clock.sleep(1)
            sharing = holder._sharing
            assert sharing is not None and sharing.holder is not None
            assert sum(len(link._calls) for link in sharing.holder.links) == 1
            await jobs(holder).run_after("1h", "p", id="one")
            for one in watchers:
                await one.until('"one"')
                one.left.set()
                await one.end()

    in_town(main)


def test_a_pass_of_one_process_opens_a_socket_at_another_once() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (holder, follower):
            await follower.passes.keep("digest", "t/x")
            assert await holder.passes.take("digest") == "t/x"
            assert await follower.passes.take("digest") is None

    in_town(main)


def test_a_follower_that_stops_lets_its_watchers_go() -> None:
    async def main(town: Town) -> None:
        async with town.two() as (_, follower):
            watcher = Watcher(follower.asgi(insecure=True), "/changes")
            await watcher.until("snapshot")
            follower.stop_waiting()
            await watcher.end()

    in_town(main)
