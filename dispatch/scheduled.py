"""Answers of a scheduler to those who schedule and cancel, in its process and over HTTP."""

from __future__ import annotations

import msgspec

from tocsin.dispatch.plain import Plain


class Scheduled(Plain, msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to a schedule request. `created` is False if `onConflict: keep` found the id taken; then
    `identical` says whether that job is what was asked for, and `state` how it stands. It is False, too, if a debounce
    or a throttle made one job of this call and an earlier one; then `state` says how that stood."""

    id: str
    scheduled_for: int
    created: bool
    identical: bool | None = None
    state: str | None = None


class Cancelled(Plain, msgspec.Struct, frozen=True, rename="camel"):
    """`was_running`: an attempt is under way; its slot is held until it ends, nothing else remains."""

    cancelled: bool
    was_running: bool
