"""A database that may fall silent: a dropped connection is no error to who only waits for an answer on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from tocsin.actors.outbox.databases import Database, Row
from tocsin.actors.outbox.statements import Dialect, Statement
from tocsin.actors.runtime.clock import Clock

T = TypeVar("T")
GRACE_S: Final = 1.0
"""How long a call that was given up may take to give back what it holds."""


class Patient:
    """A `Database` of which every call ends within `seconds`: with its answer, or with a TimeoutError that says so."""

    def __init__(self, database: Database, clock: Clock, seconds: float) -> None:
        self._database, self._clock, self._seconds = database, clock, seconds

    @property
    def dialect(self) -> Dialect:
        return self._database.dialect

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return await self._within(self._database.run(statements))

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        await self._within(self._database.listen(channel, wake))

    async def aclose(self) -> None:
        await self._within(self._database.aclose())

    async def _within(self, call: Awaitable[T]) -> T:
        asked = asyncio.ensure_future(call)
        late = asyncio.ensure_future(self._clock.sleep(self._seconds))
        try:
            await asyncio.wait([asked, late], return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            raise TimeoutError(f"the database, or its pool of connections, gave no answer within {self._seconds:g} s")
        finally:
            late.cancel()
            if not asked.done():
                asked.cancel()
                asked.add_done_callback(_passed_over)
                await asyncio.wait([asked], timeout=GRACE_S)


def _passed_over(asked: asyncio.Future[T]) -> None:
    """Take the result of a call that nobody waits for any more."""
    if not asked.cancelled():
        asked.exception()
