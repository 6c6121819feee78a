"""Pools as records tell of them."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.model.by import By
from tocsin.actors.scheduler.model.outcomes import Value
from tocsin.dispatch.rate import Rate


class PoolStatus(Value, frozen=True, rename="camel", omit_defaults=True):
    """`queued` counts its pending and waiting jobs, `in_flight` its held slots. `rate` if it has one, `cooling_until`
    (epoch ms) if it was told to wait until then, which may be past."""

    name: str
    in_flight: int
    max_concurrency: int
    queued: int
    paused: bool
    rate: Rate | None = None
    cooling_until: int | None = None


class Holder(Value, frozen=True, rename="camel"):
    """A held slot: whose, of what kind, until when (epoch ms). `orphan`: its job was cancelled."""

    id: str
    kind: str
    until: int
    orphan: bool


class Pool(Value, frozen=True, rename="camel", omit_defaults=True):
    """A pool in detail; `holders` shows at most 1,000. `created`, where one was set just now: whether it was unknown
    until then. `known`: whether anybody has set it or named it in a job. `paused_at` and `paused_by` if it is paused:
    since when (epoch ms), and by whom.

    `rate`: how many of its jobs may start in a time; `next_token_at` (epoch ms) if none may start before. It may cool
    (`cool_on_retry_after`): none starts before `cooling_until`. `fair`: jobs of different shard keys have turns, by
    `weights`; `max_per_key` of one key run at once."""

    name: str
    in_flight: int
    max_concurrency: int
    queued: int
    paused: bool
    holders: Sequence[Holder]
    created: bool | None = None
    known: bool = True
    paused_at: int | None = None
    paused_by: By | None = None
    rate: Rate | None = None
    cool_on_retry_after: str = "none"
    cooling_until: int | None = None
    next_token_at: int | None = None
    fair: bool = False
    weights: dict[str, int] | None = None
    max_per_key: int | None = None
