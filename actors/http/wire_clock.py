"""Requests to a test clock."""

from __future__ import annotations

from typing import Annotated, ClassVar

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema, shape
from tocsin.actors.http.wire import Request, Scalar
from tocsin.errors import InvalidInputError


class ClockRequest(Request, frozen=True, kw_only=True):
    """The instant at which the clock of a new instance stands."""

    at: Annotated[Scalar, shape(shapes.INSTANT, "The instant, epoch ms.", needed=True)] = None

    def required_at(self) -> Scalar:
        """Return the instant. InvalidInputError without one."""
        if self.at is None:
            raise InvalidInputError("at is needed: the instant at which the clock stands, epoch ms")
        return self.at


class FreezeRequest(Request, frozen=True, kw_only=True):
    """Nothing."""


class AdvanceRequest(Request, frozen=True, kw_only=True):
    """How far the clock is advanced."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.exactly_one("integer", "to", "byMs"),)

    to: Annotated[Scalar, shape(shapes.INSTANT, "To this instant, epoch ms. This or byMs.")] = None
    by_ms: Annotated[Scalar, shape(shapes.DELAY, "By so long, ms, instead of to.")] = None
