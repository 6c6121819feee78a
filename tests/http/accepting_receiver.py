"""A receiver that accepts every callback, to complete it later."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tests.http.http_client import HttpClient


class AcceptingReceiver:
    """Accepts every callback, and keeps its lease."""

    def __init__(self) -> None:
        self.leases: dict[str, str] = {}
        self.called = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await Request(scope, receive).json()
        self.leases[body["id"]] = body["lease"]
        self.called.set()
        await Response(status_code=202, headers={"tocsin-accepted": "1"})(scope, receive, send)


async def accepted(http_client: HttpClient, app: AcceptingReceiver, id: str, **members: Any) -> str:
    await http_client.schedule(id=id, delayMs=0, **members)
    async with asyncio.timeout(10):
        while id not in app.leases:
            app.called.clear()
            await app.called.wait()
        while True:
            record = (await http_client.get(f"/get?id={id}")).json()["record"]
            if record.get("lease", {}).get("kind") == "accepted":
                break
            await asyncio.sleep(0.005)
    return app.leases[id]
