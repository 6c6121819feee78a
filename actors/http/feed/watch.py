"""Frames for one watcher, whatever carries them: until it may not watch any more, or leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from starlette.types import Message, Send

from tocsin.actors.http.feed.fanout import Fanout, Frame

CHECK_S: Final = 2.0
"""So often it is asked again whether a watcher may watch."""
QUIET_S: Final = 15.0
"""After so long without a frame something is sent all the same, so that whatever lies between does not hang up."""
READ_S: Final = 10.0
"""So long a watcher may leave a frame unread."""


class WatcherLeftError(Exception):
    """The watcher has left, and the server says so."""


def until_left(send: Send) -> Send:
    """Return a `send` that raises WatcherLeftError where a server raises OSError, as they do for who has left. Any
    other OSError is a failure."""

    async def sent(message: Message) -> None:
        try:
            await send(message)
        except OSError as error:
            raise WatcherLeftError from error

    return sent


async def watch(
    fanout: Fanout, first: Sequence[Frame], seq: str, may_watch: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Sequence[Frame], None]:
    """Yield frames from a place on, none if it was quiet for a while. It ends with the instance, and raises what
    `may_watch` raises, which is asked every other second, or HostClosedError when the host stops."""
    now = asyncio.get_running_loop().time
    sent_at = checked_at = now()
    if first:
        yield first
    while True:
        if now() - checked_at >= CHECK_S:
            await may_watch()
            checked_at = now()
        frames = fanout.behind(seq)
        if frames is None:
            frames, seq = await fanout.ask(seq)
        elif frames:
            seq = frames[-1].seq
        if frames:
            yield frames
            sent_at = now()
        elif fanout.failure is not None:
            raise fanout.failure
        elif fanout.ended:
            return
        else:
            if now() - sent_at >= QUIET_S:
                yield ()
                sent_at = now()
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await fanout.news()
