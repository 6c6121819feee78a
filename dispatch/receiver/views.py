"""The faces of a receiver besides ASGI: a WSGI app, and views as Flask, Django and aiohttp call them.

No framework is imported before its view is called. Each reads the request in its framework's way, refuses a body that
is too long before it is read, and gives all else to `handle` or `handle_sync`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from tocsin.dispatch.receiver import answers, asgi
from tocsin.dispatch.receiver.asgi import AsgiApp, check_length
from tocsin.dispatch.receiver.reading import Headers
from tocsin.dispatch.transport import Answer
from tocsin.errors import PayloadTooLargeError, SettingsError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from aiohttp import web
    from flask import Response

V = TypeVar("V", bound=Callable[..., Any])
NAMED_APART: Final = ("CONTENT_TYPE", "CONTENT_LENGTH")
"""The headers that WSGI names without `HTTP_`."""


class _EveryDatabase(frozenset[str]):
    """The databases for whose `ATOMIC_REQUESTS` Django must begin no transaction around a view: all there are.

    A view that answers for a failed handler would commit what that had written until then.
    """

    def __contains__(self, name: object) -> bool:
        return True


def _exempt(view: V) -> V:
    """Mark a view as the decorators `csrf_exempt` and `non_atomic_requests` of Django do."""
    marks: Any = view
    marks.csrf_exempt = True
    marks._non_atomic_requests = _EveryDatabase()
    return view


class Views(AsgiApp):
    """A receiver as the apps and views of frameworks."""

    @abstractmethod
    async def handle(self, headers: Headers, body: bytes) -> Answer: ...

    @abstractmethod
    def handle_sync(self, headers: Headers, body: bytes) -> Answer: ...

    def wsgi(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Serve one WSGI request at any path: mount it, or serve it alone (`application = receiver.wsgi`)."""
        answer = self._unread(environ["REQUEST_METHOD"], environ.get("CONTENT_LENGTH", ""))
        if answer is None:
            answer = self.handle_sync(list(_headers_of(environ)), _body_of(environ, self.max_body))
        headers = [*answer.headers.items(), ("content-length", str(len(answer.body)))]
        start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", headers)
        return [answer.body]

    def flask_view(self) -> Response:
        """Serve Flask's current request: `app.post("/_tocsin/callback")(receiver.flask_view)`."""
        from flask import Response, request

        answer = self._unread(request.method, request.headers.get("content-length", ""))
        if answer is None:
            is_framed = request.content_length is not None
            body = request.get_data() if is_framed else request.stream.read(self.max_body + 1)
            answer = self.handle_sync(request.headers.items(), body)
        return Response(answer.body, answer.status, dict(answer.headers))

    @_exempt
    def django_view(self, request: Any) -> Any:
        """Serve a Django request on the thread of the request: `path("_tocsin/callback", receiver.django_view)`.

        For apps under WSGI: SettingsError under ASGI. It needs no CSRF token, and runs in no transaction of
        `ATOMIC_REQUESTS`.
        """
        if hasattr(request, "scope"):
            raise SettingsError("this Django app runs under ASGI: its view is receiver.django_async_view")
        answer = self._unread(request.method, request.headers.get("content-length", ""))
        return _django(answer or self.handle_sync(request.headers, request.body))

    @_exempt
    async def django_async_view(self, request: Any) -> Any:
        """Serve a Django request in the event loop of the server: the `django_view` for apps under ASGI."""
        answer = self._unread(request.method, request.headers.get("content-length", ""))
        return _django(answer or await self.handle(request.headers, request.body))

    async def aiohttp_handler(self, request: web.Request) -> web.Response:
        """Serve a request of aiohttp: `app.router.add_post("/_tocsin/callback", receiver.aiohttp_handler)`."""
        from aiohttp import web

        answer = self._unread(request.method, request.headers.get("content-length", ""))
        if answer is None:
            try:
                async with asyncio.timeout(asgi.BODY_S):
                    body = await _body_from(request, self.max_body)
            except TimeoutError:
                answer = answers.too_slow(asgi.BODY_S)
            except PayloadTooLargeError as error:
                answer = answers.refused(error)
            else:
                answer = await self.handle(request.headers.items(), body)
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers)

    def _unread(self, method: str | None, length: str) -> Answer | None:
        """Return the answer to a request whose body is not worth reading."""
        if method != "POST":
            answer = answers.method_not_allowed(str(method))
            return Answer(answer.status, answer.headers, b"") if method == "HEAD" else answer
        try:
            check_length(length, self.max_body)
        except PayloadTooLargeError as error:
            return answers.refused(error)
        return None


def _headers_of(environ: WSGIEnvironment) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-"), value
        elif name in NAMED_APART:
            yield name.replace("_", "-"), value


def _body_of(environ: WSGIEnvironment, limit: int) -> bytes:
    """Return the body, or a byte more than `limit` of it."""
    said = environ.get("CONTENT_LENGTH", "")
    is_framed = said.isascii() and said.isdigit()
    left = int(said) if is_framed else limit + 1 if environ.get("wsgi.input_terminated") else 0
    stream: IO[bytes] = environ["wsgi.input"]
    pieces = []
    while left > 0 and (piece := stream.read(left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


async def _body_from(request: web.Request, limit: int) -> bytes:
    """Return the body, whatever `client_max_size` the app has. PayloadTooLargeError over `limit` bytes."""
    if request.content.at_eof():
        return await request.read()  # there is none, or a middleware has read it
    pieces, size = [], 0
    async for piece in request.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise PayloadTooLargeError(f"the body has more than {limit} bytes, which is the limit")
    return b"".join(pieces)


def _django(answer: Answer) -> Any:
    from django.http import HttpResponse

    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))
