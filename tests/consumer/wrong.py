"""What type checkers must find wrong, one at the end of each line that says so, and nothing else."""

from __future__ import annotations

from app import Invoice, archive, heavy, remind, sweep, tasks

from tocsin import JobContext, Scheduler, SyncScheduler


async def wrong(jobs: Scheduler, context: JobContext, client: SyncScheduler) -> None:
    await remind.after("5m")  # wrong
    await remind.after("5m", 1)  # wrong
    await remind.after("5m", Invoice(1, "a"), copies="3")  # wrong
    await remind.after("5m", Invoice(1, "a"), False, 3)  # wrong
    await remind.after("5m", Invoice(1, "a"), urgnt=True)  # wrong
    await remind.after(context, Invoice(1, "a"))  # wrong
    await remind.now(context, Invoice(1, "a"))  # wrong
    await archive.at("tomorrow", 1)  # wrong
    await archive.now("1")  # wrong
    await sweep.now(1)  # wrong
    await archive.options(pol="disk").now(1)  # wrong
    await archive.options(priority="high").now(1)  # wrong
    await jobs.task("charge", _charge).now(euros=5)  # wrong
    archive.job("1")  # wrong
    archive(1)  # wrong
    number: int = await heavy.now(1)  # wrong
    await jobs.run_after("5m", "x", {}, pol="disk")  # wrong
    await jobs.pools("stripe").set(max_concurrency="2")  # wrong
    tasks.bind("jobs")  # wrong
    archive.on(client).now("1")  # wrong
    later: int = archive.on(client).now(1)  # wrong
    print(number, later)


async def _charge(cents: int) -> None: ...
