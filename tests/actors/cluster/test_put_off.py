"""Debounce and throttle over several hosts: 256 callers at once, hosts that come and go."""

from __future__ import annotations

import asyncio

from tests.actors.cluster.village import NAMES, Village, in_village
from tocsin.actors.actor_host import ActorHost
from tocsin.errors import ThrottledError

CALLERS = 256


async def call(hosts: list[ActorHost], n: int) -> bool:
    """Ask once for each of two ids, at one host or another; True if the throttled one was accepted."""
    jobs = hosts[n % len(hosts)].scheduler(NAMES[n % 4])
    await jobs.run_debounced("2s", "w:index", {"n": n}, id=f"index-{NAMES[n % 4]}", max_wait="5s")
    try:
        await jobs.run_after(0, "w:mail", {"n": n}, id=f"mail-{NAMES[n % 4]}", throttle="1m")
    except ThrottledError:
        return False
    return True


def test_256_callers_at_two_hosts_make_one_job_of_each_id_also_while_one_stops() -> None:
    async def main(village: Village) -> None:
        hosts = [await village.join(name) for name in ("one", "two")]
        began = village.clock.now_ms()
        stopping: asyncio.Task[None] | None = None
        accepted = 0
        for turn in range(4):
            accepted += sum(await asyncio.gather(*(call(hosts, n) for n in range(CALLERS // 4))))
            if turn == 1:
                stopping = asyncio.create_task(hosts.pop(0).stop())
            await asyncio.sleep(1.0)
        for n in range(4):
            await (
                hosts[0]
                .scheduler(NAMES[n])
                .run_debounced("2s", "w:index", {"n": "last"}, id=f"index-{NAMES[n]}", max_wait="5s")
            )
        assert stopping is not None
        await stopping
        await asyncio.sleep(10.0)

        assert accepted == 4, "one of each id"
        sent = [(one.id, one.body["args"]["n"]) for one in village.receiver.deliveries]
        assert sorted(one for one in sent if one[0].startswith("index")) == [(f"index-{n}", "last") for n in NAMES[:4]]
        assert sum(one[0].startswith("mail") for one in sent) == 4
        due = [at for at, job in village.arrived if job.startswith("index")]
        assert all(at <= began + 5_500 for at in due), [at - began for at in due]

    in_village(main)
