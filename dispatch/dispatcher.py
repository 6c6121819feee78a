"""One attempt: build the request, sign it, send it, judge the answer. Knows no store and no actor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from urllib.parse import urlsplit

import msgspec

from tocsin.dispatch.callback import Callback, Outcome, Verdict
from tocsin.dispatch.outcome import classify, from_error
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.transport import Transport, TransportError
from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.dispatch")

DEFAULT_PATH = "/_tocsin/callback"
CONNECT_TIMEOUT_S = 10.0
MAX_ANSWER = 64 * 1024


class _Body(msgspec.Struct, rename="camel", omit_defaults=True):
    """The callback's JSON, members in the order of the contract."""

    id: str
    args: msgspec.Raw
    scheduled_for: int
    attempt: int
    lease: str
    instance_name: str
    function_path: str | None = None
    workflow: str | None = None
    pool: str | None = None
    shard_key: str | None = None
    labels: tuple[str, ...] = ()


_encode = msgspec.json.Encoder().encode


class Dispatcher:
    """Sends callbacks to one origin, read anew at each attempt."""

    def __init__(
        self,
        transport: Transport,
        signer: Signer | None,
        origin: Callable[[], str | None],
        *,
        path: str = DEFAULT_PATH,
        random: Random,
        version: str = "0",
    ) -> None:
        self._transport, self._signer, self._origin, self._random = transport, signer, origin, random
        self._path = check_path(path)
        self._user_agent = f"tocsin/{version}"
        self._url: tuple[str, str] = ("", "")

    async def attempt(self, callback: Callback, *, now_ms: int) -> Outcome:
        """Never raises, but for its own cancellation."""
        try:
            origin = self._origin()
            if not origin:
                return Outcome(
                    Verdict.UNREACHABLE, "no origin to call back: set TOCSIN_ORIGIN_URL, or open the host with origin="
                )
            url = self._url_of(origin)
            body = body_of(callback)
            answer = await self._transport.post(
                url,
                self._headers(callback, body, now_ms),
                body,
                connect_timeout=min(CONNECT_TIMEOUT_S, callback.timeout_ms / 1000),
                timeout=callback.timeout_ms / 1000,
                max_body=MAX_ANSWER,
            )
        except TransportError as error:
            return from_error(error)
        except SettingsError as error:
            return Outcome(Verdict.UNREACHABLE, error.message)
        except Exception as error:
            # A fault of ours must not take the lane down; the job climbs the ladder and people see why.
            log.exception("the attempt of %s failed inside tocsin", callback.id)
            return Outcome(Verdict.FAILED, f"internal error: {type(error).__name__}")
        return classify(answer, now_ms)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _url_of(self, origin: str) -> str:
        if self._url[0] != origin:
            self._url = (origin, check_origin_url(origin) + self._path)
        return self._url[1]

    def _headers(self, callback: Callback, body: bytes, now_ms: int) -> dict[str, str]:
        message_id = f"{callback.id}:{callback.incarnation}"
        timestamp_s = now_ms // 1000
        trace = self._random.getrandbits(192) | 1  # neither id may be all zeros
        headers = {
            "content-type": "application/json",
            "user-agent": self._user_agent,
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp_s),
            "idempotency-key": message_id,
            "tocsin-attempt": str(callback.attempt),
            "tocsin-lease": callback.lease,
            "tocsin-deadline": str(now_ms + callback.timeout_ms),
            "traceparent": f"00-{(trace >> 64) | 1:032x}-{(trace & (2**64 - 1)):016x}-01",
        }
        if self._signer is not None:
            headers["webhook-signature"] = self._signer.sign(message_id, timestamp_s, body)
        return headers


def body_of(callback: Callback) -> bytes:
    """The exact bytes that are signed and sent; `args` go in as they are."""
    return _encode(
        _Body(
            id=callback.id,
            args=msgspec.Raw(callback.args),
            scheduled_for=callback.scheduled_for,
            attempt=callback.attempt,
            lease=callback.lease,
            instance_name=callback.instance,
            function_path=callback.function_path,
            workflow=callback.workflow,
            pool=callback.pool,
            shard_key=callback.shard_key,
            labels=tuple(callback.labels),
        )
    )


def check_origin_url(origin: str) -> str:
    """`http(s)://host[:port][/prefix]`, returned without trailing slashes. SettingsError says what is wrong."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        raise SettingsError(f"the origin {origin!r} is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError("the origin must look like https://app.example")
    if parts.username is not None or parts.password is not None:
        raise SettingsError(f"the origin of {parts.hostname} must not hold a user name or password")
    if parts.query or parts.fragment or port == 0:
        raise SettingsError(f"the origin {origin!r} must have no query or fragment, and a port above 0")
    return origin.rstrip("/")


def check_path(path: str) -> str:
    if not path.startswith("/") or any(c in path for c in "?# \r\n"):
        raise SettingsError(f"the callback path must start with / and hold no ? # or space, not {path!r}")
    return path
