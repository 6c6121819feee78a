"""Errors on their way from the holder to a follower: by name, with message and details."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from tocsin import errors
from tocsin.dispatch.refusals import Refusal
from tocsin.errors import ActorBrokenError, TocsinError

log = logging.getLogger("tocsin.sharing")

_encoder: Final = msgspec.json.Encoder(enc_hook=str)
_decoder: Final = msgspec.json.Decoder(Refusal)


def refusal_of(error: BaseException, what: str) -> Refusal:
    """Describe an error. One that tocsin did not raise on purpose is logged here, and becomes an ActorBrokenError."""
    if not isinstance(error, TocsinError):
        log.error("%s failed", what, exc_info=error)
        error = ActorBrokenError(
            f"{what} raised {type(error).__name__} in the process that holds the store, whose log says more",
            error=type(error).__name__,
        )
    known = (each for each in type(error).__mro__ if getattr(errors, each.__name__, None) is each)
    return Refusal(next(known, TocsinError).__name__, error.message, error.details)


def encode(refusal: Refusal) -> bytes:
    return _encoder.encode(refusal)


def decode(body: bytes) -> TocsinError:
    """Return the error that was described."""
    return _decoder.decode(body).error()
