"""Every code that an error may carry, read from `error_catalog.json`: its status, when it comes, whether the same
request may be sent again as it is, and what to do. docs/errors.md and the OpenAPI document say what stands there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

import msgspec

from tocsin.actors.http.shapes import Schema


class Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`details` are further members of the error, which it may have; `example` is one such error."""

    code: str
    status: int
    when: str
    again: str
    do: str
    example: Mapping[str, Any]
    details: Mapping[str, Schema] = {}


_ALL: Final = msgspec.json.decode(files(__package__).joinpath("error_catalog.json").read_bytes(), type=tuple[Code, ...])

CODES: Final[Mapping[str, Code]] = MappingProxyType({one.code: one for one in _ALL})

RETRY_AFTER_S: Final[Mapping[int, int]] = MappingProxyType({429: 30, 503: 1})
"""Seconds of Retry-After for each status: jobs take a while to end, requests and restarts do not."""
