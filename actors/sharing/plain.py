"""Plain data: what the calls of users' own actors may hold when they go to another process, and come back as it was."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tocsin.dispatch.words import kind_of
from tocsin.errors import InvalidInputError

_ATOMS: Final = (str, bytes, int, float, bool, type(None))


def encode(value: object, what: str) -> bytes:
    """Write a value; InvalidInputError names the place of what is not plain, or what is too large a number."""
    try:
        _check(value, what)
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInputError(f"{what} cannot go to another process: {error}") from error


def decode(body: bytes) -> Any:
    return msgspec.msgpack.decode(body)


def _check(value: object, place: str) -> None:
    if type(value) in _ATOMS:
        return
    if isinstance(value, (list, tuple)):
        for n, one in enumerate(value):
            _check(one, f"{place}[{n}]")
    elif type(value) is dict:
        for key, one in value.items():
            if type(key) not in _ATOMS:
                raise _refused(key, f"a key of {place}")
            _check(one, f"{place}[{key!r}]")
    else:
        raise _refused(value, place)


def _refused(value: object, place: str) -> InvalidInputError:
    return InvalidInputError(
        f"{place} is {kind_of(value)}: another process holds the store, and what goes there and comes back is plain "
        "data (text, bytes, numbers, True, False, None, lists and dicts of them; a tuple arrives as a list)"
    )
