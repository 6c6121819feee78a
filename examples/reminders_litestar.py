"""Reminders with Litestar. Run it: TOCSIN_SECRETS=$(tocsin keys new) granian --interface asgi reminders_litestar:app"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from litestar import Litestar, Request, Response, asgi, delete, get, post
from litestar.di import NamedDependency, Provide

from tocsin import ActorHost, Received, Receiver, Scheduler, SQLiteDedup, TocsinError

SECRETS = os.environ["TOCSIN_SECRETS"].split(",")
ORIGIN = os.environ.get("ORIGIN", "http://127.0.0.1:8000")  # where this app is reached
host = ActorHost.open("sqlite:///reminders.db", origin=ORIGIN, secrets=SECRETS)
receiver = Receiver(SECRETS, dedup=SQLiteDedup("received.db"))


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    async with host.lifespan(app), receiver:
        yield


@dataclass
class Reminder:
    text: str
    after: str = "1h"


def jobs_of(user: str) -> Scheduler:
    return host.scheduler(user)


Jobs = NamedDependency[Scheduler]


@post("/users/{user:str}/reminders")
async def remind(jobs: Jobs, data: Reminder) -> dict[str, str]:
    return {"id": await jobs.run_after(data.after, "reminders:send", {"text": data.text})}


@get("/users/{user:str}/reminders")
async def reminders(jobs: Jobs) -> dict[str, Any]:
    return (await jobs.list()).to_dict()


@delete("/users/{user:str}/reminders/{id:str}", status_code=200)
async def forget(jobs: Jobs, id: str) -> dict[str, Any]:
    return (await jobs.cancel(id)).to_dict()


@receiver.handler("reminders:send")
async def send(args: dict[str, str], job: Received) -> None:
    print(f"to {job.instance}: {args['text']}", flush=True)


def refused(request: Request[Any, Any, Any], error: TocsinError) -> Response[dict[str, Any]]:
    return Response(error.to_dict(), status_code=error.status)


app = Litestar(
    [remind, reminders, forget, asgi("/_tocsin", is_mount=True)(receiver)],  # callbacks: /_tocsin/callback
    lifespan=[lifespan],
    dependencies={"jobs": Provide(jobs_of, sync_to_thread=False)},
    exception_handlers={TocsinError: refused},
)
