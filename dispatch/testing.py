"""Dispatch for tests: a network that loses, delays and duplicates, and a receiver that verifies and remembers.

Both run in virtual time: they wait by `asyncio.sleep` only, and take chance and clock from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Final, cast

import httpx
import msgspec

from tocsin.dispatch.asgi_transport import App, Message, Send
from tocsin.dispatch.asgi_transport import Receive as AsgiReceive
from tocsin.dispatch.exchange import Bounds
from tocsin.dispatch.headers import headers_of, joined
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.transport import Answer, BrokenExchange, NeverConnected
from tocsin.dispatch.values import decode
from tocsin.errors import SignatureError

Receive = Callable[[Mapping[str, str], bytes], Awaitable[Answer]]
LATENCIES_S: Final = (0.001, 0.02, 0.4, 3.0)


class Fault(Enum):
    """The fault of one call."""

    REFUSED = "refused"
    UNREACHED = "the connection is never made"
    DROPPED = "reset before the receiver saw it"
    UNANSWERED = "received, and no answer ever comes"
    LOST = "received, and the answer is lost"
    TWICE = "received twice, one after the other"
    BOTH = "received twice at the same time"
    GATEWAY = "received, but a proxy on the way answers 502"
    BUSY = "a proxy on the way answers 503, nothing was received"


FAULTS: Final = tuple(Fault)


class SimNetwork:
    """A `Transport`. `fault()` is the share of calls that go wrong just now; no one answers once `alive()` is false.

    The receiver is another machine: neither the deadline nor the end of the calling process stops it.
    """

    def __init__(
        self,
        receive: Receive,
        random: Random,
        *,
        alive: Callable[[], bool] = lambda: True,
        fault: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._receive, self._random, self._alive, self._fault = receive, random, alive, fault
        self._received: set[asyncio.Task[Answer]] = set()
        self.in_flight = 0

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        connect_timeout: float,
        timeout: float,
        max_body: int,
    ) -> Answer:
        self.in_flight += 1
        fault = self._random.choice(FAULTS) if self._random.random() < self._fault() else None
        bounds = Bounds(connect_timeout, timeout)
        try:
            async with bounds.scope:
                await self._connect(fault)
                bounds.sending()
                answer = await self._exchange(fault, headers, body)
        except TimeoutError as error:
            raise bounds.failure(error) from None
        finally:
            self.in_flight -= 1
        headers = joined(answer.headers.items())
        return Answer(answer.status, headers, answer.body[:max_body], cut=len(answer.body) > max_body)

    async def _connect(self, fault: Fault | None) -> None:
        await self._travel()
        if fault is Fault.REFUSED:
            raise NeverConnected("refused, as the simulation wanted")
        if fault is Fault.UNREACHED:
            await _for_ever()

    async def _exchange(self, fault: Fault | None, headers: Mapping[str, str], body: bytes) -> Answer:
        if fault is Fault.DROPPED:
            raise BrokenExchange("reset, as the simulation wanted")
        if fault is Fault.BUSY:
            return Answer(503, {}, b"busy, as the simulation wanted")
        answers = [self._deliver(headers, body)]
        if fault is Fault.TWICE:
            await asyncio.shield(answers[0])
        if fault in (Fault.TWICE, Fault.BOTH):
            answers.append(self._deliver(headers, body))
        answer = await asyncio.shield(answers[-1])
        if fault is Fault.UNANSWERED:
            await _for_ever()
        await self._travel()
        if fault is Fault.LOST:
            raise BrokenExchange("the answer was lost, as the simulation wanted")
        if fault is Fault.GATEWAY:
            return Answer(502, {}, b"bad gateway, as the simulation wanted")
        return answer

    async def _travel(self) -> None:
        await asyncio.sleep(self._random.choice(LATENCIES_S))
        if not self._alive():
            await _for_ever()

    def _deliver(self, headers: Mapping[str, str], body: bytes) -> asyncio.Future[Answer]:
        task = asyncio.ensure_future(_answer(self._receive, headers, body))
        self._received.add(task)
        task.add_done_callback(self._received.discard)
        return task

    async def aclose(self) -> None:
        """Close nothing: nothing is held."""


async def _answer(receive: Receive, headers: Mapping[str, str], body: bytes) -> Answer:
    return await receive(headers, body)


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class Delivery:
    """One callback as it arrived, and what was answered."""

    id: str
    webhook_id: str
    attempt: int
    lease: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    at: int = 0
    """When it was sent, epoch ms; 0 from a `FakeReceiver`."""
    status: int | None = None
    """The status of the answer; None while there is none, and from a `FakeReceiver`."""
    answer: str = ""
    """The answer's body, or why there is none."""
    raw: bytes = b""
    """The body as it was signed, byte for byte: with `headers`, what delivers it again."""

    @property
    def path(self) -> str:
        """Return the function path, or the name of the workflow."""
        return str(self.body.get("functionPath") or self.body.get("workflow") or "")

    @property
    def instance(self) -> str:
        """Return the name of the scheduler."""
        return str(self.body["instanceName"])

    @property
    def args(self) -> Any:
        """Return the args, with their Python types."""
        return decode(msgspec.json.encode(self.body["args"]))

    @property
    def ok(self) -> bool:
        """Return whether it was answered with a 2xx."""
        return self.status is not None and 200 <= self.status < 300


def delivery_of(headers: Mapping[str, str], body: bytes, webhook_id: str, *, at: int = 0) -> Delivery:
    """Read a callback whose signature is not in question."""
    content = msgspec.json.decode(body)
    return Delivery(content["id"], webhook_id, content["attempt"], content["lease"], content, headers, at, raw=body)


class FakeReceiver:
    """Verifies each callback, remembers it, and answers what `answer(delivery)` says (200 if not given).

    It is called with headers and body (by `SimNetwork`), or served: `receiver.asgi` is an ASGI app. A callback
    that does not verify is answered 401 and its fault noted in `rejected`.
    """

    def __init__(
        self,
        secrets: Sequence[str | bytes],
        *,
        now_ms: Callable[[], int],
        answer: Callable[[Delivery], Answer | Awaitable[Answer]] | None = None,
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.rejected: list[str] = []
        self._signer, self._now_ms, self._answer = Signer(secrets), now_ms, answer
        self._arrived = asyncio.Event()

    async def __call__(self, headers: Mapping[str, str], body: bytes) -> Answer:
        try:
            webhook_id = self._signer.verify(headers, body, now_s=self._now_ms() / 1000)
        except SignatureError as error:
            self.rejected.append(error.message)
            return Answer(401, {}, error.message.encode())
        delivery = delivery_of(headers, body, webhook_id)
        self.deliveries.append(delivery)
        self._arrived.set()
        if self._answer is None:
            return Answer(200, {}, b"ok")
        answer = self._answer(delivery)
        return await answer if isinstance(answer, Awaitable) else answer

    async def wait_for(self, count: int) -> list[Delivery]:
        """Return all deliveries as soon as there are `count`."""
        while len(self.deliveries) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.deliveries

    async def asgi(self, scope: Message, receive: AsgiReceive, send: Send) -> None:
        """Return the receiver as an ASGI app, whatever the method and path."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        headers = headers_of(scope["headers"])
        answer = await self(headers, await _whole(receive))
        pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
        pairs.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
        await send({"type": "http.response.body", "body": answer.body})


def client_of(app: App, origin: str) -> httpx.AsyncClient:
    """Return a client of an ASGI app in the same process."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(cast(Any, app)), base_url=origin)


class InProcess(httpx.AsyncBaseTransport):
    """An httpx transport to an ASGI app of this event loop, from whatever loop. An app that raises answers 500."""

    def __init__(self, app: App) -> None:
        self._loop = asyncio.get_running_loop()
        self._app = httpx.ASGITransport(cast(Any, app), raise_app_exceptions=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Have the app answer on its own loop."""
        if asyncio.get_running_loop() is self._loop:
            return await self._app.handle_async_request(request)
        answer = asyncio.run_coroutine_threadsafe(self._app.handle_async_request(request), self._loop)
        return await asyncio.wrap_future(answer)


async def _whole(receive: AsgiReceive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _lifespan(receive: AsgiReceive, send: Send) -> None:
    for _ in ("startup", "shutdown"):
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
