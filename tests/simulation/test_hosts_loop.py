"""Hosts in one event loop that stop and go on."""

from __future__ import annotations

import asyncio
from random import Random

from tests.simulation.hosts_loop import HostsLoop, simulate_hosts


def test_a_stopped_host_does_nothing_until_it_goes_on_and_the_others_do() -> None:
    seen: list[tuple[str, float]] = []

    async def ticks(loop: HostsLoop, host: str) -> None:
        while True:
            await asyncio.create_task(asyncio.sleep(1))  # what a host starts belongs to it
            seen.append((host, loop.time()))

    async def main(loop: HostsLoop, random: Random) -> None:
        tasks = [asyncio.create_task(ticks(loop, host), context=loop.context_of(host)) for host in ("one", "two")]
        await asyncio.sleep(1.5)
        loop.stop_host("one")
        await asyncio.sleep(3)
        assert loop.is_stopped("one") and [one for one in seen if one[0] == "one"] == [("one", 1.0)]
        loop.continue_host("one")
        await asyncio.sleep(0.25)
        assert not any(task.done() for task in tasks)

    simulate_hosts(1, main)

    assert [at for host, at in seen if host == "one"] == [1.0, 4.5]
    assert [at for host, at in seen if host == "two"] == [1.0, 2.0, 3.0, 4.0]


def test_who_waits_for_a_stopped_host_gets_its_answer_later() -> None:
    async def main(loop: HostsLoop, random: Random) -> float:
        async def answer(reply: asyncio.Future[None]) -> None:
            await asyncio.sleep(1)
            reply.set_result(None)

        reply: asyncio.Future[None] = loop.create_future()
        task = asyncio.create_task(answer(reply), context=loop.context_of("one"))
        loop.stop_host("one")
        loop.call_later(60, loop.continue_host, "one")
        await reply
        await task
        return loop.time()

    assert simulate_hosts(1, main) == 61.0
