"""Locate a fault that msgspec found in args: it writes `[...]` for a key of a dict, and people want to know which."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from tocsin.dispatch.catalog.expected import place

KEY: Final = "[...]"
MOST_KEYS: Final = 4_096
"""Of a longer dict the key is not looked for: each step checks the args anew."""
_PART: Final = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]")


def named(path: str, value: Any, fault_of: Callable[[Any], str | None]) -> str:
    """Return `path` with the first wrong key for each `[...]`. `fault_of` says the first fault of args.

    What is checked first is what stands first: so the wrong key ends the shortest beginning of the dict that has the
    fault.
    """
    before, found, after = path.partition(KEY)
    parts = _parts(before) if found else None
    holder = None if parts is None else _at(value, parts)
    if parts is None or not isinstance(holder, dict) or not 0 < len(holder) <= MOST_KEYS:
        return path
    wanted = fault_of(value)
    key = _wrong_key(value, parts, holder, lambda one: fault_of(one) == wanted)
    if key is None:
        return path
    return before + place([key], "") + named(after, holder[key], _below(value, parts, key, fault_of))


def _below(
    value: Any, parts: list[str | int], key: str, fault_of: Callable[[Any], str | None]
) -> Callable[[Any], str | None]:
    return lambda inner: fault_of(_with(value, parts, {key: inner}))


def _wrong_key(
    value: Any, parts: list[str | int], holder: Mapping[str, Any], wrong: Callable[[Any], bool]
) -> str | None:
    """Search by halves for the last key of the shortest beginning that is wrong."""
    least, most = 1, len(holder)
    while least < most:
        middle = (least + most) // 2
        if wrong(_with(value, parts, dict(islice(holder.items(), middle)))):
            most = middle
        else:
            least = middle + 1
    beginning = dict(islice(holder.items(), least))
    return next(reversed(beginning)) if wrong(_with(value, parts, beginning)) else None


def _parts(path: str) -> list[str | int] | None:
    parts: list[str | int] = []
    at = 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None:
            return None
        parts.append(match["name"] if match["name"] is not None else int(match["index"]))
        at = match.end()
    return parts


def _at(value: Any, parts: list[str | int]) -> Any:
    for part in parts:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return None
    return value


def _with(value: Any, parts: list[str | int], inner: Any) -> Any:
    """Return a copy of `value` in which `inner` stands at a place."""
    if not parts:
        return inner
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[parts[0]] = _with(value[parts[0]], parts[1:], inner)
    return copy
