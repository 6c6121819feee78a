"""The live feed of one scheduler on its host: what changed and was not told yet, and the frames that were told.

Nothing of it is stored. A feed has a name that no other one ever has, and its frames are counted: a place in it, which
is the name and a number, means nothing to another feed. Nobody watches most schedulers, and those have no feed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Final, Protocol

from tocsin.errors import TocsinError

KEPT_S: Final = 120.0
"""So long a feed that nobody watches goes on, for those who come back."""
MOST_FRAMES: Final = 1_024
MOST_BYTES: Final = 4 * 1024 * 1024
"""Of frames that are kept for those who come back or lag: they are lost to who needs older ones."""
MOST_UNTOLD: Final = 20_000
"""If so many jobs change before anybody hears of it, the feed begins anew: a list is read sooner."""
JOBS_OF_A_FRAME: Final = 500
APART_S: Final = 0.1
"""So much time is between two frames."""

SWEEP_S: Final = 1.0
"""So often those are looked for that nobody watches any more."""

Touched = Mapping[str, str | None]
"""Ids of jobs that changed, each with how it ended if it did, and if that is known."""


class Feed:
    """The changes of one scheduler, from where its watchers began."""

    def __init__(self, name: Callable[[], str], monotonic: Callable[[], float], ends: dict[str, float]) -> None:
        self._new_name, self._monotonic, self._ends = name, monotonic, ends
        self.building = asyncio.Lock()
        self.ended = False
        """True once the instance was removed."""
        self.refusal: TocsinError | None = None
        """The answer to all who watch, once another host has the scheduler: its feed is another one."""
        self.built_at = float("-inf")
        """When the last frame was made, on the clock that never steps."""
        self._watchers = 0
        self._left_at = monotonic()
        self._waiting: set[asyncio.Future[None]] = set()
        self._begin()

    def _begin(self) -> None:
        self.name, self.number = self._new_name(), 0
        self.settled = False
        """False until all that was under way when this feed began is in the store."""
        self.snapshot: tuple[int, float, bytes] | None = None
        """The last one that was told: behind which frame, when, and its text."""
        self._untold: dict[str, str | None] = {}
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0

    # ---- Being told of changes -------------------------------------------------------------------

    @property
    def watchers(self) -> int:
        """Count those who watch this one."""
        return self._watchers

    def changed(self, touched: Touched) -> None:
        """Note what a turn changed, which is durable."""
        untold = self._untold
        for job_id, how in touched.items():  # a lease that outlives its job does not say how that ended
            untold[job_id] = how or untold.get(job_id)
        if len(self._untold) > MOST_UNTOLD:
            self._begin()
        self.wake()

    def doubt(self, touched: Touched) -> None:
        """Note what a turn changed that was lost: it is looked at again once it is certain what became of that."""
        self.settled = False
        self.changed(touched)

    def end(self) -> None:
        """Note that the instance was removed: nothing will ever change here."""
        self.ended = True
        self._ends[self.name] = self._monotonic()
        self.wake()

    def refuse(self, error: TocsinError) -> None:
        """Send all who watch elsewhere."""
        self.refusal = error
        self.wake()

    def wake(self) -> None:
        """Let all who wait look again."""
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()

    # ---- Telling ---------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Return whether something changed that is in no frame yet."""
        return bool(self._untold) or not self.settled

    def take(self) -> dict[str, str | None]:
        """Take ids for a frame, the oldest first."""
        if len(self._untold) <= JOBS_OF_A_FRAME:
            taken, self._untold = self._untold, {}
            return taken
        return {job_id: self._untold.pop(job_id) for job_id in list(self._untold)[:JOBS_OF_A_FRAME]}

    def put_back(self, taken: Touched) -> None:
        """Put back what was taken and is not told."""
        self._untold = {**taken, **self._untold}

    def add(self, text: bytes) -> None:
        """Add the next frame, whose number is `number + 1`."""
        self.number += 1
        self._frames.append((self.number, text))
        self._bytes += len(text)
        while len(self._frames) > MOST_FRAMES or (self._bytes > MOST_BYTES and len(self._frames) > 1):
            self._bytes -= len(self._frames.popleft()[1])
        self.wake()

    def seq(self, number: int) -> str:
        """Return a place in this feed as it is told."""
        return f"{self.name}-{number}"

    def place(self, seq: str) -> int | None:
        """Return the number of a place; None if it is none of this feed."""
        name, _, number = seq.rpartition("-")
        if name != self.name or not number.isascii() or not number.isdigit() or len(number) > len(str(self.number)):
            return None
        return int(number) if int(number) <= self.number else None

    def behind(self, number: int) -> list[bytes] | None:
        """Return the frames behind a place; None if some of them are not kept any more."""
        if number == self.number:
            return []
        if not self._frames or self._frames[0][0] > number + 1:
            return None
        return [text for n, text in self._frames if n > number]

    async def news(self) -> None:
        """Wait until something changed, or a frame was added."""
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(one)
        try:
            await one
        finally:
            self._waiting.discard(one)

    # ---- Being watched ---------------------------------------------------------------------------

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Keep the feed going as long as the block lasts, and for a while after it."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1
            self._left_at = self._monotonic()

    @property
    def is_over(self) -> bool:
        """Return whether nobody watches, or lately did."""
        return (
            self.ended
            or self.refusal is not None
            or (not self._watchers and self._monotonic() - self._left_at >= KEPT_S)
        )


class Watched(Protocol):
    """The object of one scheduler on this host: the turn looks there whether anybody watches."""

    feed: Feed | None


class Feeds:
    """The feeds of one host. What follows from its schedulers' rows is for others; here is who is watched."""

    def __init__(self, monotonic: Callable[[], float], random: Callable[[], Random]) -> None:
        self._monotonic, self._random = monotonic, random
        self._watched: dict[str, Watched] = {}
        self._swept_at = float("-inf")
        self._ends: dict[str, float] = {}
        """Names of feeds that ended lately, and when: who watched one, and did not ask just then, is told."""

    def of(self, name: str, inflight: Watched) -> Feed:
        """Return the feed of a scheduler, which begins now if nobody watched it."""
        if self._monotonic() >= self._swept_at + SWEEP_S:
            self._sweep()
        if inflight.feed is None or inflight.feed.is_over:
            inflight.feed = Feed(self._new_name, self._monotonic, self._ends)
            self._watched[name] = inflight
        return inflight.feed

    def _sweep(self) -> None:
        """Let go of feeds that nobody watches. Not whenever somebody asks: there may be thousands of them."""
        self._swept_at = self._monotonic()
        for other, one in list(self._watched.items()):
            if one.feed is None or one.feed.is_over:
                one.feed = None
                del self._watched[other]

    def has_ended(self, seq: str) -> bool:
        """Return whether this is a place in a feed that has ended lately."""
        now = self._monotonic()
        for name in [name for name, at in self._ends.items() if now - at >= KEPT_S]:
            del self._ends[name]
        return seq.rpartition("-")[0] in self._ends

    @property
    def watchers(self) -> int:
        """Count those who watch."""
        return sum(one.feed.watchers for one in self._watched.values() if one.feed is not None)

    def forget(self) -> None:
        """Forget all of them: another run begins."""
        for one in self._watched.values():
            one.feed = None
        self._watched.clear()
        self._ends.clear()

    def _new_name(self) -> str:
        return f"{self._random().getrandbits(80):020x}"
