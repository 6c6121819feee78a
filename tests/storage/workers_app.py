"""An app with a host in it, for `uvicorn --workers`: it says which process answers, and schedules."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tocsin import ActorHost

host = ActorHost.open(
    "sqlite:///workers.db", origin="http://127.0.0.1:9", insecure=True, share=os.environ.get("SHARE") != "no"
)


async def schedule(request: Request) -> JSONResponse:
    return JSONResponse({"pid": os.getpid(), "id": await host.scheduler().run_after("1h", "work:run")})


async def count(request: Request) -> JSONResponse:
    return JSONResponse({"pid": os.getpid(), "backlog": (await host.scheduler().status()).backlog})


app = Starlette(routes=[Route("/schedule", schedule), Route("/count", count)], lifespan=host.lifespan)
