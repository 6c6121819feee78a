"""An app that schedules payments over HTTP, gets a callback for each, and completes it later.

Run `tocsin serve --origin-url http://127.0.0.1:8000` and `uvicorn fastapi_app:app`, both with the same TOCSIN_SECRETS.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from fastapi import FastAPI

from tocsin import Accepted, Client, LeaseClient, Received, Receiver, SQLiteDedup

TOCSIN_URL = os.environ.get("TOCSIN_URL", "http://127.0.0.1:8321")
client = Client(TOCSIN_URL)
jobs = client.scheduler()
secrets = [secret.strip() for secret in os.environ["TOCSIN_SECRETS"].split(",")]
receiver = Receiver(secrets, dedup=SQLiteDedup("received.db"))
leases = LeaseClient(TOCSIN_URL, dedup=receiver.dedup)
working: set[asyncio.Task[None]] = set()
# A job runs once, but its id is free again when it is done: the app's own rows ensure that no invoice is paid twice.
payments = sqlite3.connect("payments.db", isolation_level=None)
payments.execute("CREATE TABLE IF NOT EXISTS paid (invoice INTEGER PRIMARY KEY, amount TEXT NOT NULL)")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with client, leases, receiver:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/_tocsin", receiver)  # callbacks arrive at /_tocsin/callback


@app.post("/invoices/{number}/pay")
async def schedule(number: int, amount: Decimal) -> dict[str, str]:
    args = {"number": number, "amount": amount, "asked": datetime.now(UTC)}  # arrive as these types
    return {"id": await jobs.run_after(0.1, "invoices:pay", args, id=f"pay-{number}")}


@receiver.handler("invoices:pay")
async def pay(args: dict[str, Any], job: Received) -> Accepted:
    task = asyncio.create_task(transfer(args["number"], args["amount"], job))
    working.add(task)
    task.add_done_callback(working.discard)
    return Accepted(lease_ms=60_000)  # transfer() completes it within the lease, or the job is sent again


async def transfer(number: int, amount: Decimal, job: Received) -> None:
    await asyncio.sleep(0.1)
    row = (number, str(amount))
    if payments.execute("INSERT INTO paid VALUES (?, ?) ON CONFLICT DO NOTHING", row).rowcount:  # this is the payment
        print(f"paid invoice {number}: {amount:.2f}", flush=True)
        await leases.complete(job, result={"paid": str(amount)})
    else:
        print(f"invoice {number} was paid before", flush=True)
        await leases.complete(job, result={"paid": None})
