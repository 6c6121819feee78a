"""A group that was asked for and found valid, on its way to the turn that makes it."""

from __future__ import annotations

import msgspec


class NewGroup(msgspec.Struct, frozen=True):
    """A validated group. What follows it is encoded, as it is stored."""

    name: str
    size: int | None = None
    then: bytes = b""
    on_dead: bytes = b""
    then_targets: tuple[str, ...] = ()
    """Targets of `then`, nested ones too; and ..."""
    on_dead_targets: tuple[str, ...] = ()
    """... of `on_dead`."""
    initiator: tuple[str, str] = ("", "")
