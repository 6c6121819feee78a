"""A worker in a process of its own, from its first claim to a drained stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tocsin.cli.client import Connection
from tocsin.cli.failure import Interrupted, NobodyReads, Refused, Unreachable, Unwritable
from tocsin.cli.http_server import loop_factory
from tocsin.cli.output import emit, plural
from tocsin.cli.signals import STOP_SIGNALS, at_signals
from tocsin.cli.words import say
from tocsin.errors import TocsinError, UnreachableError

if TYPE_CHECKING:
    from tocsin.dispatch.worker.worker import Worker

Make = Callable[[Any, Any], "Worker"]
"""From the scheduler and a listener (or None) to a worker."""


def run(connection: Connection, make: Make, drain_s: float | None, *, burst: bool = False) -> None:
    """Work until a signal, or until the server refuses for good; with `burst` until nothing more is due. Raise Refused,
    Unreachable, Interrupted.

    With `drain_s` None, jobs have as long to end as the worker itself says.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        interrupted = runner.run(_work(connection, make, drain_s, burst=burst))
        if interrupted and _a_thread_still_runs():
            say("tocsin: stopped; a thread was still running, and its job is tried again when its lease ends")
            os._exit(Interrupted.exit_code)  # the interpreter would wait for it
    if interrupted:
        raise Interrupted(f"{plural(interrupted, 'job')} had to be interrupted, and went back")
    if not burst:
        say("tocsin: stopped")


def _a_thread_still_runs() -> bool:
    """Return whether one of the worker's threads still runs a handler; idle ones end at once."""
    threads = [one for one in threading.enumerate() if one.name.startswith("tocsin-worker")]
    for one in threads:
        one.join(0.2)
    return any(one.is_alive() for one in threads)


async def _work(connection: Connection, make: Make, drain_s: float | None, *, burst: bool) -> int:
    """Run the worker, and return how many jobs had to be interrupted."""
    from tocsin.actors.client.client import Client

    async with Client(connection.url, token=connection.token, ca_file=connection.ca_file) as client:
        worker = make(client.scheduler(connection.instance), _shown if connection.as_json else None)
        stop = _Stop(worker, worker.drain_s if drain_s is None else drain_s)
        async with at_signals(stop.ask, *STOP_SIGNALS):
            say(f"tocsin: worker {worker.info.id} serves {connection.instance} at {connection.url}")
            try:
                if burst:
                    said = plural(await worker.run_once(), "job")
                    say(f"tocsin: {said} worked off, nothing more is due")
                else:
                    await worker.run()
            except UnreachableError as error:
                raise Unreachable(error.message) from None
            except TocsinError as error:
                raise Refused(f"{error.message} [{error.code}]") from None
            return await stop.ended()


def _shown(snapshot: Any) -> None:
    import msgspec

    with contextlib.suppress(NobodyReads, Unwritable):  # the worker's work goes on
        emit(msgspec.to_builtins(snapshot))


class _Stop:
    """Stops a worker by signals: the first drains, the second gives back what runs, a third ends the process."""

    def __init__(self, worker: Worker, drain_s: float | None) -> None:
        self._worker, self._drain_s = worker, drain_s
        self._asked = 0
        self._stopping: list[asyncio.Task[int]] = []

    def ask(self) -> None:
        self._asked += 1
        if self._asked > 2:
            say("tocsin: stopped at once; what ran is tried again when its lease ends")
            os._exit(Interrupted.exit_code)
        with contextlib.suppress(OSError):  # the terminal may be gone
            if self._asked == 1:
                say("tocsin: stopping; jobs may end (again: give them back)")
            else:
                say("tocsin: giving back what runs (again: stop at once)")
        timeout = self._drain_s if self._asked == 1 else 0
        self._stopping.append(asyncio.ensure_future(self._worker.stop_and_drain(timeout)))

    async def ended(self) -> int:
        return max(await asyncio.gather(*self._stopping), default=0)
