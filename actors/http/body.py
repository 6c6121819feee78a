"""Request bodies: read within a limit, whatever their length claims to be, and turned into a request whose
every fault is named by field."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from inspect import iscoroutine
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from tocsin.actors.http import crowd as crowds
from tocsin.actors.http.crowd import Crowd, too_slow
from tocsin.actors.http.errors import InvalidJsonError, UnsupportedMediaTypeError
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.scheduler.model.followers import MAX_THEN
from tocsin.actors.scheduler.model.validation import MAX_ARGS
from tocsin.dispatch.surrogates import in_json
from tocsin.dispatch.values import MAX_DEPTH
from tocsin.errors import InvalidInputError, PayloadTooLargeError

T = TypeVar("T")

SMALL_BODY: Final = 64 * 1024
SCHEDULE_BODY: Final = MAX_ARGS + MAX_THEN + SMALL_BODY
BATCH_BODY: Final = 8 * 1024 * 1024

NONE, IDENTITY = [b""], [b"identity"]
Kind = tuple[str, re.Pattern[str]]
"""The media type of a body, and how a header may write it."""
_UTF8: Final = r'\s*(;\s*charset\s*=\s*"?utf-?8"?\s*)?;?\s*'
JSON: Final[Kind] = "application/json", re.compile("application/json" + _UTF8, re.IGNORECASE)
FORM: Final[Kind] = (
    "application/x-www-form-urlencoded",
    re.compile("application/x-www-form-urlencoded" + _UTF8, re.IGNORECASE),
)
_FAULT: Final = re.compile(r"(?P<words>.*?)(?: - at `(?P<path>[^`]*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_EXPECTED: Final = re.compile(r"Expected `(.*)`, got `(.*)`", re.DOTALL)
_TOO_LONG: Final = re.compile(r"Expected `array` of length <= (\d+)")


# ---- Reading -------------------------------------------------------------------------------------


async def read_body(
    request: Incoming, limit: int, crowd: Crowd | None, kind: Kind = JSON, *, optional: bool = False
) -> bytes:
    """Read the body, once its headers say what it is; PayloadTooLargeError as soon as it passes `limit` bytes. If it is
    `optional`, none at all is an empty object, whatever the headers say. A stranger shares its place with a `crowd`."""
    if not optional:
        _check_type(request, kind)
    _check_length(request.named.get(b"content-length", NONE)[0], limit)
    first = _Begun(request.receive)
    if (message := first.message) is not None and not message.get("more_body", False):
        body = _piece(message, 0, limit)
    elif crowd is not None:
        async with crowd.reading() as unfinished:
            body = await _read(first, request, limit, unfinished.add)
    else:
        try:
            async with asyncio.timeout(crowds.BODY_S):
                body = await _read(first, request, limit, None)
        except TimeoutError:
            raise too_slow() from None
    if optional:
        if not body:
            return b"{}"
        _check_type(request, kind)
    return body


async def _read(first: _Begun, request: Incoming, limit: int, grew: Callable[[int], None] | None) -> bytes:
    body, message = bytearray(), await first
    while True:
        piece = _piece(message, len(body), limit)
        if grew is not None:
            grew(len(piece))
        if not message.get("more_body", False):
            return bytes(body) + piece if body else piece
        body += piece
        message = await request.receive()


def _piece(message: Message, before: int, limit: int) -> bytes:
    """Return the bytes of a message. ClientDisconnect if there are none, PayloadTooLargeError if they are too many."""
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    piece: bytes = message.get("body", b"")
    if before + len(piece) > limit:
        raise _too_large(limit)
    return piece


def _check_type(request: Incoming, kind: Kind) -> None:
    kinds = request.named.get(b"content-type", ())
    if len(kinds) != 1 or not kind[1].fullmatch(kinds[0].decode("latin-1").strip()):
        shown = repr(kinds[0][:80].decode("latin-1")) if kinds else "missing"
        raise UnsupportedMediaTypeError(f"content-type must be {kind[0]} (in UTF-8), and is {shown}")
    if request.named.get(b"content-encoding", IDENTITY)[0].lower() != b"identity":
        raise UnsupportedMediaTypeError("content-encoding is not supported: send the body as it is")


def _check_length(declared: bytes, limit: int) -> None:
    """Refuse early what says that it is too large; what lies is caught while it streams."""
    if declared.isdigit() and (len(declared) > 15 or int(declared) > limit):
        raise _too_large(limit)


def _too_large(limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"the body is over the limit of {limit} bytes for this route", limit=limit)


class _Begun:
    """The next message of a request: asked for at once, and awaited only if it is not there yet.

    Most bodies have come by the time they are asked for, and need no deadline.
    """

    __slots__ = ("_pending", "_receiving", "message")

    def __init__(self, receive: Receive) -> None:
        self.message: Message | None = None
        self._receiving: Any = receive()
        if not iscoroutine(self._receiving):
            self._receiving = _awaited(self._receiving)
        try:
            self._pending = self._receiving.send(None)
        except StopIteration as end:
            self.message = end.value

    def __await__(self) -> Generator[Any, Any, Message]:
        """Go on where it was left."""
        if self.message is not None:
            return self.message
        pending = self._pending
        try:
            while True:
                try:
                    given = yield pending
                except BaseException as error:  # it belongs to whoever waits in there
                    pending = self._receiving.throw(error)
                else:
                    pending = self._receiving.send(given)
        except StopIteration as end:
            message: Message = end.value
            return message


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


# ---- Parsing -------------------------------------------------------------------------------------


def parse_text(body: bytes, kind: type[T]) -> T:
    """Parse a whole body. It must be UTF-8: parts that are kept as they came are not parsed later."""
    if not body.strip():
        raise InvalidJsonError("the body is empty; it must be a JSON object")
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJsonError(f"the body is not UTF-8 (byte {error.start})") from None
    return parse(body, kind)


def parse(raw: bytes | msgspec.Raw, kind: type[T], whole: str = "the body") -> T:
    """Parse JSON into a request; InvalidJsonError if it is none, InvalidInputError naming the field that is wrong."""
    try:
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError as error:
            msgspec.json.decode(raw, type=msgspec.Raw)  # a wrong field counts only if all of it is JSON
            raise InvalidInputError(_explain(str(error), whole, kind)) from None
    except msgspec.DecodeError as error:
        if half := in_json(bytes(raw)):
            raise InvalidInputError(half if whole == "the body" else f"{whole}: {half}") from None
        raise InvalidJsonError(f"{whole} is not JSON: {error}") from None
    except RecursionError:
        raise InvalidInputError(f"{whole} is nested too deeply: {MAX_DEPTH} levels are allowed") from None


@contextmanager
def reading_args() -> Iterator[None]:
    """Refuse args that msgspec takes for JSON and no reader of JSON can be expected to take."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"args hold what no reader of JSON can be expected to take: {error}") from None
    except RecursionError:
        raise InvalidInputError(f"args are nested deeper than {MAX_DEPTH} levels") from None


def _explain(fault: str, whole: str, kind: type) -> str:
    """Say what msgspec says in the words of the contract."""
    match = _FAULT.fullmatch(fault)
    words, path = (match["words"], match["path"] or "$") if match else (fault, "$")
    place = path.removeprefix("$").removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(words):
        return f"unknown field {_shown(_join(place, unknown[1]))}{_instead(unknown[1], _members(kind, place))}"
    if missing := _MISSING.fullmatch(words):
        return f"{_join(place, missing[1])} is missing"
    if long := _TOO_LONG.fullmatch(words):
        return f"{place} holds more than {long[1]} entries"
    subject = place or whole
    if expected := _EXPECTED.fullmatch(words):
        wanted, got = expected[1], expected[2]
        if got in ("array", "object") and "|" in wanted:
            return f"{subject} must not be an {got}"
        return f"{subject} must be {_a(wanted.split(' | ')[0])}, not {_a(got)}"
    return f"{subject}: {words[:1].lower()}{words[1:]}"


def _members(kind: type, place: str) -> list[str]:
    """List the members of the object at this place, without those that this version refuses; none if it has no names
    of its own."""
    found: msgspec.inspect.Type = msgspec.inspect.type_info(kind)
    for part in place.split(".") if place else ():
        fields = found.fields if isinstance(found, msgspec.inspect.StructType) else ()
        types = [field.type for field in fields if field.encode_name == part]
        types = [
            one for each in types for one in (each.types if isinstance(each, msgspec.inspect.UnionType) else [each])
        ]
        found = next((one for one in types if isinstance(one, msgspec.inspect.StructType)), msgspec.inspect.AnyType())
    fields = found.fields if isinstance(found, msgspec.inspect.StructType) else ()
    return [field.encode_name for field in fields]


def _instead(name: str, members: list[str]) -> str:
    if close := difflib.get_close_matches(name[:80], members, 1, 0.7):
        return f", do you mean {close[0]}?"
    return f", there are {', '.join(members)}" if members else ""


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _a(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def _shown(name: str) -> str:
    text = repr(name)
    return text if len(text) <= 80 else text[:77] + "..."
