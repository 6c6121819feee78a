"""Schedules a second: one call a job from 1 and 32 producers, ids minted or their own, and in bulk."""

from __future__ import annotations

from bench.cpu import spent
from bench.figures import Row
from bench.lease import FAR_MS, PAYLOAD, now_ms
from bench.setting import BULK, Part, Setting, far, preload, produced

ROWS = (
    Row("schedule/1/minted", "schedules, 1 producer, ids minted", least=2_500, limits=("commit/1",)),
    Row("schedule/1/own", "schedules, 1 producer, own ids", limits=("commit/1",)),
    Row("schedule/32/minted", "schedules, 32 producers, ids minted", least=20_000, limits=("commit/32",)),
    Row("schedule/32/own", "schedules, 32 producers, own ids", least=15_000, limits=("commit/32/own",)),
    Row("schedule/bulk", "schedules in bulk of 1,000", least=50_000, limits=("commit/1000",)),
)


async def measure(bench: Setting) -> None:
    """Each on a fresh store."""
    for producers, usual in ((1, 1_500), (32, 8_000)):
        for ids in ("minted", "own"):
            await _one_by_one(bench, bench.count(usual), producers, ids)
    count = bench.count(20, 1) * BULK if bench.scale >= 0.05 else bench.count(BULK)
    async with bench.open() as host:
        jobs = host.scheduler("bench")
        made = far(count)
        with spent() as cost:
            await preload(jobs, made)
    bench.book.note("schedule/bulk", count / cost.seconds, cost.per(count))


async def _one_by_one(bench: Setting, count: int, producers: int, ids: str) -> None:
    at = now_ms() + FAR_MS
    async with bench.open() as host:
        jobs = host.scheduler("bench")

        async def minted() -> None:
            await jobs.run_at(at, "bench:far", PAYLOAD)

        async def own() -> None:
            await jobs.run_at(at, "bench:far", PAYLOAD, id=bench.own_id())

        with spent() as cost:
            await produced(minted if ids == "minted" else own, count, producers)
    bench.book.note(f"schedule/{producers}/{ids}", count / cost.seconds, cost.per(count))


PART = Part("schedules", "Schedules", ROWS, measure)
