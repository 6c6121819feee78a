"""A program for tests to kill: commits numbered pairs of rows, several at once, and prints what was acknowledged.

`committing.py FILE [STEP]`: with STEP it kills itself at that step of a transaction in the middle.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tocsin.storage.api import Batch
from tocsin.storage.sqlite.provider import SQLiteProvider

TRANSACTIONS_BEFORE_DEATH = 20
AT_ONCE = 4


def pair(n: int) -> Batch:
    """Two rows far from each other, and the deletion of an older pair's helper row."""
    number = b"%08d" % n
    value = number * 200
    return Batch(
        puts={b"left/" + number: value, b"right/" + number: value, b"help/" + number: b""},
        deletes={b"help/%08d" % (n - 5)},
        wake_at=n,
    )


class Dying:
    """A connection that takes the whole process with it, before or after one of its statements."""

    def __init__(self, connection: Any, step: int) -> None:
        self._connection, self._step, self._begun, self._at = connection, step, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *arguments: Any) -> Any:
        if sql.startswith("BEGIN"):
            self._begun, self._at = self._begun + 1, 0
        return self._stepped(self._connection.execute, sql, *arguments)

    def executemany(self, sql: str, *arguments: Any) -> Any:
        return self._stepped(self._connection.executemany, sql, *arguments)

    def _stepped(self, function: Any, *arguments: Any) -> Any:
        self._die_at(self._at)
        answer = function(*arguments)
        self._die_at(self._at + 1)
        self._at += 2
        return answer

    def _die_at(self, step: int) -> None:
        if self._begun > TRANSACTIONS_BEFORE_DEATH and step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(path: Path, step: int | None) -> None:
    provider = SQLiteProvider(path)
    await provider.start()
    if step is not None:
        provider._file._db = Dying(provider._file._db, step)  # type: ignore[assignment]
    store = await provider.open("pairs")
    numbers = iter(range(int(store.wake_at or 0) + 1, sys.maxsize))
    while True:
        some = [next(numbers) for _ in range(AT_ONCE)]
        new = await provider.open(f"{some[0]}")  # in the same transaction: its kinds of statement too
        done = [store.commit(pair(n)) for n in some]
        done.append(new.commit(Batch(puts={b"k": b""})))
        for n, one in zip(some, done, strict=False):
            await one
            print(n, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
