"""Hooks of a worker that fail in every way: each failure is counted, and the worker goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.dispatch.worker.fake_queue import WorkerFixture, on_fake_queue


class OfItsOwn(BaseException):
    """What no `except Exception` catches."""


def cancels_itself(*told: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return asyncio.sleep(1)


def raising(error: BaseException) -> Callable[..., None]:
    def hook(*told: Any) -> None:
        raise error

    return hook


FAILING_HOOKS: dict[str, Callable[..., Any]] = {
    "error": raising(ValueError()), "exit": raising(SystemExit(3)), "cancelled": raising(asyncio.CancelledError()),
    "of its own": raising(OfItsOwn()), "group": raising(BaseExceptionGroup("", [OfItsOwn()])),
    "cancels itself": cancels_itself, "hangs": lambda *told: asyncio.sleep(10**6),
}  # fmt: skip


@pytest.mark.parametrize("how", FAILING_HOOKS)
def test_each_failure_of_a_hook_is_counted_and_none_ends_the_worker(how: str) -> None:
    hook = FAILING_HOOKS[how]

    @on_fake_queue
    async def failures(workers: WorkerFixture) -> None:
        await failures_of(workers, hook)

    failures()


async def failures_of(workers: WorkerFixture, hook: Callable[..., Any]) -> None:
    async def fails(args: Any) -> None:
        raise ValueError(args)

    worker = workers.worker({"work": fails}, on_retry=hook, on_final_failure=hook)
    async with worker:
        for n in range(6):
            workers.queue.put("work", n, attempts=5 * (n % 2))
        workers.queue.put("other")
        await workers.queue.all_settled(7)

    assert (worker.tally.retrying, worker.tally.dead, worker.tally.hook_failures) == (4, 3, 7)


@on_fake_queue
async def test_each_failure_of_a_heartbeat_is_counted(workers: WorkerFixture) -> None:
    heard: list[Any] = []

    def on_heartbeat(snapshot: Any) -> None:
        heard.append(snapshot)
        raise SystemExit(3)

    worker = workers.worker({"work": lambda args: None}, on_heartbeat=on_heartbeat)
    async with worker:
        await asyncio.sleep(60)

    assert len(heard) == worker.tally.hook_failures > 6
