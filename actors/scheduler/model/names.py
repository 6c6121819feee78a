"""The name under which a scheduler is an actor."""

from __future__ import annotations

from typing import Final

from tocsin.actors.runtime.ids import ActorId

KIND: Final = "scheduler"


def actor_of(instance: str) -> ActorId:
    """Return the id of the actor that owns this instance."""
    return ActorId(KIND, instance)
