"""Reminders with Starlette. Run it: TOCSIN_SECRETS=$(tocsin keys new) uvicorn reminders_starlette:app"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from tocsin import ActorHost, Received, Receiver, Scheduler, SQLiteDedup, TocsinError

SECRETS = os.environ["TOCSIN_SECRETS"].split(",")
ORIGIN = os.environ.get("ORIGIN", "http://127.0.0.1:8000")  # where this app is reached
host = ActorHost.open("sqlite:///reminders.db", origin=ORIGIN, secrets=SECRETS)
receiver = Receiver(SECRETS, dedup=SQLiteDedup("received.db"))


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with host.lifespan(app) as state, receiver:
        yield state  # {"tocsin": host}: requests have it as request.state.tocsin


def jobs_of(request: Request) -> Scheduler:
    jobs: Scheduler = request.state.tocsin.scheduler(request.path_params["user"])
    return jobs


async def remind(request: Request) -> JSONResponse:
    asked = await request.json()
    job_id = await jobs_of(request).run_after(asked.get("after", "1h"), "reminders:send", {"text": asked["text"]})
    return JSONResponse({"id": job_id})


async def reminders(request: Request) -> JSONResponse:
    return JSONResponse((await jobs_of(request).list()).to_dict())


async def forget(request: Request) -> JSONResponse:
    return JSONResponse((await jobs_of(request).cancel(request.path_params["id"])).to_dict())


async def refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TocsinError)
    return JSONResponse(error.to_dict(), error.status)


@receiver.handler("reminders:send")
async def send(args: dict[str, str], job: Received) -> None:
    print(f"to {job.instance}: {args['text']}", flush=True)


app = Starlette(
    lifespan=lifespan,
    exception_handlers={TocsinError: refused},
    routes=[
        Route("/users/{user}/reminders", remind, methods=["POST"]),
        Route("/users/{user}/reminders", reminders),
        Route("/users/{user}/reminders/{id}", forget, methods=["DELETE"]),
        Mount("/_tocsin", receiver),  # callbacks arrive at /_tocsin/callback
    ],
)
