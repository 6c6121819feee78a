"""Check the args of one path, and name a fault in them by its place, like `args.items[3].amount`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tocsin.errors import InvalidInputError

Schema = Mapping[str, Any]
"""A JSON Schema of draft 2020-12; of args as they are on the wire, tagged values included."""
MAX_PART: Final = 80
MAX_FAULT: Final = 400
"""Characters of a refusal: it is stored with a dead job, and args may be long."""
ANY_ARGS: Final[Schema] = {}
NO_ARGS: Final[Schema] = {"anyOf": [{"type": "null"}, {"type": "object", "maxProperties": 0}]}


class Expected(ABC):
    """Checks args. `schema` says to people and to clients what fits."""

    schema: Schema

    @abstractmethod
    def refusal(self, raw: bytes) -> str | None:
        """Return why this JSON text does not fit, or None. `raw` was read before: it is JSON with right tags."""

    def read(self, value: Any) -> Any:
        """Return what a handler of this type is given for `value` (args with Python's types). InvalidInputError."""
        return value


class AnyArgs(Expected):
    """Anything goes."""

    schema = ANY_ARGS

    def refusal(self, raw: bytes) -> str | None:
        return None


class NoArgs(Expected):
    """None: `null`, or an empty object, which is what HTTP makes of args that are left out."""

    schema = NO_ARGS

    def refusal(self, raw: bytes) -> str | None:
        return None if raw.split() in ([b"null"], [b"{}"], [b"{", b"}"]) else "args: expected none"

    def read(self, value: Any) -> Any:
        if value is None or value == {}:
            return None
        raise InvalidInputError("args: expected none")


def place(parts: Iterable[str | int], whole: str = "args") -> str:
    """Return a place like `args.items[3].amount`; what is no name of a member is quoted."""
    return whole + "".join(f"[{part}]" if isinstance(part, int) else _member(part) for part in parts)


def _member(name: str) -> str:
    shown = name if len(name) <= MAX_PART else name[: MAX_PART - 3] + "..."
    return f".{shown}" if shown.replace("-", "_").isidentifier() else f"[{shown!r}]"


def fault(where: str, words: str) -> str:
    """Return one short line: what does not fit may be as long as args may be."""
    said = f"{where}: {' '.join(words.split())}"
    return said if len(said) <= MAX_FAULT else said[: MAX_FAULT - 3] + "..."


def raised(where: str, error: BaseException) -> str:
    """Word the failure of a type's own code (`__post_init__`, a validator) with more than a ValueError."""
    return fault(where, f"its own check raised {type(error).__name__}")
