"""Dispatch for tests: a network that loses, delays and duplicates, and a receiver that verifies and remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from tocsin.dispatch.signing import Signer
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed, NeverConnected

Receive = Callable[[Mapping[str, str], bytes], Awaitable[Answer]]
LATENCIES_S = (0.001, 0.02, 0.4, 3.0)


class SimNetwork:
    """A `Transport`. `fault()` is the share of calls that go wrong just now; no one answers once `alive()` is false."""

    def __init__(
        self,
        receive: Receive,
        random: Random,
        *,
        alive: Callable[[], bool] = lambda: True,
        fault: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._receive, self._random, self._alive, self._fault = receive, random, alive, fault
        self.in_flight = 0

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
        self.in_flight += 1
        sent = False
        try:
            async with asyncio.timeout(timeout):
                await self._travel()
                dice, fault = self._random.random(), self._fault()
                if dice < fault / 4:
                    raise NeverConnected("refused, as the simulation wanted")
                sent = True
                answer = await self._deliver(headers, body, duplicate=dice < fault / 2)
                if dice > 1 - fault / 4:
                    raise BrokenExchange("the answer was lost, as the simulation wanted")
                if dice > 1 - fault / 2:
                    await asyncio.get_running_loop().create_future()  # never answers: the deadline ends it
                await self._travel()
                return answer
        except TimeoutError:
            raise DeadlinePassed(f"after {timeout:g} s") if sent else NeverConnected("in time") from None
        finally:
            self.in_flight -= 1

    async def _travel(self) -> None:
        await asyncio.sleep(self._random.choice(LATENCIES_S))
        if not self._alive():
            await asyncio.get_running_loop().create_future()

    async def _deliver(self, headers: Mapping[str, str], body: bytes, *, duplicate: bool) -> Answer:
        if duplicate:
            await self._receive(headers, body)
        return await self._receive(headers, body)

    async def aclose(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One callback as it arrived."""

    id: str
    webhook_id: str
    attempt: int
    lease: str
    body: dict[str, Any]
    headers: Mapping[str, str]


class FakeReceiver:
    """Verifies each callback, remembers it, and answers what `answer(delivery)` says (200 if not given)."""

    def __init__(
        self,
        secrets: list[str | bytes],
        *,
        now_ms: Callable[[], int],
        answer: Callable[[Delivery], Answer | Awaitable[Answer]] | None = None,
    ) -> None:
        self.deliveries: list[Delivery] = []
        self._signer, self._now_ms, self._answer = Signer(secrets), now_ms, answer

    async def __call__(self, headers: Mapping[str, str], body: bytes) -> Answer:
        webhook_id = self._signer.verify(headers, body, now_s=self._now_ms() / 1000)
        content = msgspec.json.decode(body)
        delivery = Delivery(content["id"], webhook_id, content["attempt"], content["lease"], content, headers)
        self.deliveries.append(delivery)
        if self._answer is None:
            return Answer(200, {}, b"ok")
        answer = self._answer(delivery)
        return await answer if isinstance(answer, Awaitable) else answer
