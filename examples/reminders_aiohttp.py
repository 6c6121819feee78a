"""Reminders with aiohttp. Run it: TOCSIN_SECRETS=$(tocsin keys new) python reminders_aiohttp.py"""

import os
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.typedefs import Handler

from tocsin import ActorHost, Received, Receiver, Scheduler, SQLiteDedup, TocsinError

SECRETS = os.environ["TOCSIN_SECRETS"].split(",")
ORIGIN = os.environ.get("ORIGIN", "http://127.0.0.1:8000")  # where this app is reached
HOST = web.AppKey("host", ActorHost)
receiver = Receiver(SECRETS, dedup=SQLiteDedup("received.db"))
routes = web.RouteTableDef()


async def tocsin(app: web.Application) -> AsyncIterator[None]:
    async with app[HOST].lifespan(app), receiver:
        yield


@web.middleware
async def refused(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except TocsinError as error:
        return web.json_response(error.to_dict(), status=error.status)


def jobs_of(request: web.Request) -> Scheduler:
    return request.app[HOST].scheduler(request.match_info["user"])


@routes.post("/users/{user}/reminders")
async def remind(request: web.Request) -> web.Response:
    asked = await request.json()
    job_id = await jobs_of(request).run_after(asked.get("after", "1h"), "reminders:send", {"text": asked["text"]})
    return web.json_response({"id": job_id})


@routes.get("/users/{user}/reminders")
async def reminders(request: web.Request) -> web.Response:
    return web.json_response((await jobs_of(request).list()).to_dict())


@routes.delete("/users/{user}/reminders/{id}")
async def forget(request: web.Request) -> web.Response:
    return web.json_response((await jobs_of(request).cancel(request.match_info["id"])).to_dict())


@receiver.handler("reminders:send")
async def send(args: dict[str, str], job: Received) -> None:
    print(f"to {job.instance}: {args['text']}", flush=True)


def make_app() -> web.Application:
    app = web.Application(middlewares=[refused])
    app[HOST] = ActorHost.open("sqlite:///reminders.db", origin=ORIGIN, secrets=SECRETS)
    app.cleanup_ctx.append(tocsin)
    app.router.add_post("/_tocsin/callback", receiver.aiohttp_handler)
    app.add_routes(routes)
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
