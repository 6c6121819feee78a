"""Storage for tests: a provider on a `MemoryDisk` that is slow, refuses, answers late, and can crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from tocsin.errors import StoreClosed, StoreUnavailable
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk, MemoryProvider

LATENCIES_S = (0.0, 0.0005, 0.003, 0.05)
LATE_S = (0.2, 1.0, 3.0)


class FaultyProvider(MemoryProvider):
    """Keeps the contract of the seam while its process lives: a batch that it refuses is never in the store.

    `fault()` is the share of calls that fail at present. Once `alive()` is false no call returns, and a
    transaction that had begun is applied or not, by chance, but never after another provider has started.
    """

    def __init__(
        self,
        disk: MemoryDisk,
        random: Random,
        *,
        alive: Callable[[], bool] = lambda: True,
        fault: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(disk)
        self._random, self._alive, self._fault = random, alive, fault
        self._died = False
        self._begun: Sequence[ActorWrites] | None = None

    def die(self) -> None:
        """Crash now: a transaction that had begun is applied or not, by chance; later calls raise StoreClosed."""
        self._died = True
        if self._begun is not None and self._random.random() < 0.5:
            self.disk.apply(self._begun)
        self._begun = None

    async def end(self) -> None:
        """Fail the commits that still wait after `die` with StoreClosed."""
        await self.combiner.give_up()

    async def hop(self) -> None:
        await self._pause()
        await super().hop()
        if self._random.random() < self._fault() / 4:
            raise StoreUnavailable("a read failed, as the simulation wanted")

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        self._check()
        self._begun = writes
        await asyncio.sleep(self._random.choice(LATENCIES_S))
        self._check()
        self._begun = None
        if not self._alive():
            if self._random.random() < 0.5 and self.disk.starts == self.epoch:
                self.disk.apply(writes)
            await _never()
        dice, fault = self._random.random(), self._fault()
        if dice < fault / 2:
            raise StoreUnavailable("a commit was refused, as the simulation wanted")
        self.disk.apply(writes)
        if dice < fault:
            await asyncio.sleep(self._random.choice(LATE_S))
        await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.choice(LATENCIES_S))
        self._check()
        if not self._alive():
            await _never()

    def _check(self) -> None:
        if self._died:
            raise StoreClosed("the process of this store has crashed")


async def _never() -> None:
    """Wait for ever: no call returns to a process that crashed."""
    await asyncio.get_running_loop().create_future()
