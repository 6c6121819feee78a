"""Apps whose tasks begin eagerly (`asyncio.eager_task_factory`, from Python 3.12 on) have a host like others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tocsin import Actor, ActorHost, Handlers, JobFailedError, Retry, Worker
from tocsin.errors import HostClosedError
from tocsin.storage.tasks import task_maker


class Counter(Actor):
    async def add(self, n: int) -> int:
        value = int(await self.ctx.storage.get(b"n") or b"0") + n
        self.ctx.storage.put(b"n", b"%d" % value)
        return value


handlers = Handlers()


@handlers.handler("sums:add")
async def add(args: dict[str, int]) -> int:
    return args["a"] + args["b"]


@handlers.handler("sums:refuse")
async def refuse(args: object) -> None:
    raise ValueError("no")


async def use_all_of_a_host(store: Path) -> None:
    async with asyncio.timeout(30), ActorHost.open(f"sqlite:///{store}", actors=[Counter]) as host:
        counted = await asyncio.gather(*(host.actor(Counter, "x").add(1) for _ in range(5)))
        jobs = host.scheduler("sums")
        async with Worker(jobs, handlers, concurrency=3):
            ids = [
                await jobs.run_after(0, "sums:add", {"a": n, "b": 1}, queue="q", keep_result="1h") for n in range(10)
            ]
            sums = [await jobs.result(one, timeout="10s") for one in ids]
            refused = await jobs.run_after(0, "sums:refuse", queue="q", keep_result="1h", retry=Retry(max_retries=0))
            with pytest.raises(JobFailedError, match="ValueError: no"):
                await jobs.result(refused, timeout="10s")

        assert sorted(counted) == [1, 2, 3, 4, 5]
        assert sums == list(range(1, 11))
        assert (await jobs.status()).backlog == 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks do not begin eagerly before Python 3.12")
def test_a_host_serves_an_app_whose_tasks_begin_eagerly(tmp_path: Path) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
        await use_all_of_a_host(tmp_path / "jobs.db")

    asyncio.run(main())


def test_a_host_serves_an_app_whose_tasks_begin_later(tmp_path: Path) -> None:
    asyncio.run(use_all_of_a_host(tmp_path / "jobs.db"))


def create_eager_task_factory(asked: list[object]) -> Callable[..., asyncio.Task[Any]]:
    """Make a factory by the name that asyncio's own has from Python 3.12 on."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        asked.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    return make


def test_a_task_of_tocsin_is_not_made_by_a_factory_that_would_begin_it_at_once() -> None:
    asked: list[object] = []
    steps: list[str] = []

    async def step() -> None:
        steps.append("begun")

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(create_eager_task_factory(asked))
        task = task_maker(asyncio.get_running_loop())(step())
        steps.append("noted")
        await asyncio.wait([task])
        assert asked == []

    asyncio.run(main())

    assert steps == ["noted", "begun"]


def test_a_host_that_was_closed_says_so_in_another_loop_as_well(tmp_path: Path) -> None:
    host = ActorHost.open(f"sqlite:///{tmp_path}/jobs.db")

    async def use() -> None:
        async with host:
            await host.scheduler().run_after("1h", "sums:add", id="x", queue="q")

    async def ask() -> None:
        for call in (host.scheduler().cancel("x"), host.scheduler().run_after("1h", "sums:add", queue="q")):
            with pytest.raises(HostClosedError):
                await call

    asyncio.run(use())
    asyncio.run(ask())
