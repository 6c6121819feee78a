"""An app that schedules invoices over HTTP, is called back once for each, and says later that it was paid.

Run `tocsin serve --origin-url http://127.0.0.1:8000` and `uvicorn examples.fastapi_app:app`, both with TOCSIN_SECRETS.
"""

import asyncio
import os
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import msgspec
from fastapi import FastAPI

from tocsin import Accepted, LeaseClient, Received, Receiver, SQLiteDedup
from tocsin.dispatch.values import encode

TOCSIN_URL = os.environ.get("TOCSIN_URL", "http://127.0.0.1:8321")
receiver = Receiver([os.environ["TOCSIN_SECRETS"]], dedup=SQLiteDedup("received.db"))
leases = LeaseClient(TOCSIN_URL, dedup=receiver.dedup)
paying: set[asyncio.Task[None]] = set()
app = FastAPI(on_shutdown=[leases.aclose, receiver.aclose])
app.mount("/_tocsin", receiver)  # callbacks go to /_tocsin/callback


@app.post("/invoices/{number}")
async def schedule(number: int, amount: Decimal) -> Any:
    args = {"number": number, "amount": amount, "at": datetime.now(UTC)}
    job = {"id": f"invoice-{number}", "functionPath": "invoices:pay", "args": msgspec.Raw(encode(args)), "delayMs": 0}
    async with httpx.AsyncClient(base_url=TOCSIN_URL) as http:
        return (await http.post("/schedule", json=job)).json()


@receiver.handler("invoices:pay")
async def pay(args: dict[str, Any], job: Received) -> Accepted:
    task = asyncio.create_task(settle(args["number"], args["amount"] * 2, job))
    paying.add(task)
    task.add_done_callback(paying.discard)
    return Accepted(lease_ms=60_000)


async def settle(number: int, amount: Decimal, job: Received) -> None:
    await asyncio.sleep(0.2)  # the payment
    await leases.complete(job, result={"paid": str(amount)})
