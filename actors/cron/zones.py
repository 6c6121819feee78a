"""Time zones: which exist, and how their wall clock runs against real time. All in whole seconds since 1970."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tocsin.errors import UnknownTimezoneError

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*", re.ASCII)
_OF_THE_HOST: Final = frozenset({"localtime", "posixrules", "Factory"})
_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the clock at `instant`: until then `before` seconds ahead of UTC, from then on `after`."""

    instant: int
    before: int
    after: int

    @property
    def first_wall(self) -> int:
        """Return what the clock shows at the change, after it: where a repeated time begins, or where a skipped one
        ends."""
        return self.instant + self.after

    @property
    def last_wall(self) -> int:
        """Return what the clock would have shown: where a repeated time ends, or where a skipped one begins."""
        return self.instant + self.before


class Zone:
    """An IANA time zone, by its name or as a `ZoneInfo`. UnknownTimezoneError if there is none of that name; never the
    host's zone instead."""

    def __init__(self, name: object) -> None:
        self.name = _checked(name)
        self._tz = _load(self.name)

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"

    def offset(self, instant: int) -> int:
        """Return the seconds ahead of UTC."""
        return _seconds((_EPOCH_UTC + timedelta(seconds=instant)).astimezone(self._tz))

    def wall(self, instant: int) -> int:
        return instant + self.offset(instant)

    def offsets_at(self, wall: int) -> tuple[int, int]:
        """Return the offset of the earlier and of the later reading of a wall time (PEP 495).

        Equal for a usual time; the first is larger where the time comes twice, smaller where it is skipped.
        """
        moment = (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=self._tz)
        return _seconds(moment), _seconds(moment.replace(fold=1))

    def change_at(self, wall: int, before: int, after: int) -> Change:
        """Return the change that makes this wall time come twice or not at all; `before`, `after` from `offsets_at`."""
        low, high = sorted((wall - before, wall - after))
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return Change(high, before, after)


def _seconds(moment: datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _checked(name: object) -> str:
    if isinstance(name, ZoneInfo) and name.key is not None:
        name = name.key
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name) or name in _OF_THE_HOST:
        shown = repr(name) if isinstance(name, str) else type(name).__name__
        raise UnknownTimezoneError(
            f"timezone must be an IANA name like Europe/Berlin, not {shown if len(shown) <= 80 else shown[:77] + '...'}"
        )
    return name


@cache
def _known() -> Mapping[str, str]:
    """Return the names of this machine by their lower case; read once, since it takes looking at all files."""
    return {zone.lower(): zone for zone in available_timezones()}


@cache
def _load(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    known = _known()
    if known.get(name.lower()) == name:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, OSError, ValueError) as error:
            raise UnknownTimezoneError(f"timezone {name!r}: its rules cannot be read here: {error}") from error
    if not known:
        raise UnknownTimezoneError(f"timezone {name!r}: this machine has no time zones, install the package tzdata")
    if (right := known.get(name.lower())) is not None:
        raise UnknownTimezoneError(f"timezone {name!r} is not known: it is written {right!r}")
    raise UnknownTimezoneError(f"timezone {name!r} is not known here: give an IANA name like Europe/Berlin")


@cache
def database_version() -> str:
    """Return which release of the tz database this process reads: the system's if it tells, else that of the
    package."""
    for folder in zoneinfo.TZPATH:
        try:
            with (Path(folder) / "tzdata.zi").open(encoding="ascii", errors="replace") as file:
                return file.readline().strip("# \n")[:40] or "unknown"
        except OSError:
            continue
    try:
        return f"package {version('tzdata')}"
    except PackageNotFoundError:
        return "unknown"
