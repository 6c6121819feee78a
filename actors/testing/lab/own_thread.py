"""A `SyncClient` in the thread of a lab: the loop that is to answer it lives in the thread that waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from tocsin.actors.client.blocking import Running
from tocsin.actors.client.client import Client
from tocsin.actors.testing.lab.loop_time import times_of_this_thread
from tocsin.dispatch.testing import InProcess
from tocsin.errors import SettingsError

T = TypeVar("T")
_CALL: Final[Callable[..., Any]] = Running.call
_WAIT: Final[Callable[..., Any]] = Running._wait


def call(running: Running, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Stand for `Running.call`. SettingsError where the lab could never answer."""
    if times_of_this_thread() and _is_led(running.client) and _loop_runs():
        raise SettingsError(
            "a SyncClient blocks this thread, in which the event loop of the lab runs, so nobody could answer it: in a "
            "coroutine use a Client, or `await asyncio.to_thread(...)` what calls the SyncClient"
        )
    answer: T = _CALL(running, ask)
    return answer


def wait(running: Running, answer: concurrent.futures.Future[T]) -> T:
    """Stand for `Running._wait`: run the loop of this thread's lab until the answer is there. Time stands still."""
    mine = times_of_this_thread()
    if mine and _is_led(running.client):
        loop: asyncio.AbstractEventLoop = mine[-1].loop
        loop.run_until_complete(_ended(answer))
    said: T = _WAIT(running, answer)
    return said


async def _ended(answer: concurrent.futures.Future[Any]) -> None:
    """Wait until there is an answer, whatever it is."""
    counted: concurrent.futures.Future[None] = concurrent.futures.Future()  # a Ctrl-C cancels this one, not the answer
    answer.add_done_callback(lambda _: None if counted.done() else counted.set_result(None))
    await asyncio.wrap_future(counted)


def _is_led(client: Client) -> bool:
    """Return whether a lab answers this client, or will: its owner gave it no transport."""
    return client._server._transport is None or isinstance(client._server._transport, InProcess)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
