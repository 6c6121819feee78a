"""Probes for whoever runs the process: `/healthz` (it answers) and `/readyz` (it can serve). They need no token
and tell nothing but that, and codes of what is wrong."""

from __future__ import annotations

import asyncio
from typing import Final

from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.crowd import Crowd
from tocsin.actors.http.endpoint import DEFAULT_INSTANCE, Endpoint
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.response_models import Alive, Ready
from tocsin.actors.http.responses import Reply, answer
from tocsin.actors.http.served import ServedHost
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.errors import HostClosedError, StoreUnavailable

PATIENCE_S: Final = 5.0
PROBED_ID: Final = "readyz"
"""Looked up to see whether the store answers; it need not exist."""


class Health(Endpoint):
    """200 as long as the process answers at all."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(["GET"], gate)

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        _check_name(request)
        return answer(Alive(True))


class Readiness(Endpoint):
    """200 while the host is open and its store answers; else 503 with the reason.

    Callbacks that do not get through, and jobs that are late or die, leave it ready: work is still accepted, and an
    orchestrator that took this host out of service would keep its own app's jobs away. What is wrong then is named by
    its code.
    """

    def __init__(self, gate: Gate, host: ServedHost, crowd: Crowd) -> None:
        super().__init__(["GET"], gate)
        self._host, self._crowd = host, crowd

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        _check_name(request)
        if not self._host.ready:
            raise HostClosedError("the host is not open, or is stopping")
        if (trouble := self._host.trouble) is not None:
            raise type(trouble)(trouble.message, **trouble.details)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._host.ports(DEFAULT_INSTANCE).reads.get(PROBED_ID)
                await self._host.look()
        except TimeoutError:
            raise StoreUnavailable(f"the store did not answer within {PATIENCE_S:g} s") from None
        return answer(Ready(True, (*(one.code for one in self._host.health()), *self._crowd.reasons())))


def _check_name(request: Incoming) -> None:
    """Check the name of an instance, although the host is what is probed."""
    instance_name(request.path_params.get("instance", DEFAULT_INSTANCE))
