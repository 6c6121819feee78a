"""One request through each face of a receiver: `handle`, `handle_sync`, the ASGI and WSGI apps, views of frameworks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from wsgiref.validate import validator

import aiohttp.web
import flask
import httpx
from aiohttp.test_utils import TestClient, TestServer
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.urls import clear_url_caches, path

from tests.django_settings import django_urls
from tocsin import Receiver
from tocsin.dispatch.transport import Answer

Face = Callable[[Receiver, str, Mapping[str, str], bytes], Awaitable[Answer]]
ANY: Final = ["GET", "POST", "PUT", "HEAD"]


def answer_of(response: httpx.Response) -> Answer:
    return Answer(response.status_code, dict(response.headers), response.content)


async def by_handle(receiver: Receiver, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    return await receiver.handle(headers, body)


async def by_handle_sync(receiver: Receiver, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    return await asyncio.to_thread(receiver.handle_sync, headers, body)


async def asgi(app: Any, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http:
        return answer_of(await http.request(method, "/callback", headers=headers, content=body))


async def wsgi(app: Any, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    def send() -> Answer:
        with httpx.Client(transport=httpx.WSGITransport(app=validator(app)), base_url="http://app") as http:
            return answer_of(http.request(method, "/callback", headers=headers, content=body))

    return await asyncio.to_thread(send)


async def by_wsgi(receiver: Receiver, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    return await wsgi(receiver.wsgi, method, headers, body)


def flask_app(receiver: Receiver) -> flask.Flask:
    app = flask.Flask("app")
    app.add_url_rule("/callback", view_func=receiver.flask_view, methods=ANY)
    return app


async def by_flask(receiver: Receiver, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    return await wsgi(flask_app(receiver), method, headers, body)


def django_app(view: Any, make: Callable[[], Any]) -> Any:
    django_urls().urlpatterns[:] = [path("callback", view)]
    clear_url_caches()
    return make()


async def by_django(receiver: Receiver, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    return await wsgi(django_app(receiver.django_view, get_wsgi_application), method, headers, body)


async def by_async_django(receiver: Receiver, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    return await asgi(django_app(receiver.django_async_view, get_asgi_application), method, headers, body)


async def by_aiohttp(receiver: Receiver, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    app = aiohttp.web.Application(client_max_size=10)  # the receiver's own limit counts
    app.router.add_route("*", "/callback", receiver.aiohttp_handler)
    async with TestClient(TestServer(app)) as client, client.request(
        method, "/callback", headers=dict(headers), data=body
    ) as response:  # fmt: skip
        return Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, await response.read())


VIEWS: Final[Mapping[str, Face]] = {
    "asgi": asgi, "wsgi": by_wsgi, "flask": by_flask, "django": by_django, "async django": by_async_django,
    "aiohttp": by_aiohttp,
}  # fmt: skip
"""Those that see a whole request."""
BLOCKING: Final[Mapping[str, Face]] = {
    "handle_sync": by_handle_sync, "wsgi": by_wsgi, "flask": by_flask, "django": by_django
}  # fmt: skip
FACES: Final[Mapping[str, Face]] = {"handle": by_handle, "handle_sync": by_handle_sync, **VIEWS}
