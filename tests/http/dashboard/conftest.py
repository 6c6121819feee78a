"""The fixture of a site, for all tests of pages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.dashboard.browsing import browsing
from tests.http.dashboard.site import ADMIN, READER, TOKENS, Site
from tests.http.http_client import open_host


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with open_host() as (host, _):
        app = host.asgi(tokens=TOKENS)
        async with browsing(app) as admin, browsing(app) as reader:
            await admin.log_in(ADMIN)
            await reader.log_in(READER)
            yield Site(host, admin, reader)
