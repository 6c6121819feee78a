"""An app of somebody who has installed tocsin: strict type checkers find nothing in it, and know these types."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_type

from tocsin import (
    ActorHost,
    Client,
    Context,
    HandlerError,
    Handlers,
    Job,
    JobContext,
    Received,
    Receiver,
    Retry,
    Scheduler,
    SyncClient,
    Tasks,
    TerminalError,
    TocsinError,
    Worker,
)
from tocsin.errors import JobFailedError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tocsin import Task


@dataclass
class Invoice:
    number: int
    customer: str


class CardDeclined(TerminalError):
    code, status = "card_declined", 402


tasks = Tasks()


@tasks.task("invoices:remind", queue="mail", retry=Retry(max_retries=3))
async def remind(job: JobContext, invoice: Invoice, urgent: bool = False, *, copies: int = 1) -> None:
    assert_type(job.attempt, int)
    if copies > 9:
        raise CardDeclined("too many", data={"copies": copies})


@tasks.task("invoices:archive")
def archive(number: int) -> None:
    raise HandlerError(f"no archive for {number}", code="no_archive")


@tasks.task("worker:only", queue="heavy")
async def heavy(context: Context, number: int) -> int:
    context.assert_ownership()
    return number


@tasks.task("receiver:only")
async def called(job: Received, number: int) -> int:
    return number


@tasks.task("sweep")
async def sweep() -> None: ...


async def use(jobs: Scheduler) -> tuple[int, str]:
    one = await remind.on(jobs).after("5m", Invoice(1, "a"), True, copies=2)
    assert_type(one, str)
    assert_type(await archive.options(id="archive-1", pool=jobs.pools("disk")).now(1), str)
    assert_type(await heavy.at(1_800_000_000_000, number=1), str)
    assert_type(await called.now(3), str)
    assert_type(await sweep.now(), str)
    charge = jobs.task("charge", _charge, priority=3)
    assert_type(charge.job(1), Job)
    await charge.options(then=[archive.job(1), remind.job_after("1d", Invoice(1, "b"))]).now(cents=5)
    answers = await jobs.submit_many([archive.job_after(60, 1)])
    failures = [answer for answer in answers if isinstance(answer, TocsinError)]
    await jobs.schedules.put("sweep", sweep.job(), cron="0 4 * * *", timezone="Europe/Berlin")
    stripe = jobs.pools("stripe")
    await stripe.set(max_concurrency=2)
    assert_type((await stripe.pause()).paused, bool)
    try:
        await jobs.result(one, timeout="10s")
    except JobFailedError as error:
        assert_type(error.code, str)
        return error.status, error.code
    return len(failures), one


async def far_away() -> str:
    async with Client("http://127.0.0.1:8321", token="secret") as client:
        jobs = client.scheduler("tenant-a")
        assert_type(await archive.on(jobs).after("5m", 1), str)
        return await remind.on(jobs).now(Invoice(1, "a"))


def blocking() -> str:
    with SyncClient("http://127.0.0.1:8321", token="secret") as client:
        jobs = client.scheduler("tenant-a")
        assert_type(jobs.pools("stripe").pause().paused, bool)
        assert_type(jobs.task("charge", _charge).after("5m", cents=5), str)
        return archive.on(jobs).after("5m", number=1)


async def _charge(cents: int) -> None: ...


def passed_on(task: Task[[int], Coroutine[Any, Any, str]]) -> Task[[int], Coroutine[Any, Any, str]]:
    return task


receiver = Receiver(lambda: ["whsec_c2VjcmV0IG9mIGF0IGxlYXN0IDI0IGJ5dGVz"])
receiver.register(tasks)
handlers = Handlers()


@handlers.handler("plain", timeout="5m")
async def plain(args: dict[str, int], context: Context) -> int:
    return args["n"] + context.attempt


@asynccontextmanager
async def opened() -> AsyncGenerator[Scheduler]:
    async with ActorHost.open("memory:", catalog=lambda: tasks.catalog | handlers.catalog) as host:
        jobs = host.scheduler("tenant-a")
        unbind = tasks.bind(jobs)
        async with Worker(jobs, tasks), Worker(host.scheduler("tenant-b"), handlers, concurrency=2):
            yield jobs
        unbind()
