"""One reader of the feed of each instance that is watched in this process; every watcher takes its frames from there.

A watcher holds nothing but its place. One whose place the reader has not got, because it comes back, lags, or is the
first, asks the scheduler itself for what is behind it. So nobody waits for anybody, and a watcher costs no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.model.feed_frames import FeedPage, head_of
from tocsin.errors import HostClosedError, TocsinError

log = logging.getLogger("tocsin.http")

WAIT_S: Final = 25.0
"""For how long one question waits. It is asked again, so this only bounds how long a lost one is not noticed."""
AGAIN_S: Final = 1.0
"""After a question that failed."""
KEPT: Final = 64
KEPT_BYTES: Final = 4 * 1024 * 1024


class Frame(msgspec.Struct, frozen=True):
    """A frame as it goes out, made once for all watchers: on a WebSocket, and as an event of a stream."""

    seq: str
    text: str
    event: bytes


def frames_of(page: FeedPage) -> list[Frame]:
    """Return the frames of a page as they go out."""
    found: list[Frame] = []
    for one in page.frames:
        raw = bytes(one)
        kind, seq = head_of(raw)
        event = b"id: %b\nevent: %b\ndata: %b\n\n" % (seq.encode(), kind.encode(), raw)
        found.append(Frame(seq, raw.decode(), event))
    return found


class Fanout:
    """The reader of one instance."""

    def __init__(self, port: SchedulerPort) -> None:
        self._port = port
        self._watchers = 0
        self._seq: str | None = None
        self._frames: deque[tuple[str, Frame]] = deque()
        """Those read last, each with the place before it."""
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self.ended = False
        """True once the instance was removed."""
        self.failure: Exception | None = None
        """Why there is nothing more to be read."""

    def join(self) -> None:
        self._watchers += 1

    def leave(self) -> bool:
        """Count a watcher out; return whether it was the last one. Then nothing is read any more."""
        self._watchers -= 1
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None
        return not self._watchers

    async def ask(self, since: str | None) -> tuple[list[Frame], str]:
        """Return what is behind a place, and the place behind that, from the scheduler itself."""
        page = await self._port.reads.changes(since=since, wait_s=0)
        self.ended = self.ended or page.ended
        if self._task is None and self._watchers and not page.ended:
            self._seq = page.seq
            self._task = asyncio.get_running_loop().create_task(self._read())
        return frames_of(page), page.seq

    def behind(self, seq: str) -> Sequence[Frame] | None:
        """Return the frames behind a place; None if it is none of those that were read last."""
        if seq == self._seq:
            return ()
        found: list[Frame] | None = None
        for before, frame in self._frames:
            if before == seq:
                found = []
            if found is not None:
                found.append(frame)
        return found

    async def news(self) -> None:
        """Wait until the reader has read something, or ends."""
        if self.ended or self.failure is not None:
            return
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(one)
        try:
            await one
        finally:
            self._waiting.discard(one)

    # ---- The reader ------------------------------------------------------------------------------

    async def _read(self) -> None:
        is_said = False  # once for each trouble: a store that is away is asked by all that are watched, each second
        try:
            while not self.ended:
                try:
                    self._take(await self._port.reads.changes(since=self._seq, wait_s=WAIT_S))
                    is_said = False
                except HostClosedError:
                    raise
                except TocsinError as error:
                    if not is_said:
                        words = "the feed of %r could not be read, tried each %g s until it can: %s"
                        log.warning(words, self._port.name, AGAIN_S, error)
                    is_said = True
                    await asyncio.sleep(AGAIN_S)
        except Exception as error:  # whatever it is, nobody must wait for more in vain
            self.failure = error
        finally:
            self._wake()

    def _take(self, page: FeedPage) -> None:
        for frame in frames_of(page):
            assert self._seq is not None, "it begins where a watcher did"
            self._frames.append((self._seq, frame))
            self._seq = frame.seq
            self._bytes += len(frame.event)
        while len(self._frames) > KEPT or self._bytes > KEPT_BYTES:
            self._bytes -= len(self._frames.popleft()[1].event)
        self._seq, self.ended = page.seq, page.ended
        if page.frames or page.ended:
            self._wake()

    def _wake(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()


class Fanouts:
    """The readers of one app."""

    def __init__(self, ports: Callable[[str], SchedulerPort]) -> None:
        self._ports = ports
        self._by_name: dict[str, Fanout] = {}

    @asynccontextmanager
    async def watching(self, instance: str) -> AsyncIterator[Fanout]:
        """Give the reader of an instance, which there is as long as somebody watches."""
        port = self._ports(instance)
        found = self._by_name.get(port.name)
        if found is None or found.ended or found.failure is not None:
            found = self._by_name[port.name] = Fanout(port)
        found.join()
        try:
            yield found
        finally:
            if found.leave() and self._by_name.get(port.name) is found:
                del self._by_name[port.name]
