"""Calls that are done once, however often they come: each is noted by its operation id, with its answer, among the rows
of the actor and in the batch of what it changed.

A call comes again if it was sent over a link that was lost, and then over another one or by mail, or if its mail was
done and the host ended before it could say so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import msgspec

from tocsin.actors.runtime.events import Once
from tocsin.actors.runtime.overlay import RESERVED, ActorStorage
from tocsin.errors import HolderLostError, InvalidInputError, TocsinError
from tocsin.storage.api import UNSET

DONE: Final = RESERVED + b"done/"
KEPT_MS: Final = 86_400_000
"""A call may come again for so long."""
FORGOTTEN: Final = 20
"""Notes too old to be of use that the next one removes: more than it adds."""
LONGEST: Final = 64 * 1024
"""Bytes of an answer that is kept. Of a longer one is kept that it was given."""
NO_ANSWER: Final = b""
BEGUN: Final = b"\xc1"
"""Kept while a handler is outside of its turn: no answer is encoded so."""
HEX: Final = 12
"""Digits of an operation id that say when it was made, in ms."""


class NotBegun(Exception):
    """Raised for a call with which nothing is done: `why` is for whoever made it, and the actor goes on as it was."""

    def __init__(self, why: TocsinError) -> None:
        super().__init__(why)
        self.why = why


def operation_id(now_ms: int, random: Random) -> str:
    """Make an operation id: 32 hex digits, which sort by when they were made."""
    return f"{now_ms:0{HEX}x}{random.getrandbits(80):020x}"


def made_at(op: str) -> int:
    """Return when an operation id was made, in ms since the epoch."""
    return int(op[:HEX], 16)


async def once(storage: ActorStorage, asked: Once[Any], now_ms: int, handle: Callable[[], Awaitable[object]]) -> object:
    """Do what is asked, or answer as it was answered. What changed nothing is not noted: it may be done again."""
    if now_ms - made_at(asked.op) > KEPT_MS:
        raise NotBegun(
            InvalidInputError(f"the call {asked.op} is more than 24 hours old: whether it was done is not known")
        )
    key = DONE + asked.op.encode()
    kept = await storage.get(key)
    if kept is not None:
        if kept == NO_ANSWER:
            raise NotBegun(HolderLostError("this was done, and its answer was too long to be kept", mayRepeat=False))
        if kept == BEGUN:
            raise NotBegun(HolderLostError("this was begun, and whether it was done is not known", mayRepeat=False))
        return msgspec.msgpack.decode(kept, type=asked.answer)
    before = storage.layer
    before.puts[key] = BEGUN  # durable once the handler leaves its turn: what it does outside is not done again
    answer = await handle()
    layer = storage.layer
    if layer is before:
        del layer.puts[key]
        if isinstance(answer, Exception) or not (layer.puts or layer.deletes or _rings(layer)):
            return answer
    layer.puts[key] = note = _encoded(answer)
    layer.size += len(key) + len(note)
    start = f"{max(now_ms - KEPT_MS, 0):0{HEX}x}".encode()
    for old, _ in await storage.scan(DONE, DONE + start, limit=FORGOTTEN):
        layer.deletes.add(old)
    return answer


def _rings(layer: Any) -> bool:
    return layer.wake_at is not UNSET


def _encoded(answer: object) -> bytes:
    try:
        note = msgspec.msgpack.encode(answer)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return NO_ANSWER
    return note if len(note) <= LONGEST else NO_ANSWER
