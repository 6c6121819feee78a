"""The first words over a link, and how the holder says that it is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tocsin.actors.scheduler.model.records import HealthReason
from tocsin.dispatch.refusals import Refusal


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of a follower: what it speaks, the token that it read, and digests of its configuration."""

    version: int
    token: str
    settings: Mapping[str, str] = {}
    pid: int = 0


class Welcome(msgspec.Struct, array_like=True, frozen=True):
    """The answer to a `Hello`. `differing` names what of the follower's configuration is not as the holder's."""

    pid: int
    differing: Sequence[str] = ()


class Vitals(msgspec.Struct, array_like=True, frozen=True):
    """How the holder is: sent with its welcome, and with each sign of life."""

    health: Sequence[HealthReason] = ()
    trouble: Refusal | None = None
    has_origin: bool | None = None
    """True if callbacks have somewhere to go."""
