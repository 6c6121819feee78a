"""One attempt: build the request, sign it, send it, judge the answer. This module knows no store and no actor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from random import Random
from sys import modules
from typing import Final

import msgspec

from tocsin.dispatch.callback import AttemptOutcome, Callback, Occurrence, Verdict
from tocsin.dispatch.job_options import HANDLER_OPTIONS, HandlerMembers, handler_values
from tocsin.dispatch.outcome import classify, from_error, plain
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.target import DEFAULT_PATH, callback_url, check_path, is_loopback, origin_of
from tocsin.dispatch.trace_context import NO_SPAN, NO_TRACE, ONE_SPAN, ONE_TRACE, child
from tocsin.dispatch.tracing import API, Sending, Tracing
from tocsin.dispatch.transport import Transport, TransportError, reopen, tell_connections
from tocsin.errors import SettingsError

__all__ = ["DEFAULT_PATH", "Dispatcher", "body_of"]

log = logging.getLogger("tocsin.dispatch")

CONNECT_TIMEOUT_S: Final = 10.0
MAX_ANSWER: Final = 64 * 1024
ORIGIN_NOT_CONFIGURED: Final = "ORIGIN_NOT_CONFIGURED"
"""The code of outcomes of attempts that had nowhere to go."""


class _Schedule(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    slot: int
    first_slot: int | None = None
    coalesced: int | None = None


class _Parent(msgspec.Struct, rename="camel", omit_defaults=True):
    id: str
    result: msgspec.Raw | None = None
    dead: msgspec.Raw | None = None
    group: bool = False


class _Attempt(HandlerMembers, frozen=True, rename="camel", omit_defaults=True):
    """Which attempt of which job a callback is: what stands before the options."""

    id: str
    function_path: str | msgspec.UnsetType
    workflow: str | msgspec.UnsetType
    args: msgspec.Raw
    scheduled_for: int
    attempt: int
    lease: str
    instance_name: str


class _Body(_Attempt, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The callback's JSON, members in the order of the contract."""

    schedule: _Schedule | None = None
    parent: _Parent | None = None


_encode = msgspec.json.Encoder().encode


class Dispatcher:
    """Sends callbacks to one origin. Those of `signer` and `origin` that are callables are asked at each attempt, so
    what waits is sent and signed as things stand when it fires. Without a signer callbacks go to loopback only."""

    def __init__(
        self,
        transport: Transport,
        signer: Signer | Callable[[], Signer | None] | None,
        origin: str | Callable[[], str | None] | None,
        *,
        random: Random,
        path: str = DEFAULT_PATH,
        version: str | None = None,
    ) -> None:
        self.transport, self._random = transport, random
        self._read_origin = origin if callable(origin) else None
        self._origin = None if callable(origin) else origin
        self._read_signer = signer if callable(signer) else None
        self._signer = None if callable(signer) else signer
        self._path = check_path(path)
        self._user_agent = f"tocsin/{version or _own_version()}"
        self._last = ("", "", False)
        self.tracing = Tracing()
        """Makes the spans of attempts; a host puts its own in this place."""

    async def attempt(self, callback: Callback, *, now_ms: int, sending: Sending | None = None) -> AttemptOutcome:
        """Send `callback` and return its outcome. `now_ms` is the instant the attempt starts; `sending` is its span,
        made here in a process that has spans.

        It raises nothing but the cancellation of its task.
        """
        if sending is None and API in modules and self.tracing.tracer_now() is not None:
            with self.tracing.sending(callback, self._random) as begun:
                outcome = await self.attempt(callback, now_ms=now_ms, sending=begun)
                begun.ended(outcome)
            return outcome
        try:
            signer = self._signer if self._read_signer is None else self._read_signer()
            url = self._url(callback, signed=signer is not None)
            body = body_of(callback)
            answer = await self.transport.post(
                url,
                self._headers(callback, body, now_ms, signer, sending),
                body,
                connect_timeout=min(CONNECT_TIMEOUT_S, callback.timeout_ms / 1000),
                timeout=callback.timeout_ms / 1000,
                max_body=MAX_ANSWER,
            )
            return classify(answer, now_ms)
        except TransportError as error:
            return self._unanswered(error)
        except SettingsError as error:
            return AttemptOutcome(Verdict.UNREACHABLE, plain(error.message), code=ORIGIN_NOT_CONFIGURED)
        except Exception as error:
            # A fault of ours must not take the lane down: the job is retried, and its record says why.
            log.exception("the attempt of %s failed inside tocsin", callback.id)
            return AttemptOutcome(Verdict.FAILED, f"internal error: {type(error).__name__}")

    @property
    def last_origin(self) -> str | None:
        """Return where the last attempt went, or was to go, without user name or password; None before the first."""
        return self._last[0] or None

    def tell_connections(self, tell: Callable[[], None]) -> None:
        """Let this be called for each connection that the transport makes, if it tells."""
        tell_connections(self.transport, tell)

    def open(self) -> None:
        """Let the transport connect, also again after `aclose`: a host may be entered twice."""
        reopen(self.transport)

    async def aclose(self) -> None:
        await self.transport.aclose()

    def _unanswered(self, error: TransportError) -> AttemptOutcome:
        """Judge an attempt that brought no whole answer."""
        return from_error(error)

    def _url(self, callback: Callback, *, signed: bool) -> str:
        """Return where to send. Raise a SettingsError if there is no such place: no job is charged for that."""
        origin = self._origin if self._read_origin is None else _asked(self._read_origin)
        if not origin:
            raise SettingsError("no origin to call back: open the host with origin= (a server: TOCSIN_ORIGIN_URL)")
        if origin != self._last[0]:
            url = callback_url(origin, self._path)
            self._last = (origin, url, is_loopback(url))
        _, url, local = self._last
        if not signed and not local:
            raise SettingsError(
                f"unsigned callbacks go to loopback only, not to {origin}: give secrets= (a server: TOCSIN_SECRETS)"
            )
        return url

    def _headers(
        self, callback: Callback, body: bytes, now_ms: int, signer: Signer | None, sending: Sending | None
    ) -> dict[str, str]:
        trace = None if sending is None else sending.trace
        if trace is None and callback.trace is not None:
            trace = child(callback.trace, self._random)
        message_id = f"{callback.id}:{callback.incarnation}"
        timestamp_s = now_ms // 1000
        headers = {
            "content-type": "application/json",
            "user-agent": self._user_agent,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp_s),
            "idempotency-key": message_id,
            "tocsin-attempt": str(callback.attempt),
            "tocsin-lease": callback.lease,
            "tocsin-deadline": str(now_ms + callback.timeout_ms),
            "traceparent": self._traceparent() if trace is None else trace[0],
        }
        if trace is not None and trace[1]:
            headers["tracestate"] = trace[1]
        if signer is not None:
            headers["webhook-signature"] = signer.sign(message_id, timestamp_s, body)
        return headers

    def _traceparent(self) -> str:
        """Begin a new, sampled trace (W3C Trace Context) for a job without one. Neither id may be all zeros."""
        ids = self._random.randbytes(24).hex()  # one question to the system instead of two
        trace, span = ids[:32], ids[32:]
        return f"00-{ONE_TRACE if trace == NO_TRACE else trace}-{ONE_SPAN if span == NO_SPAN else span}-01"


def body_of(callback: Callback) -> bytes:
    """Return the exact bytes that are signed and sent; `args` go in as they are."""
    schedule, parent = callback.schedule, callback.parent
    return _encode(
        _Body(
            id=callback.id,
            function_path=msgspec.UNSET if callback.function_path is None else callback.function_path,
            workflow=msgspec.UNSET if callback.workflow is None else callback.workflow,
            args=msgspec.Raw(callback.args),
            scheduled_for=callback.scheduled_for,
            attempt=callback.attempt,
            lease=callback.lease,
            instance_name=callback.instance,
            schedule=None if schedule is None else _schedule(schedule),
            parent=None if parent is None else _parent(*parent, callback.parent_is),
            **dict(zip(HANDLER_OPTIONS, handler_values(callback), strict=True)),
        )
    )


def _parent(name: str, said: bytes, parent_is: str) -> _Parent:
    raw = msgspec.Raw(said) if said else None
    return _Parent(name, dead=raw) if parent_is == "dead" else _Parent(name, raw, group=parent_is == "group")


def _schedule(one: Occurrence) -> _Schedule:
    return _Schedule(one.name, one.slot, one.first_slot, one.coalesced)


def _asked(read: Callable[[], str | None]) -> str | None:
    """Return the origin that the user's callable says, and log what it raises."""
    try:
        return origin_of(read)
    except SettingsError as error:
        if error.__cause__ is not None:
            log.error("origin() raised", exc_info=error.__cause__)
        raise


def _own_version() -> str:
    """Return `x.y` of the installed package."""
    try:
        return ".".join(installed_version("tocsin").split(".")[:2])
    except PackageNotFoundError:
        return "0"  # run from a source tree
