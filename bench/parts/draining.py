"""Jobs that are all due: callbacks a second at 64 lanes, signed, claims and settlements on disk; and lanes of one."""

from __future__ import annotations

from bench.figures import Row
from bench.lease import rate
from bench.setting import Part, Setting, due_at_once

DRAIN = (Row("drain", "drain at 64 lanes, signed", least=6_000, limits=("client/64", "bare/64", "fire/64")),)
HAND_OVER = (
    Row("handover", "hand-over of the one slot of a pool", least=1_500, limits=("commit/1", "client/1", "bare/1")),
)


async def drain(bench: Setting) -> None:
    count = bench.count(8_000)
    async with bench.open() as host:
        stats, cost = await due_at_once(bench, host.scheduler("bench"), count)
    bench.book.note("drain", rate(count - 1, stats["seconds"]), cost.per(count))


async def hand_over(bench: Setting) -> None:
    """Each start waits for an end, which is on disk before."""
    count = bench.count(1_500)
    async with bench.open() as host:
        jobs = host.scheduler("bench")
        await jobs.set_pool("p", max_concurrency=1)
        stats, cost = await due_at_once(bench, jobs, count, {"pool": "p"})
    bench.book.note("handover", rate(count - 1, stats["seconds"]), cost.per(count))


DRAINING = Part("drain", "Callbacks", DRAIN, drain)
HANDING_OVER = Part("handover", "A pool of one", HAND_OVER, hand_over)
