"""An actor's view of its store: the stored rows, and above them a layer for each turn that is not durable yet.

`put` and `delete` return at once and write to the layer of the running turn. The activation seals that layer as one
atomic batch. Until the batch is durable its rows are read from the layer, so a turn sees every turn before it.
"""

from __future__ import annotations

from asyncio import Future, current_task
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tocsin.errors import InvalidInputError, TurnError
from tocsin.storage.api import (
    MAX_KEY,
    MAX_SCAN_BYTES,
    MAX_SCAN_ROWS,
    MAX_VALUE,
    UNSET,
    Batch,
    OrderedStore,
    Range,
    Row,
    Unset,
)

RESERVED = b"\x00"
EPOCH = RESERVED + b"epoch"
OUTSIDE = "storage used outside a turn: use it in a handler (writes: in the handler's own task), not in `ctx.outside()`"
NOBODY: Final = object()
Deferred = tuple[Callable[..., Awaitable[None] | None], tuple[Any, ...]]
RollbackHook = tuple[Callable[..., None], tuple[Any, ...]]


@dataclass(slots=True, eq=False)
class Layer:
    """The effect of one turn: rows, the alarm, and who is told of the turn's end. A failed turn's layer is dropped.

    Only `task` may write rows to it. No key is in both `puts` and `deletes`.
    """

    task: object = NOBODY
    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    size: int = 0
    """An upper bound of the bytes written: values that were overwritten in the turn count, too."""
    wake_at: int | Unset | None = UNSET
    ring_at: int | Unset | None = UNSET
    after_commit: list[Deferred] = field(default_factory=list)
    if_lost: list[RollbackHook] = field(default_factory=list)
    batch: int = 0
    """The number of the last batch that was sealed when this turn ended. Its answer waits until that is durable."""
    answers: Sequence[tuple[Future[Any], object]] = ()
    """Of each event that shared the turn."""
    error: BaseException | None = None
    """The answer to all of them instead."""
    read: dict[bytes, bytes | None] = field(default_factory=dict)
    """Rows, or that there is none, as they were below this layer when `prefetch` read them."""


CLOSED: Final = Layer()
"""The layer between turns, to which nobody may write."""


class ActorStorage:
    """The rows of one actor. Usable only inside a turn."""

    def __init__(self) -> None:
        self.epoch = 0
        self.layer = CLOSED
        """The layer of the running turn."""
        self.sealed: list[Layer] = []
        """Turns that ended and are not durable yet, the oldest first."""
        self._store: OrderedStore | None = None

    async def open(self, store: OrderedStore, least: int = 1) -> None:
        """Claim the next epoch, `least` or later, before anything else is read: docs/design.md says why."""
        self._store = store
        row = (await store.get([EPOCH])).get(EPOCH)
        epoch = max(int(row or b"0") + 1, least)
        await store.commit(Batch({EPOCH: b"%d" % epoch}))
        self.epoch = epoch

    def rise_above(self, epoch: int) -> None:
        """Go on in a later epoch than this one, from the end of the running turn on."""
        if self.epoch <= epoch:
            self.epoch = epoch + 1
            self.layer.puts[EPOCH] = b"%d" % self.epoch

    # ---- Writes ----------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> None:
        layer = self.layer
        if layer.task is not current_task() or type(key) is not bytes or key[:1] == RESERVED:
            raise self._refusal(key)
        if type(value) is not bytes:
            raise InvalidInputError(f"the value of {key[:64]!r} must be bytes, not {type(value).__name__}")
        if layer.deletes:
            layer.deletes.discard(key)
        layer.puts[key] = value
        layer.size += len(key) + len(value)

    def put_many(self, rows: dict[bytes, bytes]) -> None:
        """Write several rows as `put` does, and look at each rule once for all of them."""
        layer = self.layer
        kinds = {*map(type, rows), *map(type, rows.values())}
        if layer.task is not current_task() or kinds != {bytes} or min(rows)[:1] == RESERVED:
            for key, value in rows.items():
                self.put(key, value)  # refuses the first one that is wrong
            return
        if layer.deletes:
            layer.deletes.difference_update(rows)
        layer.puts.update(rows)
        layer.size += sum(map(len, rows)) + sum(map(len, rows.values()))

    def delete(self, key: bytes) -> None:
        layer = self.layer
        if layer.task is not current_task() or type(key) is not bytes or key[:1] == RESERVED:
            raise self._refusal(key)
        layer.puts.pop(key, None)
        layer.deletes.add(key)
        layer.size += len(key)

    def _refusal(self, key: object) -> Exception:
        """Return the error that says why this key may not be written now."""
        if self.layer.task is not current_task():
            return TurnError(OUTSIDE)
        if not isinstance(key, bytes):
            return InvalidInputError(f"a key must be bytes, not {type(key).__name__}")
        return TurnError(f"keys starting with {RESERVED!r} are the runtime's: {key[:32]!r}")

    # ---- Reads -----------------------------------------------------------------------------------

    async def get(self, key: bytes) -> bytes | None:
        return (await self.get_many([key])).get(key)

    def get_many(self, keys: Iterable[bytes]) -> Awaitable[dict[bytes, bytes]]:
        """Return the values of those keys that exist; one hop to the store, none if all are still in memory."""
        ask, layers = list(keys), self._layers()
        if not layers and not self.layer.read and 1 <= len(ask) <= MAX_SCAN_ROWS:
            return self._opened.get(ask)
        return self._get_through(layers, ask)

    async def prefetch(self, keys: Collection[bytes]) -> None:
        """Read these rows in one hop; until the turn ends, `get_many` gives them without another."""
        read = self.layer.read
        found = await self.get_many(keys)
        # Below this layer nothing changes while it is written: turns that become durable move rows, as they are, down.
        for key in keys:
            read[key] = found.get(key)

    async def _get_through(self, layers: list[Layer], keys: list[bytes]) -> dict[bytes, bytes]:
        layers.reverse()
        found: dict[bytes, bytes] = {}
        ask: list[bytes] = []
        own, read = self.layer, self.layer.read
        for key in keys:
            if key in read and key not in own.puts and key not in own.deletes:
                if (value := read[key]) is not None:
                    found[key] = value
                continue
            for layer in layers:
                if (value := layer.puts.get(key)) is not None:
                    found[key] = value
                    break
                if key in layer.deletes:
                    break
            else:
                ask.append(key)
        for start in range(0, len(ask), MAX_SCAN_ROWS):
            found.update(await self._opened.get(ask[start : start + MAX_SCAN_ROWS]))
        return found

    def _layers(self) -> list[Layer]:
        """Return the layers that hold rows, the oldest first."""
        if self.layer is CLOSED:
            raise TurnError(OUTSIDE)
        return [layer for layer in (*self.sealed, self.layer) if layer.puts or layer.deletes]

    async def scan(self, start: bytes, end: bytes, *, limit: int = 1000, reverse: bool = False) -> list[Row]:
        """Return at most `limit` rows with `start <= key < end`, in key order (from the end if `reverse`)."""
        return (await self.scan_many([(start, end, limit)], reverse=reverse))[0]

    async def scan_many(self, ranges: Sequence[Range], *, reverse: bool = False) -> list[list[Row]]:
        """Return the rows of several ranges, in one hop unless they are very large."""
        overlay: dict[bytes, bytes | None] = {}
        for layer in self._layers():
            overlay.update(layer.puts)
            overlay.update(dict.fromkeys(layer.deletes))
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

    @property
    def _opened(self) -> OrderedStore:
        if self._store is None:
            raise TurnError("this actor's storage is not open yet")
        return self._store


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
