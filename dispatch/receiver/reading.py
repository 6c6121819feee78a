"""From headers and bytes to a `Received`: verified first, parsed after, and what is said twice must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tocsin.dispatch.clock import DispatchClock
from tocsin.dispatch.headers import joined
from tocsin.dispatch.job_options import HandlerMembers
from tocsin.dispatch.receiver.received import Parent, Received
from tocsin.dispatch.signing import MAX_AGE_S, MAX_AHEAD_S, Signer
from tocsin.dispatch.values import decode
from tocsin.errors import InvalidInputError, SettingsError

Secrets = Sequence[str | bytes] | Callable[[], Sequence[str | bytes]]
Headers = Mapping[str, str] | Iterable[tuple[str, str]]

LONGEST_MS: Final = 3_600_000
TIMESTAMP_LEAVES_OUT_MS: Final = 999
"""Timestamps are whole seconds, deadlines are not."""
LONGEST_AGE_S: Final = 86_400
DEFAULT_ARGS: Final = msgspec.Raw(b"{}")
NO_RESULT: Final = msgspec.Raw(b"null")


class InvalidJsonError(InvalidInputError):
    """The body is not JSON."""

    code = "INVALID_JSON"


class _Parent(msgspec.Struct, rename="camel"):
    id: str
    result: msgspec.Raw = NO_RESULT
    dead: dict[str, Any] | None = None
    group: bool = False


class _Body(HandlerMembers, frozen=True, kw_only=True, rename="camel"):
    """The callback's JSON. What is not known yet is passed over: a newer scheduler may send more."""

    id: str
    function_path: str | None = None
    workflow: str | None = None
    args: msgspec.Raw = DEFAULT_ARGS
    scheduled_for: int
    attempt: int
    lease: str
    instance_name: str
    schedule: dict[str, Any] | None = None
    parent: _Parent | None = None


_decoder = msgspec.json.Decoder(_Body)


class Signers:
    """Holds the signer of the secrets in force, and makes another one only when they change."""

    def __init__(self, secrets: Secrets) -> None:
        self._read = secrets if callable(secrets) else None
        self._last: tuple[str | bytes, ...] = ()
        self._signer = None if callable(secrets) else Signer(secrets)

    def __repr__(self) -> str:
        return "Signers(...)"

    def now(self) -> Signer:
        """Return it. Raise a SettingsError if there is none, without what a faulty callable returned."""
        if self._read is None:
            assert self._signer is not None
            return self._signer
        try:
            secrets = self._read()
        except Exception as error:  # the user's callable may fail in any way
            raise SettingsError(f"secrets() raised {type(error).__name__}") from error
        if isinstance(secrets, (str, bytes)) or not isinstance(secrets, Iterable):
            raise SettingsError(f"secrets() must return a list of secrets, not {type(secrets).__name__}")
        given = tuple(secrets)
        if self._signer is None or given != self._last:
            self._signer, self._last = Signer(given), given
        return self._signer


@dataclass(frozen=True, slots=True)
class Bounds:
    """How old the timestamp of a callback may be, and how far ahead of the clock here, in seconds."""

    max_age_s: float = MAX_AGE_S
    max_ahead_s: float = MAX_AHEAD_S

    def __post_init__(self) -> None:
        """Raise a SettingsError for a bound that is not short: it would be none against replays."""
        for name, least in (("max_age_s", 1), ("max_ahead_s", 0)):
            value = getattr(self, name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not least <= value <= LONGEST_AGE_S:
                raise SettingsError(f"{name} must be {least} to {LONGEST_AGE_S} seconds, not {value!r}")


def read(given: Headers, body: bytes, signers: Signers, clock: DispatchClock, bounds: Bounds) -> tuple[Received, int]:
    """Return a genuine callback, and the instant it arrived at, in ms since the epoch.

    Raise a SignatureError before anything is parsed, an InvalidInputError for what is no callback.
    """
    if not isinstance(body, bytes):
        raise TypeError(f"body must be the bytes as they came, not {type(body).__name__}: the signature is over them")
    signer = signers.now()
    headers = joined(given.items() if isinstance(given, Mapping) else given)
    arrived, now_ms = clock.monotonic(), clock.now_ms()
    webhook_id = signer.verify(
        headers, body, now_s=now_ms / 1000, max_age_s=bounds.max_age_s, max_ahead_s=bounds.max_ahead_s
    )
    content = _parsed(body)
    _check(headers, webhook_id, content)
    sent_ms = int(headers["webhook-timestamp"]) * 1000
    timeout_s, left_s = _bounds_of(headers.get("tocsin-deadline"), sent_ms, now_ms)
    members = msgspec.structs.asdict(content)  # named as they are in a `Received`, but for these
    members["instance"] = members.pop("instance_name")
    members["args"] = decode(bytes(content.args))
    if (parent := content.parent) is not None:
        result = decode(bytes(parent.result), "parent.result")
        members["parent"] = Parent(parent.id, result, parent.dead, parent.group)
    job = Received(
        webhook_id=webhook_id,
        sent_ms=sent_ms,
        timeout_s=timeout_s,
        traceparent=headers.get("traceparent"),
        tracestate=headers.get("tracestate"),
        left_s=left_s,
        arrived=arrived,
        monotonic=clock.monotonic,
        **members,
    )
    return job, now_ms


def _parsed(body: bytes) -> _Body:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"the body is not a callback: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJsonError(f"the body is not JSON: {error}") from None


def _check(headers: Mapping[str, str], webhook_id: str, content: _Body) -> None:
    """Refuse a body that contradicts headers, which may be absent: only the body and the webhook-id are signed."""
    if webhook_id.rpartition(":")[0] != content.id:
        raise InvalidInputError("id in the body is not the one of webhook-id")
    if (content.function_path is None) == (content.workflow is None):
        raise InvalidInputError("the body must hold exactly one of functionPath and workflow")
    for header, value in (("tocsin-lease", content.lease), ("tocsin-attempt", str(content.attempt))):
        if headers.get(header, value) != value:
            raise InvalidInputError(f"{header.removeprefix('tocsin-')} in the body is not the one of {header}")


def _bounds_of(deadline: str | None, sent_ms: int, now_ms: int) -> tuple[float | None, float | None]:
    """Return how many seconds the scheduler waits in all, and how many of them are left now.

    All of them are rounded up by the part of a second that timestamps leave out; at most 1 h, since the header is not
    signed. Those left are read from the clock here, unless that cannot be right: it says that the callback is not sent
    yet, or that its deadline is over. Then the two instants of the scheduler tell how long it waits at least.
    """
    if deadline is None or not (deadline.isascii() and deadline.isdigit() and len(deadline) <= 15):
        return None, None
    most = min(max(int(deadline) - sent_ms, 0), LONGEST_MS)
    by_clock = int(deadline) - now_ms
    is_plausible = now_ms >= sent_ms and by_clock > 0
    left = min(by_clock, most) if is_plausible else max(most - TIMESTAMP_LEAVES_OUT_MS, 0)
    return most / 1000, left / 1000
