"""A worker in a process of its own, from its first claim to a drained stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tocsin.cli.client import Connection
from tocsin.cli.failure import Interrupted, NobodyReads, Refused, Unwritable
from tocsin.cli.http_server import loop_factory
from tocsin.cli.output import emit, plural
from tocsin.cli.words import say
from tocsin.errors import TocsinError

if TYPE_CHECKING:
    from tocsin.dispatch.worker.worker import Worker

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
Make = Callable[[Any, Any], "Worker"]
"""From the scheduler and a listener (or None) to a worker."""


def run(connection: Connection, make: Make, drain_s: float | None) -> None:
    """Until a signal, or until the server can never be served. Raises Refused, Interrupted.

    `drain_s` None: jobs have as long to end in as the worker itself says.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        interrupted = runner.run(_work(connection, make, drain_s))
        if interrupted and _a_thread_goes_on():
            say("tocsin: stopped; a thread went on, and its job comes again when its lease would have ended")
            os._exit(Interrupted.exit_code)  # the interpreter would wait for it
    if interrupted:
        raise Interrupted(f"{plural(interrupted, 'job')} had to be interrupted, and went back")
    say("tocsin: stopped")


def _a_thread_goes_on() -> bool:
    """Whether one of the worker's has something to do yet; idle ones end at once."""
    threads = [one for one in threading.enumerate() if one.name.startswith("tocsin-worker")]
    for one in threads:
        one.join(0.2)
    return any(one.is_alive() for one in threads)


async def _work(connection: Connection, make: Make, drain_s: float | None) -> int:
    """How many jobs had to be interrupted."""
    from tocsin.dispatch.worker.remote import RemoteScheduler

    async with RemoteScheduler(
        connection.url, token=connection.token, instance=connection.instance, ca_file=connection.ca_file
    ) as jobs:
        worker = make(jobs, _shown if connection.as_json else None)
        stop = _Stop(worker, worker.drain_s if drain_s is None else drain_s)
        with stop.at_signals():
            say(f"tocsin: worker {worker.info.id} serves {connection.instance} at {connection.url}")
            try:
                await worker.run()
            except TocsinError as error:
                raise Refused(f"{error.message} [{error.code}]") from None
            return await stop.ended()


def _shown(snapshot: Any) -> None:
    import msgspec

    with contextlib.suppress(NobodyReads, Unwritable):  # the worker's work goes on
        emit(msgspec.to_builtins(snapshot))


class _Stop:
    """What signals do: the first drains, the second gives back what runs, a third ends the process."""

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

    @contextlib.contextmanager
    def at_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        earlier = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        for number in STOP_SIGNALS:
            try:
                loop.add_signal_handler(number, self.ask)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self.ask))
        try:
            yield
        finally:
            for number, handler in earlier.items():
                with contextlib.suppress(NotImplementedError):
                    loop.remove_signal_handler(number)
                signal.signal(number, handler)
