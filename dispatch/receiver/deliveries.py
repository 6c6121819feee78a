"""The deliveries of a receiver that are under way, for callers that await them and for callers that block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Executor
from typing import Any, TypeVar

from tocsin.dispatch.receiver.blocking import CallerThread, LoopThread, refuse_in_event_loop

T = TypeVar("T")


class Deliveries:
    """Tasks in the event loops of those who await them and, for callers that block, in a loop of their own.

    `running`: all of them; whoever begins one adds it.
    """

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()
        self._own = LoopThread("tocsin-receiver")

    def wait_for(self, delivery: Callable[[Executor], Coroutine[Any, Any, T]]) -> T:
        """Make a delivery, which is given this thread to run plain functions on, and wait for it.

        RuntimeError in a thread that runs an event loop; NoThread after `stop`, and if none can be had;
        asyncio.CancelledError if the delivery was cancelled before it began.
        """
        refuse_in_event_loop("handle_sync", "handle")
        caller = CallerThread()
        try:
            ended = caller.wait(self._own.submit(self._for_caller(delivery, caller)))
        except CancelledError:
            raise asyncio.CancelledError from None
        if isinstance(ended, BaseException):
            raise ended
        return ended

    async def _for_caller(
        self, delivery: Callable[[Executor], Coroutine[Any, Any, T]], caller: CallerThread
    ) -> T | KeyboardInterrupt | GeneratorExit:
        """Return also what would end the loop, for the caller to raise on its thread."""
        task = asyncio.current_task()
        assert task is not None
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        try:
            return await delivery(caller)
        except (KeyboardInterrupt, GeneratorExit) as end:
            return end

    def open(self) -> None:
        """Take deliveries of callers that block again."""
        self._own.open()

    async def drain(self, drain_s: float) -> None:
        """Let deliveries end, and cancel what has not ended after `drain_s`, or when this is cut off."""
        if self._own.elsewhere:
            of_callers = asyncio.wrap_future(self._own.submit(self._drain_here(drain_s)))
            await asyncio.gather(self._drain_here(drain_s), of_callers)
        else:
            await self._drain_here(drain_s)

    async def _drain_here(self, drain_s: float) -> None:
        own, loop = asyncio.current_task(), asyncio.get_running_loop()
        waiting = [task for task in self.running if task is not own and task.get_loop() is loop]
        if not waiting:
            return
        try:
            await asyncio.wait(waiting, timeout=drain_s)
        finally:  # cut off, too: they give up their claims before the store is closed
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    def stop(self) -> None:
        """End the loop for callers that block, unless this is called in it."""
        self._own.stop()

    def close(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `closing` in the loop for callers that block, then end that loop. Errors as of `wait_for`."""
        refuse_in_event_loop("close", "aclose")
        self._own.submit(closing()).result()
        self._own.stop()
