"""A host that waits, with everything imported, until it is told to take over a store: a standby. It notes each commit
with how many rates it wrote and how many jobs it started."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.processes.server_process import SECRET
from tocsin import ActorHost, SQLiteProvider
from tocsin.storage.combiner import ActorWrites


class NotingProvider(SQLiteProvider):
    """Notes what is on the disk, a line for each group of commits that has something of it: rates, starts."""

    def __init__(self, path: Path, log: Path) -> None:
        super().__init__(path)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def _apply(self, group: Sequence[ActorWrites]) -> None:
        await super()._apply(group)
        written = [key for one in group for key, value in one.rows.items() if value is not None]
        rates = sum(key.startswith(b"rate/") for key in written)
        starts = sum(key.startswith(b"lease/") for key in written)
        if rates or starts:
            os.write(self._log, b"%d %d\n" % (rates, starts))


async def main(store: str, log: str, origin: str) -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with ActorHost.open(NotingProvider(Path(store), Path(log)), origin=origin, secrets=[SECRET]) as host:
        await host.scheduler("t").pause(False)
        print("open", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
