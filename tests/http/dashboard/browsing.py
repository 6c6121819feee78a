"""A browser without a screen or a script, for tests of the dashboard: it keeps cookies, says where its requests come
from, and sends the forms of pages as they stand."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx

from tests.http.http_client import client_of
from tocsin.actors.runtime.clock import SystemClock

SAME = {"sec-fetch-site": "same-origin"}


class Browser:
    """Visits pages of one app."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def visit(self, path: str, **headers: str) -> httpx.Response:
        """Type an address in, or (`sec_fetch_site="cross-site"`) come by a link."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.get(path, headers={"sec-fetch-site": "none", **named})

    async def send(self, path: str, page: httpx.Response | None = None, /, **fields: str) -> httpx.Response:
        """Send the form of a page (of the one at the path, if none is given), filled in with `fields`."""
        page = await self.visit(path) if page is None else page
        origin = f"{self.client.base_url.scheme}://{self.client.base_url.netloc.decode()}"
        form = {**hidden_fields(page), **fields}
        return await self.client.post(path, data=form, headers={**SAME, "origin": origin})

    async def log_in(self, secret: str, path: str = "/ui/login") -> httpx.Response:
        return await self.send(path, token=secret)


class LaterClock(SystemClock):
    """The real one, some time later."""

    later_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.later_ms


@asynccontextmanager
async def browsing(app: Any, *, base: str = "http://localhost") -> AsyncIterator[Browser]:
    async with client_of(app, base=base) as client:
        yield Browser(client)


def hidden_fields(page: httpx.Response) -> dict[str, str]:
    """Return the hidden members of the forms of a page."""
    inputs = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', page.text)
    return {name: unescape(value) for name, value in inputs}


def links_of(page: httpx.Response) -> set[str]:
    """Return the addresses that a page links to."""
    return {unescape(one) for one in re.findall(r'(?:href|src)="([^"#]+)', page.text)}


def said_on(page: httpx.Response) -> str:
    """Return what a page says was done just now."""
    found = re.search(r'<div class="said[^>]*>\s*<p>(.*?)</p>', page.text, re.DOTALL)
    return unescape(found[1]) if found else ""
