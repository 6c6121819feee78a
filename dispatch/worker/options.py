"""The options of a worker, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.receiver.handlers import Handler
from tocsin.dispatch.receiver.outcomes import LEASE_MS
from tocsin.dispatch.words import kind_of
from tocsin.dispatch.worker.handlers import DEFAULT_OWNER, Handlers
from tocsin.dispatch.worker.source import Source
from tocsin.errors import InvalidInputError, SettingsError

ALL: Final = "*"
NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
CONCURRENCY: Final = (1, 1_000)
WAIT_MS: Final = (1_000, 300_000)
MAX_QUEUES: Final = 100


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a worker."""

    queues: str | list[str]
    exclude: list[str]
    concurrency: int
    lease_ms: int
    wait_ms: int
    drain_s: float | None
    name: str | None


def checked(
    queues: object, exclude: object, concurrency: object, lease_ms: object, wait: object, drain: object, name: object
) -> Options:
    """Return checked options. SettingsError names the option, the value and the limit."""
    selected = ALL if queues == ALL else _names("queues", queues)
    left_out = _names("exclude", exclude, none=True)
    if left_out and selected != ALL:
        raise SettingsError('exclude is for queues="*": leave out of queues what is not to be served')
    if name is not None and (not isinstance(name, str) or not NAME.fullmatch(name)):
        raise SettingsError(f"name must match {NAME.pattern}, not {name!r:.100}")
    return Options(
        queues=selected,
        exclude=left_out,
        concurrency=_whole("concurrency", concurrency, *CONCURRENCY),
        lease_ms=_whole("lease_ms", lease_ms, *LEASE_MS),
        wait_ms=_whole("wait", _ms("wait", wait), *WAIT_MS, unit=" ms"),
        drain_s=None if drain is None else _ms("drain", drain) / 1000,
        name=name,
    )


def source_of(jobs: object) -> Source:
    """Return `jobs` if it can be claimed from, else raise a SettingsError."""
    if isinstance(jobs, str):
        raise SettingsError("jobs must be a scheduler, not a text: give Client(url, token=...).scheduler(name)")
    if missing := [name for name in ("claim", "settle", "extend", "announce") if not hasattr(jobs, name)]:
        raise SettingsError(
            f"jobs must be a scheduler, host.scheduler(name) or Client(url).scheduler(name), and {kind_of(jobs)} has "
            f"no {missing[0]}()"
        )
    found: Any = jobs
    return found  # type: ignore[no-any-return]


def handlers_of(handlers: object) -> Handlers:
    """Return a registry, or a mapping from function paths to functions."""
    if isinstance(handlers, Handlers):
        return handlers
    if isinstance(handlers, Mapping):
        made = Handlers()
        given: Mapping[str, Handler] = handlers
        made.register(DEFAULT_OWNER, given)
        return made
    raise SettingsError(f"handlers must be a Handlers or a mapping, not {type(handlers).__name__}")


def _names(option: str, value: object, *, none: bool = False) -> list[str]:
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, Sequence) else None
    if names is None or (not names and not none):
        raise SettingsError(f"{option} must be a name or a list of names{'' if none else ', or * for all'}")
    for one in names:
        if not isinstance(one, str) or not NAME.fullmatch(one):
            raise SettingsError(f"{option}: a name must match {NAME.pattern}, not {one!r:.100}")
    if len(names) > MAX_QUEUES:
        raise SettingsError(f"{option}: {len(names)} names given, at most {MAX_QUEUES}")
    return list(dict.fromkeys(names))


def _whole(option: str, value: object, least: int, most: int, unit: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SettingsError(f"{option} must be a whole number, not {value!r:.100}")
    if not least <= value <= most:
        raise SettingsError(f"{option} must be {least}..{most}{unit}, not {value}{unit}")
    return value


def _ms(option: str, value: Duration | object) -> int:
    try:
        return duration_ms(value, option)
    except InvalidInputError as error:
        raise SettingsError(error.message) from None
