"""The test clocks of the instances of a host, as they are committed: who asks an instance for the time asks here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from tocsin.actors.scheduler.model.clock import ClockRow


class Reader(Protocol):
    """Who reads the time of one instance."""

    @property
    def name(self) -> str: ...

    def use_clock(self, now_ms: Callable[[], int]) -> None:
        """Read it by this function from here on."""
        ...


class _TestClock:
    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at

    def now_ms(self) -> int:
        return self.at


class InstanceClocks:
    """Readers are given the function that tells the time, so those of live instances pay nothing for this."""

    def __init__(self, live: Callable[[], int]) -> None:
        self._live = live
        self._clocks: dict[str, _TestClock] = {}
        self.names = self._clocks.keys()
        """Names of the instances that have a test clock, as they are at any time."""
        self._readers: WeakSet[Reader] = WeakSet()

    def now_of(self, name: str) -> Callable[[], int]:
        """Return what tells the time of this instance now."""
        clock = self._clocks.get(name)
        return self._live if clock is None else clock.now_ms

    def at(self, name: str) -> int | None:
        """Return where the test clock of this instance stands; None: it has none."""
        clock = self._clocks.get(name)
        return None if clock is None else clock.at

    @property
    def count(self) -> int:
        """Return how many instances have a test clock."""
        return len(self._clocks)

    def has(self, name: str) -> bool:
        """Return whether the instance of this name has a test clock."""
        return name in self._clocks

    def follow(self, reader: Reader) -> None:
        """Tell a reader when its instance gets a test clock, or loses it."""
        self._readers.add(reader)

    def note(self, name: str, row: ClockRow | None) -> None:
        """Note where a clock stands; None: the instance has none any more."""
        clock = self._clocks.get(name)
        if clock is not None and row is not None:
            clock.at = row.at
            return
        if row is not None:
            self._clocks[name] = _TestClock(row.at)
        elif self._clocks.pop(name, None) is None:
            return
        now_ms = self.now_of(name)
        for reader in [one for one in self._readers if one.name == name]:
            reader.use_clock(now_ms)

    def forget(self) -> None:
        """Forget all: another run of the host reads them anew."""
        for name in list(self._clocks):
            self.note(name, None)
