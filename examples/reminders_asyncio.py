"""Reminders without a framework. Run it: TOCSIN_SECRETS=$(tocsin keys new) python reminders_asyncio.py 5s tea

The program schedules a reminder, serves the receiver until it has come, and ends.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from tocsin import ActorHost, Received, Receiver, SQLiteDedup, TocsinError

SECRETS = os.environ["TOCSIN_SECRETS"].split(",")
PORT = int(os.environ.get("PORT", "8000"))
host = ActorHost.open("sqlite:///reminders.db", origin=f"http://127.0.0.1:{PORT}", secrets=SECRETS)
receiver = Receiver(SECRETS, dedup=SQLiteDedup("received.db"))
sent = asyncio.Event()


@receiver.handler("reminders:send")
async def send(args: dict[str, str], job: Received) -> None:
    print(f"to {job.instance}: {args['text']}", flush=True)
    sent.set()


@asynccontextmanager
async def serving() -> AsyncIterator[None]:
    """Serve the receiver, and nothing else, as long as the block runs."""
    server = uvicorn.Server(uvicorn.Config(receiver, port=PORT, log_level="warning"))
    task = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await task


async def main(after: str, text: str) -> None:
    async with host.lifespan(), serving():  # the receiver's lifespan is its server's
        jobs = host.scheduler("ada")
        later = await jobs.run_after("1d", "reminders:send", {"text": "not today"})
        await jobs.run_after(after, "reminders:send", {"text": text})
        page = await jobs.list()
        print("ahead:", ", ".join(job.args["text"] for job in page.records))
        print("cancelled:", (await jobs.cancel(later)).cancelled, flush=True)
        await sent.wait()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:3]))
    except TocsinError as error:
        sys.exit(f"{error.code}: {error.message}")
