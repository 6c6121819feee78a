"""The functions that write the answers of requests with an Idempotency-Key, while those are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TypeVar

from tocsin.actors.scheduler.transitions.idempotency import Render

A = TypeVar("A")


class Renderers:
    """Each is used by the turn of its event, which holds its number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, Render] = {}

    async def ask(self, render: Render, send: Callable[[int], Awaitable[A]]) -> A:
        """Send an event with the number of its renderer, which is kept until the event is answered or has failed.

        A caller that goes away meanwhile changes nothing: the turn that may still come needs the renderer.
        """
        number = next(self._numbers)
        self._waiting[number] = render
        asked = asyncio.ensure_future(send(number))
        asked.add_done_callback(lambda _: self._waiting.pop(number, None))
        return await asyncio.shield(asked)

    def take(self, number: int) -> Render:
        """Give the renderer to its turn. If the turn leaves no trace, the event may have another one."""
        return self._waiting[number]
