"""Read a set of schedules from callers: a builder's declarations, or names with the arguments of `put`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tocsin.actors.cron.builder import Declared
from tocsin.actors.scheduler.model.validation import duration_ms
from tocsin.dispatch.instants import show
from tocsin.dispatch.job_options import SharedOptions
from tocsin.dispatch.words import meant
from tocsin.errors import InvalidInputError

_DURATIONS: Final = {
    "every": "every_ms",
    "expires_after": "expires_after_ms",
    "grace": "grace_ms",
    "jitter": "jitter_ms",
}
_KNOWN: Final = (
    "path", "args", "cron", "every", "at", "timezone", "workflow", *SharedOptions.__annotations__,
    "expires_after", "misfire", "grace", "catch_up_limit", "overlap", "jitter", "paused", "then",
    "on_dead",
)  # fmt: skip


def arguments_of(one: Declared | tuple[str, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]]:
    """Split a name from the arguments of `put`; durations in ms under the names that definitions have for them."""
    if isinstance(one, Declared):
        rule = {"cron": one.cron, "timezone": one.timezone, "path": one.target, "workflow": one.workflow}
        return one.name, {**rule, **one.options}
    try:
        name, given = one
    except (TypeError, ValueError):
        name, given = None, None
    if not isinstance(name, str) or not isinstance(given, Mapping):
        raise InvalidInputError(
            f"schedules must be a Cron, or pairs of a name and a mapping of the arguments of put, not {show(one)}"
        )
    return name, given


def definition_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `put` under the names of a definition, durations in ms; refuses what is no argument."""
    known = dict(given)
    if unknown := sorted(set(known) - {*_KNOWN, *_DURATIONS.values()}, key=repr):
        raise InvalidInputError(
            f"there is no argument {unknown[0]!r}{meant(str(unknown[0]), _KNOWN)}, there are {', '.join(_KNOWN)}"
        )
    for name, in_ms in _DURATIONS.items():
        value = known.pop(name, None)
        if value is not None and known.get(in_ms) is not None:
            raise InvalidInputError(f"give one of {name} and {in_ms}")
        if value is not None:
            known[in_ms] = duration_ms(value, name)
    known["function_path"] = known.pop("path", None)
    return known
