"""A process of an app that does nothing but bring its outbox over: to a server, or to a host of its own.

    python -m tests.processes.draining DATABASE PLACE

DATABASE is a PostgreSQL URL or the path of a SQLite file, PLACE the URL of a server or `store:` and a path.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from tocsin import ActorHost, AsyncpgDatabase, Drain, OutboxClient, SQLiteDatabase

HOLD_S = 0.3


async def main(database: str, place: str) -> None:
    async with AsyncExitStack() as stack:
        if place.startswith("store:"):
            host: ActorHost | OutboxClient = ActorHost.open(f"sqlite:///{place.removeprefix('store:')}")
        else:
            host = OutboxClient(place)
        await stack.enter_async_context(host)
        if database.startswith("postgresql:"):
            import asyncpg

            pool = await stack.enter_async_context(asyncpg.create_pool(database, min_size=1))
            drain = Drain(AsyncpgDatabase(pool), host, poll=0.01, hold=HOLD_S)
        else:
            drain = Drain(SQLiteDatabase(database), host, poll=0.01, hold=HOLD_S)
        await stack.enter_async_context(drain)
        print("draining", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
