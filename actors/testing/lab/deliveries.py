"""The way of callbacks in a lab: to the app in the same process, each noted as it is sent and as it is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tocsin.actors.testing.loop import Stuck
from tocsin.dispatch.asgi_transport import App, AsgiTransport, Message, Receive, Send
from tocsin.dispatch.testing import Delivery, delivery_of
from tocsin.dispatch.transport import Answer, NeverConnected, TransportError

AT_ONCE: Final = 10_000
"""How many callbacks may be sent at one instant, before the jobs are said to make each other for ever."""


class Deliveries:
    """A `Transport` to the app, whatever the origin."""

    def __init__(self, now_ms: Callable[[], int], failed: Callable[[Exception], None]) -> None:
        self.seen: list[Delivery] = []
        self.under_way = 0
        self._now_ms, self._failed = now_ms, failed
        self._to: AsgiTransport | None = None
        self._instant, self._at_once = 0, 0

    def lead_to(self, app: App | None) -> None:
        """Send what comes from here on to this app; None: there is nobody."""
        self._to = None if app is None else AsgiTransport(app)

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
        """Deliver one callback."""
        if self._to is None:
            raise NeverConnected("the app is not running")
        one = delivery_of(headers, body, headers["webhook-id"], at=self._now_ms())
        self._count(one)
        self.seen.append(one)
        self.under_way += 1
        try:
            answer = await self._to.post(
                url, headers, body, connect_timeout=connect_timeout, timeout=timeout, max_body=max_body
            )
        except TransportError as error:
            one.answer = str(error)
            raise
        finally:
            self.under_way -= 1
        one.status, one.answer = answer.status, answer.body.decode("utf-8", "replace")
        return answer

    def _count(self, one: Delivery) -> None:
        if one.at != self._instant:
            self._instant, self._at_once = one.at, 0
        self._at_once += 1
        if self._at_once > AT_ONCE:
            self._failed(Stuck(f"{AT_ONCE} callbacks were sent at one instant, the last one to {one.path!r}"))
            raise NeverConnected("too many callbacks at one instant")

    async def aclose(self) -> None:
        """Close nothing: the app is the lab's."""


async def says_ok(scope: Message, receive: Receive, send: Send) -> None:
    """Answer every callback with 200: the app of a lab that was given none."""
    if scope["type"] == "lifespan":
        for _ in ("startup", "shutdown"):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})
