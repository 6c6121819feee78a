"""The slots that this host owns, as it knows, and what the layers above are to hear of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tocsin.errors import StoreClosed, StoreError
from tocsin.storage.api import Event, Leaving, Lost, Owned
from tocsin.storage.combiner import Handle
from tocsin.storage.ownership.engine import Held, SlotRow, slot_of
from tocsin.storage.shared import SharedCounts

Wakes = Callable[[Sequence[int]], AsyncIterator[Sequence[tuple[str, int | None]]]]
SLOTS_PER_READ: Final = 1_024


@dataclass(slots=True, eq=False)
class Tenure:
    """The time during which this host has a slot. Whoever holds on to one of an earlier time may write nothing."""

    slot: int
    owner: str
    epoch: int
    seq: int
    leaving: bool = False
    lacking: bool = False
    """True once it was said that the store lacks commits of it."""

    @property
    def held(self) -> Held:
        return Held(self.slot, self.epoch, self.seq)


@dataclass(slots=True)
class _Taken:
    slots: list[int]


class Slots:
    """Tenures by slot, and the news of them, in order."""

    def __init__(self, wakes: Wakes, counts: SharedCounts) -> None:
        self._counts = counts
        self.held: dict[int, Tenure] = {}
        self.handles: dict[Tenure, dict[str, Handle]] = {}
        """The handles that are open in each tenure, by actor."""
        self._wakes = wakes
        self._news: deque[_Taken | Event] = deque()
        self._told = asyncio.Event()
        self.fewer = asyncio.Event()
        """Set at each end of a tenure, for whoever waits for one."""
        self._ended = False

    def start(self) -> None:
        self._told, self.fewer, self._ended = asyncio.Event(), asyncio.Event(), False
        self._news.clear()
        self.held.clear()
        self.handles.clear()

    def end(self) -> None:
        """End the news."""
        self._ended = True
        self._told.set()

    # ---- Coming and going ------------------------------------------------------------------------

    def took(self, rows: Iterable[SlotRow]) -> list[int]:
        """Note what was taken; return which slots are new."""
        new = [row for row in rows if row.owner is not None and row.slot not in self.held]
        for row in new:
            assert row.owner is not None
            self.held[row.slot] = Tenure(row.slot, row.owner, row.epoch, row.seq)
        if new:
            self._tell(_Taken([row.slot for row in new]))
        return [row.slot for row in new]

    def lose(self, tenures: Iterable[Tenure], error: StoreError) -> list[Tenure]:
        """Note that these tenures have ended without this host's doing; return those that had not ended before."""
        lost = [tenure for tenure in tenures if self.held.get(tenure.slot) is tenure]
        self._end(lost, error)
        self._counts.lost += len(lost)
        if lost:
            self._tell(Lost(_covers(lost), error.message))
        return lost

    def leave(self, tenures: Sequence[Tenure], left: Callable[[], None]) -> None:
        """Ask the layers above to let go of these slots."""
        for tenure in tenures:
            tenure.leaving = True
        self._tell(Leaving(_covers(tenures), left))

    def released(self, tenures: Iterable[Tenure], error: StoreError) -> None:
        """Note that these tenures have ended, as was wanted."""
        self._end([tenure for tenure in tenures if self.held.get(tenure.slot) is tenure], error)

    def _end(self, tenures: Iterable[Tenure], error: StoreError) -> None:
        for tenure in tenures:
            del self.held[tenure.slot]
            self.fewer.set()
            for handle in self.handles.pop(tenure, {}).values():
                handle.failed = handle.failed or error  # what it was still to write is refused before it is sent

    async def until_none(self) -> None:
        """Wait until this host has no slot."""
        while self.held:
            self.fewer.clear()
            await self.fewer.wait()

    # ---- News ------------------------------------------------------------------------------------

    def _tell(self, news: _Taken | Event) -> None:
        last = self._news[-1] if self._news else None
        if isinstance(news, _Taken) and isinstance(last, _Taken):
            last.slots.extend(news.slots)
        else:
            self._news.append(news)
        self._told.set()

    async def events(self) -> AsyncIterator[Event]:
        """Yield what is owned at this moment, in pages; then changes."""
        changes = [news for news in self._news if not isinstance(news, _Taken)]
        staying = [slot for slot, tenure in self.held.items() if not tenure.leaving]
        self._news = deque([*changes, _Taken(staying)])
        while True:
            while self._news and not self._ended:
                news = self._news.popleft()
                if isinstance(news, _Taken):
                    async for owned in self._read(news.slots):
                        yield owned
                else:
                    yield news
            if self._ended:
                return
            self._told.clear()
            await self._told.wait()

    async def _read(self, slots: Sequence[int]) -> AsyncIterator[Owned]:
        try:
            for first in range(0, len(slots), SLOTS_PER_READ):
                async for page in self._wakes(slots[first : first + SLOTS_PER_READ]):
                    if wanted := [(name, wake_at) for name, wake_at in page if wake_at is not None]:
                        yield Owned(wanted, more=True)
        except StoreClosed:
            if not self._ended:
                raise
            return
        yield Owned([])


def _covers(tenures: Iterable[Tenure]) -> Callable[[str], bool]:
    return partial(_is_in, frozenset(tenure.slot for tenure in tenures))


def _is_in(slots: frozenset[int], name: str) -> bool:
    return slot_of(name) in slots
