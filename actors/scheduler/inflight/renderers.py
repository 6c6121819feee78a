"""The functions that write the answers of requests with an Idempotency-Key, while those are on their way."""

from __future__ import annotations

from itertools import count

from tocsin.actors.scheduler.transitions.idempotency import Render


class Renderers:
    """Each is taken by the turn that its number names, also if the caller has gone meanwhile."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, Render] = {}

    def enter(self, render: Render) -> int:
        number = next(self._numbers)
        self._waiting[number] = render
        return number

    def take(self, number: int) -> Render:
        return self._waiting.pop(number)

    def drop(self, number: int) -> None:
        """Forget the renderer of a call that failed, whether a turn has taken it or not."""
        self._waiting.pop(number, None)
