"""The fast transport: aiohttp, one session. Measured 8 to 50 times httpx at 64 lanes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from types import SimpleNamespace

import aiohttp

from tocsin.dispatch.transport import Answer, AnswerTooLarge, BrokenExchange, DeadlinePassed, NeverConnected

KEEP_ALIVE_S = 4.0
"""Shorter than the 5 s after which common servers close: a request must not meet a closing connection."""
HEADER_LIMIT = 64 * 1024


class AiohttpTransport:
    """A `Transport`."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context
        self._session: aiohttp.ClientSession | None = None

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
        session = self._session or self._open()
        progress = SimpleNamespace(sending=False)
        try:
            async with (
                asyncio.timeout(timeout),
                session.post(
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout),
                    trace_request_ctx=progress,
                ) as response,
            ):
                return Answer(response.status, _joined(response), await _bounded(response, max_body))
        except TimeoutError as error:
            if progress.sending:
                raise DeadlinePassed(f"after {timeout:g} s") from error
            raise NeverConnected(f"not connected after {min(timeout, connect_timeout):g} s") from error
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise NeverConnected(_said(error)) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if not progress.sending:
                raise NeverConnected(_said(error)) from error
            raise BrokenExchange(_said(error)) from error

    def _open(self) -> aiohttp.ClientSession:
        """Made in the loop that uses it."""
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_sending)
        self._session = aiohttp.ClientSession(
            # Lanes and permits bound what is in flight; a second bound here could only make them wait in line.
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=self._ssl_context if self._ssl_context else True
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            # What a receiver compressed all the same is not unpacked, so it cannot swell in memory.
            auto_decompress=False,
            headers={"accept": "*/*", "accept-encoding": "identity"},
            trace_configs=[trace],
            max_line_size=8 * 1024,
            max_field_size=HEADER_LIMIT,
        )
        return self._session

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _sending(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestHeadersSentParams
) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.sending = True


async def _bounded(response: aiohttp.ClientResponse, max_body: int) -> bytes:
    pieces, size = [], 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > max_body:
            raise AnswerTooLarge(f"the answer is longer than {max_body} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _joined(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
