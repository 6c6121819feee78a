"""The live feed of one scheduler, as watchers ask for it: frames behind a place, or a wait for the next one.

Whoever asks makes the frame that is due; the others who wait are given the same. So a frame is made once, at most ten
times a second, and none is made while nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from tocsin.actors.scheduler.client.instance import Instance
from tocsin.actors.scheduler.inflight.feed import APART_S, Feed
from tocsin.actors.scheduler.inflight.inflight import Inflight
from tocsin.actors.scheduler.model.feed_frames import Change, FeedPage, written
from tocsin.actors.scheduler.model.records import Status
from tocsin.actors.scheduler.queries import feed as frames
from tocsin.actors.scheduler.transitions.events import ClaimMore
from tocsin.errors import HostClosedError, InvalidInputError, NotFoundError

SEQ_MAX: Final = 64
"""Characters of a place."""
NOWHERE: Final = "0-0"
"""The place behind a resync, which is none of any feed: who leaves there, and has not had the snapshot, gets both."""
SNAPSHOT_S: Final = 1.0
"""So long a snapshot behind which nothing changed is given to others, too."""


class LocalFeed:
    """Reads the feed. `status` gives what a snapshot says of the whole instance."""

    def __init__(self, instance: Instance, status: Callable[[], Awaitable[Status]]) -> None:
        self._instance, self._status = instance, status

    async def changes(self, *, since: str | None, wait_s: float | None) -> FeedPage:
        """Return the frames behind a place (None: a snapshot), or wait for the next one, for at most so long (None: as
        long as it takes). HostClosedError where nobody may wait any more."""
        if since is not None and (not isinstance(since, str) or len(since) > SEQ_MAX):
            raise InvalidInputError(f"since must be the seq of a frame, a text of at most {SEQ_MAX} characters")
        feeds, inflight = self._instance.service.feeds, self._instance.service.inflight(self._instance.name)
        if since is not None and feeds.has_ended(since):
            return FeedPage([], since, ended=True)
        feed = feeds.of(self._instance.name, inflight)
        monotonic = self._instance.host.clock.monotonic
        deadline = None if wait_s is None else monotonic() + wait_s
        with feed.watched():
            while True:
                if feed.refusal is not None:
                    raise feed.refusal
                place = None if since is None else feed.place(since)
                behind = None if place is None else feed.behind(place)
                if behind is None:
                    return await self._begin(feed, resync=since is not None)
                if behind or feed.ended:
                    return _page(behind, feed.seq(feed.number), ended=feed.ended)
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return FeedPage([], feed.seq(feed.number))
                if inflight.result_waiters.stopping:
                    raise HostClosedError("the host is stopping: watch another one, or this one when it is back")
                await self._wait(feed, inflight, left)

    async def _wait(self, feed: Feed, inflight: Inflight, left: float | None) -> None:
        """Wait until something may be told; make the next frame if it is time for one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                if feed.has_news:
                    await self._build(feed)
                else:
                    await feed.news()

    async def _build(self, feed: Feed) -> None:
        """Make the next frame, unless somebody else has made it meanwhile."""
        clock, number = self._instance.host.clock, feed.number
        async with feed.building:
            if feed.number != number or not feed.has_news:
                return
            if (early := feed.built_at + APART_S - clock.monotonic()) > 0:
                await clock.sleep(min(early, APART_S))
            await self._settle(feed)
            name, seq, taken = feed.name, feed.seq(feed.number + 1), feed.take()
            try:
                made = await frames.change(self._instance.view(), taken, self._instance.now_ms(), seq=seq)
            except BaseException:
                feed.put_back(taken)
                raise
            feed.built_at = clock.monotonic()
            if made is not None and feed.name == name:  # else it began anew meanwhile, and this is of its past
                feed.add(written(made))

    async def _settle(self, feed: Feed) -> None:
        """Wait until all that was under way before anybody watched, or was lost, is in the store or never will be."""
        while not feed.settled:
            feed.settled = True
            try:
                # Its answer waits for every batch before it; a new activation waits for what the last one left.
                await self._instance.call(ClaimMore(), create=False)
            except NotFoundError:
                return  # nothing was ever written
            except BaseException:
                feed.settled = False
                raise

    async def _begin(self, feed: Feed, *, resync: bool) -> FeedPage:
        """Return a snapshot, and the place behind it. What changes while it is read is in the frames behind it."""
        async with feed.building:
            await self._settle(feed)
        name, number, now = feed.name, feed.number, self._instance.host.clock.monotonic()
        seq, kept = feed.seq(number), feed.snapshot
        if kept is not None and kept[0] == number and not feed.has_news and 0 <= now - kept[1] < SNAPSHOT_S:
            text = kept[2]
        else:
            status, here = await self._status(), self._instance
            text = written(await frames.snapshot(here.view(), here.now_ms(), seq=seq, status=status))
            if feed.name == name and feed.number == number:
                feed.snapshot = number, now, text
        first = [written(Change(type="resync", seq=NOWHERE, jobs=(), gone=()))] if resync else []
        return _page([*first, text], seq)


def _page(texts: Sequence[bytes], seq: str, *, ended: bool = False) -> FeedPage:
    return FeedPage([msgspec.Raw(text) for text in texts], seq, ended)
