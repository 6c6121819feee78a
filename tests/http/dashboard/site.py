"""A host with its dashboard, and the browsers of those who may do everything and of those who may only look."""

from __future__ import annotations

from typing import Any

from tests.http.dashboard.browsing import Browser
from tocsin.actors.actor_host import ActorHost

ADMIN, READER = "secret-of-admin", "secret-of-reader"
TOKENS = [f"root:admin:{ADMIN}", f"looker:read:{READER}"]
EVIL = "<script>alert('x')</script>&\"'"
ONCE = {"maxRetries": 0}
HOUR_MS = 3_600_000


class Site:
    """A host with a dashboard, an administrator's browser and a reader's, and the API for what pages do not do."""

    def __init__(self, host: ActorHost, admin: Browser, reader: Browser) -> None:
        self.host, self.admin, self.reader = host, admin, reader

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        headers = {"authorization": f"Bearer {ADMIN}"}
        answer = await self.admin.client.request(method, path, json=body or None, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def die(self, *ids: str, path: str = "answer:500", place: str = "", **more: Any) -> None:
        """Have jobs die: their receiver answers as their path says, and they have no retries."""
        jobs = [{"id": id, "functionPath": path, "delayMs": 0, "retry": ONCE, **more} for id in ids]
        await self.ask("POST", f"{place}/schedule/batch", jobs=jobs)
        while (await self.ask("GET", f"{place}/status"))["inFlight"] or not await self._all_dead(ids, place):
            pass

    async def _all_dead(self, ids: tuple[str, ...], place: str) -> bool:
        records = (await self.ask("GET", f"{place}/dead?limit=1000"))["records"]
        return {record["id"] for record in records} >= set(ids)
