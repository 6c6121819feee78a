"""Count the requests of one app by route, method and status, and the connections of the server in front of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

NO_ROUTE: Final = "(none)"
Answered = dict[tuple[str, int], int]
"""How many requests of one route were answered, by method and status."""


class Traffic:
    """The requests of one app. Each route counts its own, in a dict that is its own."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, Answered]] = []
        self.unrouted: Answered = {}
        self.connections: Callable[[], int] | None = None
        """Set by a server that counts them."""
        self.follow(NO_ROUTE, self.unrouted)

    def follow(self, route: str, answered: Answered) -> None:
        """Have what this route counts told with the others."""
        self._routes.append((route, answered))

    def requests(self) -> dict[tuple[str, str, str], int]:
        """Return the counts by method, route and status."""
        found: Counter[tuple[str, str, str]] = Counter()
        for route, answered in self._routes:
            for (method, status), count in answered.items():
                found[method, route, str(status)] += count
        return dict(sorted(found.items()))
