"""`POST /ws-token`: a pass for a browser, which can send no header when it opens a WebSocket.

A URL is seen by many: it stands in logs of proxies and in histories. So what stands there opens one socket of one
instance, once, within a minute, and stands for a token only as long as that is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import Final

from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.endpoint import DEFAULT_INSTANCE, Endpoint
from tocsin.actors.http.feed.rights import Rights
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.query import Query
from tocsin.actors.http.response_models import WsToken
from tocsin.actors.http.responses import Reply, answer
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.inflight.passes import LIFE_S, Passes
from tocsin.errors import UnauthenticatedError

BETWEEN: Final = "/"
"""Stands in no name of an instance, and in no digest."""
PASS_MAX: Final = 128


class PassDesk:
    """Gives passes out, and takes them."""

    def __init__(self, passes: Callable[[], Passes], random: Random) -> None:
        self._passes, self._random = passes, random

    async def give(self, visit: Visit, instance: str) -> str:
        """Return a pass into one instance for whoever asks."""
        secret = f"ws_{self._random.getrandbits(192):048x}"
        digest = "" if visit.token is None else visit.token.digest.hex()
        await self._passes().keep(_digest(secret), f"{instance}{BETWEEN}{digest}")
        return secret

    async def take(self, secret: str, instance: str) -> str:
        """Return the digest of the token that a pass stands for ("": of none). UnauthenticatedError if it is no pass
        into this instance, or not any more."""
        known = await self._passes().take(_digest(secret)) if len(secret) <= PASS_MAX else None
        of, _, digest = (known or "").partition(BETWEEN)
        if known is None or of != instance:
            raise UnauthenticatedError(
                "the token in the URL is none of POST /ws-token for this instance, or was used, or is older than "
                f"{LIFE_S:g} s; a token of the server belongs into the Authorization header, and never into a URL"
            )
        return digest


class WsTokenEndpoint(Endpoint):
    """Gives a pass to who may watch the instance."""

    def __init__(self, gate: Gate, ports: Callable[[str], SchedulerPort], desk: PassDesk) -> None:
        super().__init__(["POST"], gate)
        self._ports, self._desk = ports, desk

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        Query(request, ())
        instance = self._ports(request.path_params.get("instance", DEFAULT_INSTANCE)).name
        await Rights(self._gate, request, instance).check()
        return answer(WsToken(await self._desk.give(visit, instance), int(LIFE_S * 1000)))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
