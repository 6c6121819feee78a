"""What an actor sees of its store: reads through writes that are not durable yet, writes gathered per turn.

`put` and `delete` return at once; `seal` turns what a turn wrote into one atomic batch. Until that batch is
durable its rows are read from here, so a turn always sees every turn before it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from tocsin.errors import InvalidInputError, TurnError
from tocsin.storage.api import (
    MAX_KEY,
    MAX_SCAN_BYTES,
    MAX_SCAN_ROWS,
    MAX_VALUE,
    Batch,
    OrderedStore,
    Range,
    Row,
    after,
)

RESERVED = b"\x00"
EPOCH = RESERVED + b"epoch"
OUTSIDE = "storage used outside a turn: use it in a handler (writes: in the handler's own task), not in `ctx.outside()`"


class ActorStorage:
    """The rows of one actor. Usable only inside a turn."""

    def __init__(self) -> None:
        self.epoch = 0
        self._turn: asyncio.Task[object] | None = None  # the task that has the turn
        self._store: OrderedStore | None = None
        self._dirty: dict[bytes, bytes | None] = {}  # this turn
        self._bytes = 0  # of them; what was written over counts, too
        self._sealed: dict[bytes, tuple[int, bytes | None]] = {}  # batch number, value; not yet durable
        self._batches: dict[int, list[bytes]] = {}

    async def open(self, store: OrderedStore, least: int = 1) -> None:
        """Claim the next epoch, at least this one, before anything else is read (found by simulation: see
        docs/design.md)."""
        self._store = store
        row = (await store.get([EPOCH])).get(EPOCH)
        epoch = max(int(row or b"0") + 1, least)
        await store.commit(Batch({EPOCH: b"%d" % epoch}))
        self.epoch = epoch

    # ---- The turn --------------------------------------------------------------------------------

    @property
    def in_turn(self) -> bool:
        """Whether somebody has the turn."""
        return self._turn is not None

    @property
    def my_turn(self) -> bool:
        """Whether the running task has it."""
        return self._turn is not None and self._turn is asyncio.current_task()

    def begin(self) -> None:
        self._turn = asyncio.current_task()

    def end(self) -> None:
        self._turn = None

    # ---- Writes ----------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        return bool(self._dirty)

    @property
    def written(self) -> tuple[int, int]:
        """How many keys this turn has written, and about how many bytes, never fewer."""
        return len(self._dirty), self._bytes

    def put(self, key: bytes, value: bytes) -> None:
        self._check(key)
        if type(value) is not bytes:
            raise InvalidInputError(f"the value of {key[:64]!r} must be bytes, not {type(value).__name__}")
        self._dirty[key] = value
        self._bytes += len(key) + len(value)

    def delete(self, key: bytes) -> None:
        self._check(key)
        self._dirty[key] = None
        self._bytes += len(key)

    def discard(self) -> None:
        """Forget what this turn wrote."""
        self._dirty, self._bytes = {}, 0

    def changes(self) -> tuple[dict[bytes, bytes], set[bytes]]:
        """What this turn wrote: puts and deletes."""
        puts = {key: value for key, value in self._dirty.items() if value is not None}
        return puts, {key for key, value in self._dirty.items() if value is None}

    def seal(self, number: int) -> None:
        """End of turn: its writes are remembered under the batch's number until `confirm`."""
        for key, value in self._dirty.items():
            self._sealed[key] = (number, value)
        self._batches[number] = list(self._dirty)
        self._dirty, self._bytes = {}, 0

    def confirm(self, number: int) -> None:
        """That batch is durable: its rows are read from the store from now on."""
        for key in self._batches.pop(number, ()):
            if self._sealed[key][0] == number:
                del self._sealed[key]

    # ---- Reads -----------------------------------------------------------------------------------

    async def get(self, key: bytes) -> bytes | None:
        return (await self.get_many([key])).get(key)

    async def get_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that exist; one hop to the store, none if all are still in memory."""
        self._check_turn()
        found: dict[bytes, bytes] = {}
        ask: list[bytes] = []
        for key in keys:
            value = self._dirty.get(key, _ABSENT)
            if value is _ABSENT:
                sealed = self._sealed.get(key)
                if sealed is None:
                    ask.append(key)
                    continue
                value = sealed[1]
            if isinstance(value, bytes):
                found[key] = value
        for start in range(0, len(ask), MAX_SCAN_ROWS):
            found.update(await self._opened.get(ask[start : start + MAX_SCAN_ROWS]))
        return found

    async def scan(self, start: bytes, end: bytes, *, limit: int = 1000, reverse: bool = False) -> list[Row]:
        """At most `limit` rows with `start <= key < end`, in key order (from the end if `reverse`)."""
        return (await self.scan_many([(start, end, limit)], reverse=reverse))[0]

    async def scan_prefix(self, prefix: bytes, *, limit: int = 1000) -> list[Row]:
        return await self.scan(prefix, after(prefix), limit=limit)

    async def scan_many(self, ranges: Sequence[Range], *, reverse: bool = False) -> list[list[Row]]:
        """Rows of several ranges, in one hop unless they are very large."""
        self._check_turn()
        overlay = {key: value for key, (_, value) in self._sealed.items()}
        overlay.update(self._dirty)
        if not overlay:
            return await self._fetch(ranges, reverse)
        keys = sorted(overlay)
        own = [keys[bisect_left(keys, start) : bisect_left(keys, end)] for start, end, _ in ranges]
        # A row deleted here may still stand in the store: ask for as many more.
        asked = [
            (start, end, limit + sum(overlay[key] is None for key in mine))
            for (start, end, limit), mine in zip(ranges, own, strict=True)
        ]
        stored = await self._fetch(asked, reverse)
        return [
            _merge(rows, mine, overlay, limit, reverse)
            for rows, mine, (_, _, limit) in zip(stored, own, ranges, strict=True)
        ]

    async def _fetch(self, ranges: Sequence[Range], reverse: bool) -> list[list[Row]]:
        """`scan_many` of the store, repeated until no range was cut short by a bound of the seam."""
        answer: list[list[Row]] = [[] for _ in ranges]
        todo = list(enumerate(ranges))
        while todo:
            asked = [(start, end, min(limit, MAX_SCAN_ROWS)) for _, (start, end, limit) in todo]
            got = await self._opened.scan_many(asked, reverse=reverse)
            size = sum(len(key) + len(value) for rows in got for key, value in rows)
            cut = size + MAX_KEY + MAX_VALUE >= MAX_SCAN_BYTES
            more: list[tuple[int, Range]] = []
            for (index, (start, end, limit)), rows, (_, _, most) in zip(todo, got, asked, strict=True):
                answer[index].extend(rows)
                left = limit - len(rows)
                if left and (cut or (len(rows) == most and most < limit)):
                    if rows:
                        start, end = (start, rows[-1][0]) if reverse else (rows[-1][0] + b"\x00", end)
                    more.append((index, (start, end, left)))
            if cut and more and not any(got):
                break
            todo = more
        return answer

    # ---- Guards ----------------------------------------------------------------------------------

    @property
    def _opened(self) -> OrderedStore:
        if self._store is None:
            raise TurnError("this actor's storage is not open yet")
        return self._store

    def _check(self, key: bytes) -> None:
        if not self.my_turn:
            raise TurnError(OUTSIDE)
        if type(key) is not bytes:
            raise InvalidInputError(f"a key must be bytes, not {type(key).__name__}")
        if key[:1] == RESERVED:
            raise TurnError(f"keys starting with {RESERVED!r} are the runtime's: {key[:32]!r}")

    def _check_turn(self) -> None:
        if not self.in_turn:
            raise TurnError(OUTSIDE)


class _Absent:
    pass


_ABSENT = _Absent()


def _merge(
    rows: list[Row], mine: list[bytes], overlay: dict[bytes, bytes | None], limit: int, reverse: bool
) -> list[Row]:
    if not mine:
        return rows[:limit]
    merged = dict(rows)
    for key in mine:
        value = overlay[key]
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return [(key, merged[key]) for key in sorted(merged, reverse=reverse)[:limit]]
