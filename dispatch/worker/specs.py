"""Jobs as Python callers write them down, turned into what the HTTP API takes; the server checks the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tocsin.dispatch import values
from tocsin.dispatch.durations import duration_ms
from tocsin.dispatch.instants import instant_ms
from tocsin.dispatch.job_options import MEMBERS
from tocsin.dispatch.words import meant
from tocsin.errors import InvalidInputError

PARTS: Final = ("path", "args", "at", "after", "workflow", "options", "debounce")
WHEN: Final = {"at": "scheduledFor", "after": "delayMs", "debounce": "debounceMs"}
"""The parts that say when a job is due, with their names in JSON."""
DURATIONS: Final = ("keep_result", "max_wait", "throttle")


def body_of(spec: object, place: str = "") -> dict[str, Any]:
    """Return the JSON members of one job: a `Job`, or a mapping with its parts."""
    parts = _parts(spec, place)
    body: dict[str, Any] = {"args": msgspec.Raw(values.encode(parts["args"], f"{place}args"))}
    if parts["path"] is not None:
        body["functionPath"] = parts["path"]
    if parts["workflow"] is not None:
        body["workflow"] = parts["workflow"]
    when = [name for name in WHEN if parts[name] is not None]
    if len(when) > 1 or not (when or place):
        raise InvalidInputError(f"{place}: give exactly one of at, after and debounce".lstrip(": "))
    for name in when:
        read = instant_ms if name == "at" else duration_ms
        body[WHEN[name]] = read(parts[name], f"{place}{name}")
    for name, value in (parts["options"] or {}).items():
        if name not in MEMBERS:
            near = meant(str(name), MEMBERS)
            raise InvalidInputError(
                f"{place}options: there is no {name!r} over HTTP{near}; there are {', '.join(MEMBERS)}"
            )
        if value is not None:
            body[MEMBERS[name]] = _option(name, value, place)
    return body


def _parts(spec: object, place: str) -> dict[str, Any]:
    if isinstance(spec, Mapping):
        if unknown := spec.keys() - set(PARTS):
            raise InvalidInputError(f"{place}unknown part {min(map(str, unknown))!r}: a job has {', '.join(PARTS)}")
        return {name: spec.get(name, values.LEFT_OUT if name == "args" else None) for name in PARTS}
    if not all(hasattr(spec, name) for name in PARTS):
        raise InvalidInputError(f"{place}a job must be a Job or a mapping, not {type(spec).__name__}")
    return {name: getattr(spec, name) for name in PARTS}


def _option(name: str, value: Any, place: str) -> Any:
    if name == "expires_at":
        return instant_ms(value, f"{place}expires_at")
    if name in DURATIONS:
        return duration_ms(value, f"{place}{name}")
    if name in ("then", "on_dead"):
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise InvalidInputError(f"{place}{name} must be a list of jobs, not {type(value).__name__}")
        return [body_of(one, f"{place}{name}[{n}].") for n, one in enumerate(value)]
    if name == "group" and not isinstance(value, str):
        return _group(value, place)
    return value


def _group(value: Any, place: str) -> dict[str, Any]:
    """Return the JSON members of a group that a job defines: a `Group`, or a mapping with its parts."""
    parts = ("name", "then", "on_dead", "size")
    if not isinstance(value, Mapping) and not all(hasattr(value, name) for name in parts):
        raise InvalidInputError(f"{place}group must be a name or a Group, not {type(value).__name__}")
    given = {name: value.get(name) if isinstance(value, Mapping) else getattr(value, name) for name in parts}
    body = {name: given[name] for name in ("name", "size") if given[name] is not None}
    for name in ("then", "on_dead"):
        if given[name]:
            body[MEMBERS[name]] = _option(name, given[name], f"{place}group.")
    return body
