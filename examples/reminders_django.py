"""Reminders with Django under ASGI. Run it: TOCSIN_SECRETS=$(tocsin keys new) uvicorn reminders_django:application

A project of one file; in yours the settings, the views and `asgi.py` are files of their own.
"""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.utils.deprecation import MiddlewareMixin
from starlette.applications import Starlette
from starlette.routing import Mount

from tocsin import ActorHost, Received, Receiver, SQLiteDedup, TocsinError

SECRETS = os.environ["TOCSIN_SECRETS"].split(",")
ORIGIN = os.environ.get("ORIGIN", "http://127.0.0.1:8000")  # where this app is reached

# ---- settings.py
settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["127.0.0.1"],
    SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY", "for tests only"),
    MIDDLEWARE=[f"{__name__}.Refused"],
)

# ---- jobs.py
host = ActorHost.open("sqlite:///reminders.db", origin=ORIGIN, secrets=SECRETS)
receiver = Receiver(SECRETS, dedup=SQLiteDedup("received.db"))


@receiver.handler("reminders:send")
async def send(args: dict[str, str], job: Received) -> None:
    print(f"to {job.instance}: {args['text']}", flush=True)


# ---- middleware.py
class Refused(MiddlewareMixin):  # type: ignore[misc]  # Django has no types
    def process_exception(self, request: HttpRequest, error: Exception) -> JsonResponse | None:
        return JsonResponse(error.to_dict(), status=error.status) if isinstance(error, TocsinError) else None


# ---- views.py
async def reminders(request: HttpRequest, user: str) -> JsonResponse:
    jobs = host.scheduler(user)
    if request.method == "POST":
        asked = json.loads(request.body)
        job_id = await jobs.run_after(asked.get("after", "1h"), "reminders:send", {"text": asked["text"]})
        return JsonResponse({"id": job_id})
    return JsonResponse((await jobs.list()).to_dict())


async def reminder(request: HttpRequest, user: str, id: str) -> JsonResponse:
    if request.method != "DELETE":
        return JsonResponse({}, status=405, headers={"allow": "DELETE"})
    return JsonResponse((await host.scheduler(user).cancel(id)).to_dict())


# ---- urls.py
urlpatterns = [path("users/<user>/reminders", reminders), path("users/<user>/reminders/<id>", reminder)]


# ---- asgi.py
@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with host.lifespan(app), receiver:
        yield


# Django's own app has no lifespan. Starlette, which tocsin brings, has one and goes around it.
application = Starlette(
    lifespan=lifespan,
    routes=[Mount("/_tocsin", receiver), Mount("/", get_asgi_application())],
)
