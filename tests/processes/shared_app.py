"""An app as users write one, for `uvicorn --workers 4`: it schedules, lists and cancels on the store that its processes
share, and its own receiver is another process."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.processes.server_process import SECRET
from tocsin import ActorHost, TocsinError

host = ActorHost.open("sqlite:///shared.db", origin=os.environ["ORIGIN"], secrets=[SECRET])
jobs = host.scheduler()


async def schedule(request: Request) -> JSONResponse:
    query = request.query_params
    job_id = await jobs.run_after(float(query["delay"]), "work:run", {"n": 1}, id=query["id"], timeout_ms=1_000)
    return JSONResponse({"id": job_id})


async def cancel(request: Request) -> JSONResponse:
    cancelled = await jobs.cancel(request.query_params["id"])
    return JSONResponse({"cancelled": cancelled.cancelled, "wasRunning": cancelled.was_running})


async def listed(request: Request) -> JSONResponse:
    return JSONResponse({"count": len((await jobs.list(limit=20)).records)})


async def status(request: Request) -> JSONResponse:
    counts = await jobs.status()
    return JSONResponse({"pid": os.getpid(), "left": counts.backlog + counts.in_flight, "dead": counts.dead})


async def refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TocsinError)
    return JSONResponse(error.to_dict(), error.status)


app = Starlette(
    routes=[
        Route("/schedule", schedule), Route("/cancel", cancel), Route("/list", listed), Route("/status", status),
    ],
    lifespan=host.lifespan,
    exception_handlers={TocsinError: refuse},
)  # fmt: skip
