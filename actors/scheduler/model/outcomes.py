"""How attempts and jobs ended, as records for callers show it: results and errors, with what errors say to programs."""

from __future__ import annotations

from typing import Any

import msgspec

from tocsin.dispatch import values
from tocsin.dispatch.plain import Plain
from tocsin.dispatch.pulled import raw_member
from tocsin.errors import StoreCorrupt


class Value(Plain, msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Camel case in JSON, and no defaults."""


class ErrorInfo(Value, frozen=True, rename=raw_member, omit_defaults=True):
    """How the last attempt that did not succeed ended; `at` in epoch ms. `code` and `data`: what its handler or its
    receiver said for programs."""

    at: int
    message: str
    status: int | None = None
    code: str | None = None
    raw_data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def data(self) -> Any:
        """Return the data as the Python values that were given; None if there are none."""
        return _data(self.raw_data)


class Attempt(Value, frozen=True, rename=raw_member, omit_defaults=True):
    """How one attempt ended (or the job itself, if it had none); instants in epoch ms, `lateness_ms` after due."""

    attempt: int
    outcome: str
    started: int
    ended: int
    lateness_ms: int
    status: int | None = None
    error: str | None = None
    raw_result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result_damaged: bool = False
    code: str | None = None
    raw_data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def data(self) -> Any:
        """Return the data that came with its error, as Python values; None if there are none."""
        return _data(self.raw_data)

    @property
    def result(self) -> Any:
        """Return what it came to, as far as that is kept here (2 KiB); None if it said nothing. StoreCorrupt if that
        was damaged in the store."""
        if self.result_damaged:
            raise StoreCorrupt("the result of this attempt was damaged in the store: restore a backup")
        if isinstance(self.raw_result, msgspec.UnsetType):
            return None
        return values.decode(bytes(self.raw_result), "result")


class Outcome(Value, frozen=True, rename=raw_member, omit_defaults=True):
    """How a job ended, or how it stands: `state` is `done`, `dead`, `cancelled`, `expired`, or, before its end,
    `pending`, `waiting`, `running`. `ended_at` in epoch ms; `kept_until`: so long its result is kept. `code`, `status`
    and `data`: what the last attempt of a dead one said for programs."""

    id: str
    state: str
    raw_result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str | None = None
    ended_at: int | None = None
    kept_until: int | None = None
    result_damaged: bool = False
    """Set if the result was damaged in the store, and is left out."""
    no_result: str | None = None
    """Why a job that is done has no result, where it was meant to have one: too long, not JSON."""
    code: str | None = None
    status: int | None = None
    raw_data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def data(self) -> Any:
        """Return the data of the last error as the Python values that were given; None if there are none."""
        return _data(self.raw_data)

    @property
    def ended(self) -> bool:
        return self.state in ("done", "dead", "cancelled", "expired")

    @property
    def result(self) -> Any:
        if self.result_damaged:
            raise StoreCorrupt(f"the result of job {self.id!r} was damaged in the store: restore a backup")
        if isinstance(self.raw_result, msgspec.UnsetType):
            return None
        return values.decode(bytes(self.raw_result), "result")


def _data(raw: msgspec.Raw | msgspec.UnsetType) -> Any:
    return None if isinstance(raw, msgspec.UnsetType) else values.decode(bytes(raw), "data")
