"""Query parameters: each known, each given once, each checked where it is read."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from tocsin.actors.http.incoming import Incoming
from tocsin.actors.scheduler.client.source import SOURCE
from tocsin.dispatch.surrogates import UNPAIRED, is_whole
from tocsin.errors import InvalidInputError

MOST_FIELDS: Final = 32
FRESH: Final = "fresh"
"""Of every read: the host that has the scheduler is to answer."""


class Query:
    """The parameters of one request; InvalidInputError for one that is unknown or given twice."""

    def __init__(self, request: Incoming, known: tuple[str, ...]) -> None:
        self._values: dict[str, str] = {}
        source = SOURCE.get()  # None for what no host could answer from the store
        if source is not None:
            known = (*known, FRESH)
        for name, value in _pairs(request):
            if name not in known:
                choice = f"this route takes {', '.join(known)}" if known else "this route takes none"
                raise InvalidInputError(f"unknown query parameter {name[:80]!r}: {choice}")
            if name in self._values:
                raise InvalidInputError(f"query parameter {name} is given more than once")
            self._values[name] = value
        if source is not None and FRESH in self._values:
            source.fresh = self.flag(FRESH)

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def required(self, name: str) -> str:
        value = self._values.get(name)
        if not value:
            raise InvalidInputError(f"query parameter {name} is missing")
        return value

    def flag(self, name: str) -> bool:
        value = self._values.get(name, "false")
        if value not in ("true", "false"):
            raise InvalidInputError(f"query parameter {name} must be true or false, not {value[:80]!r}")
        return value == "true"

    def whole_or(self, name: str, otherwise: int) -> int:
        value = self.whole(name)
        return otherwise if value is None else value

    def whole(self, name: str) -> int | None:
        """Read a number written in plain digits."""
        value = self._values.get(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdecimal() and len(value) <= 18):
            raise InvalidInputError(f"query parameter {name} must be a whole number, not {value[:80]!r}")
        return int(value)


def _pairs(request: Incoming) -> list[tuple[str, str]]:
    raw: bytes = request.scope.get("query_string", b"")
    try:
        return parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS, separator="&"
        )
    except UnicodeDecodeError:
        raise InvalidInputError(_unreadable(raw)) from None
    except ValueError:
        raise InvalidInputError(f"the query has more than {MOST_FIELDS} parameters") from None


def _unreadable(raw: bytes) -> str:
    """Say why, naming a parameter that contains an unpaired surrogate."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="surrogatepass", separator="&")
    except UnicodeDecodeError:
        return "the query must be percent-encoded UTF-8"
    half = next((name for name, value in pairs if not (is_whole(name) and is_whole(value))), "")
    return f"query parameter {ascii(half) if not is_whole(half) else half} {UNPAIRED}"
