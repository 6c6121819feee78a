"""A tour of the routes of groups, and of what is set of queues, for `test_documented_answers`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


async def group_tour(ask: Callable[..., Awaitable[Any]], job: dict[str, Any]) -> None:
    """Ask each of them as it is meant, and otherwise."""
    group = "/groups/{group}"
    made = {"name": "g", "size": 5, "then": [{"functionPath": "q"}], "onDead": [{"functionPath": "q"}]}
    for body in (made, made, {**made, "size": 6}, {**made, "size": 0}):
        await ask("POST", "/groups", body)
    await ask("POST", "/schedule", {**job, "id": "member", "group": "g"})
    await ask("POST", "/schedule", {**job, "id": "member-2", "group": "nowhere"})
    await ask("GET", "/get", params={"id": "member"})
    await ask("GET", "/groups")
    for name in ("g", "nowhere"):
        for route in (group, f"{group}/members"):
            await ask("GET", route, group=name)
        for deed in ("seal", "cancel", "cancel"):
            await ask("POST", f"{group}/{deed}", group=name)
    await ask("POST", "/cancel", {"id": "member"})
    await ask("POST", f"{group}/cancel", group="g")
    await ask("PUT", "/queues/{queueName}", {"fair": True, "weights": {"customer-7": 2}})
