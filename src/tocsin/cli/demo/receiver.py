"""The demo's receiver: an app that verifies each callback, answers as the job's args say, and records it.
A receiver of your own looks like this, without the remembering."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tocsin.cli.demo.plan import BEAT
from tocsin.cli.output import now_ms
from tocsin.dispatch.signing import Signer
from tocsin.errors import SignatureError


@dataclass(frozen=True, slots=True)
class Delivery:
    """One callback as it arrived. `late_ms`: from the due instant to the arrival."""

    id: str
    path: str
    attempt: int
    status: int
    late_ms: int
    pool: str | None
    slot: int | None = None
    """The slot, if the job is an occurrence of the demo's schedule."""

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def note(self) -> str:
        """Return what the demo points out about this delivery."""
        if self.pool is not None:
            return f"pool {self.pool}"
        if self.slot is not None:
            return f"schedule {BEAT}"
        return "" if self.ok else "told to fail"


@dataclass(slots=True)
class Receiver:
    """Counts what the demo checks at the end; `app()` is what is served."""

    signer: Signer
    callback_path: str
    deliveries: list[Delivery] = field(default_factory=list)
    unverified: int = 0
    pool_now: int = 0
    pool_peak: int = 0

    def app(self) -> Starlette:
        return Starlette(routes=[Route(self.callback_path, self._receive, methods=["POST"])])

    async def _receive(self, request: Request) -> Response:
        arrived = now_ms()
        body = await request.body()
        try:
            self.signer.verify(request.headers, body, now_s=arrived / 1000)
        except SignatureError:
            self.unverified += 1
            return JSONResponse({"error": "the signature does not verify"}, 401)
        job = json.loads(body)
        status = await self._work(job)
        self.deliveries.append(
            Delivery(
                id=job["id"],
                path=job["functionPath"],
                attempt=job["attempt"],
                status=status,
                late_ms=max(0, arrived - job["scheduledFor"]),
                pool=job.get("pool"),
                slot=job.get("schedule", {}).get("slot"),
            )
        )
        return JSONResponse({"ok": True} if status < 300 else {"error": "told to fail"}, status)

    async def _work(self, job: Mapping[str, Any]) -> int:
        """Take as long as the args say; 500 for as many attempts as they say."""
        pooled = job.get("pool") is not None
        self.pool_now += pooled
        self.pool_peak = max(self.pool_peak, self.pool_now)
        try:
            await asyncio.sleep(job["args"].get("takeMs", 0) / 1000)
        finally:
            self.pool_now -= pooled
        return 500 if job["attempt"] <= job["args"].get("failFirst", 0) else 200

    # ---- What came of it -------------------------------------------------------------------------

    @property
    def delivered(self) -> int:
        """Count jobs of the batch that succeeded, however often they were delivered."""
        return len({each.id for each in self.deliveries if each.ok and each.slot is None})

    @property
    def slots(self) -> set[int]:
        """Count the delivered slots of the schedule."""
        return {each.slot for each in self.deliveries if each.ok and each.slot is not None}

    @property
    def repeated(self) -> int:
        """Count successful deliveries beyond the first of each job."""
        return sum(each.ok for each in self.deliveries) - self.delivered - len(self.slots)

    @property
    def retried(self) -> int:
        return sum(each.attempt > 1 for each in self.deliveries)

    def lateness_ms(self) -> list[int]:
        """Return the sorted lateness of first attempts outside the pool; others wait by design."""
        return sorted(each.late_ms for each in self.deliveries if each.attempt == 1 and each.pool is None)
