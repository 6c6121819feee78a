"""A transport to a receiver in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tocsin.dispatch.transport import Answer


class InProcessTransport:
    """A `Transport` that hands each callback to a function. No latency, no connections."""

    def __init__(self, receive: Callable[[Mapping[str, str], bytes], Awaitable[Answer]]) -> None:
        self._receive = receive

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        return await self._receive(headers, body)

    async def aclose(self) -> None:
        """Nothing to release."""
