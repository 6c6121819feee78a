"""Reminders with FastAPI. Run it: TOCSIN_SECRETS=$(tocsin keys new) uvicorn reminders_fastapi:app"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from tocsin import ActorHost, Cancelled, Page, Received, Receiver, Scheduler, SQLiteDedup, TocsinError

SECRETS = os.environ["TOCSIN_SECRETS"].split(",")
ORIGIN = os.environ.get("ORIGIN", "http://127.0.0.1:8000")  # where this app is reached
host = ActorHost.open("sqlite:///reminders.db", origin=ORIGIN, secrets=SECRETS)
receiver = Receiver(SECRETS, dedup=SQLiteDedup("received.db"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with host.lifespan(app), receiver:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/_tocsin", receiver)  # callbacks arrive at /_tocsin/callback


@app.exception_handler(TocsinError)
async def refused(request: Request, error: TocsinError) -> JSONResponse:
    return JSONResponse(error.to_dict(), error.status)


def jobs_of(user: str) -> Scheduler:
    """Return the user's own scheduler; tests put another one in its place (app.dependency_overrides)."""
    return host.scheduler(user)


Jobs = Annotated[Scheduler, Depends(jobs_of)]


class Reminder(BaseModel):
    text: str
    after: str = "1h"


@app.post("/users/{user}/reminders")
async def remind(jobs: Jobs, reminder: Reminder) -> dict[str, str]:
    return {"id": await jobs.run_after(reminder.after, "reminders:send", {"text": reminder.text})}


@app.get("/users/{user}/reminders")
async def reminders(jobs: Jobs) -> Page:
    return await jobs.list()


@app.delete("/users/{user}/reminders/{id}")
async def forget(jobs: Jobs, id: str) -> Cancelled:
    return await jobs.cancel(id)


@receiver.handler("reminders:send")
async def send(args: dict[str, str], job: Received) -> None:
    print(f"to {job.instance}: {args['text']}", flush=True)
