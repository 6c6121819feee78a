"""A transfer of money and the job that announces it, written in one PostgreSQL transaction by asyncpg.

`DATABASE_URL=postgresql://... python outbox_asyncpg.py` makes its tables and jobs.db, makes a transfer, waits until all
there are were told, and exits. Kill it whenever you like, and run it again.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import asyncpg

from tocsin import ActorHost, AsyncpgDatabase, Drain, Outbox, Receiver
from tocsin.dispatch.asgi_transport import AsgiTransport

SECRETS = [os.environ.get("TOCSIN_SECRETS", "whsec_ZXhhbXBsZS1vbmx5LW1ha2UteW91ci1vd24tb25l")]
outbox = Outbox()  # makes rows for the scheduler named `default`
receiver = Receiver(SECRETS)
all_told = asyncio.Event()
TABLES = """
    CREATE TABLE IF NOT EXISTS accounts (owner text PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0));
    CREATE TABLE IF NOT EXISTS transfers (number serial PRIMARY KEY, payee text, amount int, told int DEFAULT 0);
    INSERT INTO accounts VALUES ('ann', 1000), ('bob', 0) ON CONFLICT DO NOTHING;
"""


async def transfer(pool: asyncpg.Pool[asyncpg.Record], payer: str, payee: str, amount: int) -> None:
    async with pool.acquire() as connection, connection.transaction():
        row = await connection.fetchrow(
            "INSERT INTO transfers (payee, amount) VALUES ($1, $2) RETURNING number", payee, amount
        )
        assert row is not None
        entry = outbox.run_after("1s", "transfers:tell", {"number": row["number"], "payee": payee, "amount": amount})
        await connection.execute(*entry.dollar)
        # A failure from here on rolls the job back, too.
        await connection.execute("UPDATE accounts SET balance = balance + $2 WHERE owner = $1", payee, amount)
        await connection.execute("UPDATE accounts SET balance = balance - $2 WHERE owner = $1", payer, amount)


async def main() -> None:
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1) as pool:
        await pool.execute(TABLES)
        for sql in outbox.schema("postgresql", announce=True):  # better in your migrations
            await pool.execute(sql)

        @receiver.handler("transfers:tell")
        async def tell(args: dict[str, Any]) -> None:
            await pool.execute("UPDATE transfers SET told = told + 1 WHERE number = $1", args["number"])
            print(f"dear {args['payee']}, you have got {args['amount']}", flush=True)
            if not await pool.fetchval("SELECT count(*) FROM transfers WHERE told = 0"):
                all_told.set()

        host = ActorHost.open(
            "sqlite:///jobs.db", origin="http://app.internal", secrets=SECRETS, transport=AsgiTransport(receiver)
        )
        async with host, Drain(AsyncpgDatabase(pool), host):  # the drain listens: a commit in any process wakes it
            await transfer(pool, "ann", "bob", 10)
            try:
                await transfer(pool, "bob", "ann", 1_000_000)
            except asyncpg.CheckViolationError:
                print("bob has not got that much", flush=True)
            await all_told.wait()


if __name__ == "__main__":
    asyncio.run(main())
