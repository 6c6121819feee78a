"""The transport that always works: httpx, one client with one connection per lane.

httpx's pool is quadratic in what waits and leaks what is cancelled (measured: one shared client, 64 lanes,
76 requests/s; a client each, 600 to 1,000), so a client is used by one call at a time and closed if that breaks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import httpx

from tocsin.dispatch.transport import Answer, AnswerTooLarge, BrokenExchange, DeadlinePassed, NeverConnected

KEEP_ALIVE_S = 4.0
"""Shorter than the 5 s after which common servers close: a request must not meet a closing connection."""
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)


class HttpxTransport:
    """A `Transport`."""

    def __init__(self, *, verify: ssl.SSLContext | bool = True) -> None:
        self._verify = httpx.create_ssl_context(verify=verify) if isinstance(verify, bool) else verify
        self._free: list[httpx.AsyncClient] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

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
        client = self._free.pop() if self._free else self._new_client()
        clean = False
        progress = _Progress()
        try:
            async with asyncio.timeout(timeout):
                answer = await self._exchange(client, url, headers, body, connect_timeout, max_body, progress)
            clean = True
            return answer
        except TimeoutError:
            raise _late(progress, timeout) from None
        except NOT_SENT as error:
            raise NeverConnected(_said(error)) from error
        except httpx.HTTPError as error:
            raise BrokenExchange(_said(error)) from error
        finally:
            if clean and not self._closed:
                self._free.append(client)
            else:
                self._discard(client)

    async def _exchange(
        self,
        client: httpx.AsyncClient,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        connect_timeout: float,
        max_body: int,
        progress: _Progress,
    ) -> Answer:
        request = client.build_request(
            "POST",
            url,
            content=body,
            headers={**headers, "accept": "*/*", "accept-encoding": "identity"},
            extensions={
                "timeout": {"connect": connect_timeout, "read": None, "write": None, "pool": None},
                "trace": progress.trace,
            },
        )
        response = await client.send(request, stream=True)
        try:
            # Raw bytes: what a receiver compressed all the same is not unpacked, so it cannot swell in memory.
            pieces, size = [], 0
            async for piece in response.aiter_raw():
                size += len(piece)
                if size > max_body:
                    raise AnswerTooLarge(f"the answer is longer than {max_body} bytes")
                pieces.append(piece)
        finally:
            await response.aclose()
        return Answer(response.status_code, dict(response.headers.items()), b"".join(pieces))

    def _new_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE_S),
            timeout=None,
            trust_env=False,
            follow_redirects=False,
            verify=self._verify,
        )

    def _discard(self, client: httpx.AsyncClient) -> None:
        """Close in a task of its own: a cancelled call must not wait, nor be cancelled out of closing."""
        task = asyncio.get_running_loop().create_task(client.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        self._closed = True
        free, self._free = self._free, []
        for client in free:
            await client.aclose()
        await asyncio.gather(*self._closing)


class _Progress:
    """Whether the request has begun to leave: before that, a timeout means nobody got it."""

    def __init__(self) -> None:
        self.sending = False

    async def trace(self, event: str, info: Mapping[str, object]) -> None:
        if event.endswith("send_request_headers.started"):
            self.sending = True


def _late(progress: _Progress, timeout: float) -> DeadlinePassed | NeverConnected:
    if progress.sending:
        return DeadlinePassed(f"after {timeout:g} s")
    return NeverConnected(f"not connected after {timeout:g} s")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
