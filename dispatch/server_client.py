"""Requests to a tocsin server: what its clients share. Each is made once; whoever makes it decides about another.

A client asks over httpx. What is posted for each job (`_post_directly`), by workers and for accepted work, goes over
the built-in transport, at a fraction of the CPU time, unless an httpx transport was given. Both give an `Answer`, so
what is made of it is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from tocsin.dispatch.answer_contents import is_packed, members, whole
from tocsin.dispatch.builtin_transport import BuiltinTransport
from tocsin.dispatch.certificates import CaFile, trusting
from tocsin.dispatch.connection_faults import in_words, place_of
from tocsin.dispatch.job_options import PYTHON_WORDS
from tocsin.dispatch.names import HttpxConnections
from tocsin.dispatch.refusals import refusal
from tocsin.dispatch.secret import check_unquoted
from tocsin.dispatch.surrogates import UNPAIRED, where
from tocsin.dispatch.target import check_url
from tocsin.dispatch.transport import Answer, DeadlinePassed, NeverConnected, Transport, TransportError
from tocsin.dispatch.words import reworded
from tocsin.errors import InvalidInputError, NotAnsweredYetError, SettingsError, TocsinError, UnreachableError

DEFAULT_URL: Final = "http://127.0.0.1:8321"
TIMEOUT_S: Final = 30.0
AGAIN: Final = frozenset({429, 502, 503, 504})
"""Answers that may be others in a moment; repeating is safe, the server remembers a completion for ten minutes."""
LARGEST_ANSWER: Final = 64 * 1024 * 1024
"""Bytes. Above the largest claim: 100 jobs, each with its args and its parent's result."""
JSON: Final = {"content-type": "application/json", "accept": "application/json"}
HttpxTransport = httpx.AsyncBaseTransport
UNLIMITED: Final = httpx.Limits(max_connections=None, max_keepalive_connections=20)
"""Of connections: for clients whose requests wait at the server, and must block no others."""

T = TypeVar("T")
Rescue = Callable[[TocsinError], Coroutine[Any, Any, T]]


class ServerClient:
    """One connection pool to one server, for one event loop. The token is in no log and no repr."""

    _limits = httpx.Limits(max_connections=100, max_keepalive_connections=20)

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
        ca_file: CaFile | None = None,
    ) -> None:
        """Read `ca_file` now: certificates of authorities that are trusted beside the system's."""
        self._ssl_context = None if ca_file is None else trusting(ca_file)
        self._base, self._token = base_url_of(base_url), None if token is None else sendable_token(token)
        self._timeout_s, self._transport = timeout_s, transport
        self._http: httpx.AsyncClient | None = None
        self._builtin: Transport | None = None
        self._headers = JSON if self._token is None else {**JSON, "authorization": f"Bearer {self._token}"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._base!r})"

    async def aclose(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        builtin, self._builtin = self._builtin, None
        try:
            if builtin is not None:
                await builtin.aclose()
        finally:
            if http is not None:
                await http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _url(self, instance: str | None, route: str) -> str:
        """Return where a route is: of one instance, or of the whole server."""
        under = "" if instance is None else f"/i/{quote(instance, safe=':')}"
        return f"{self._base}{under}/{route}" if route else f"{self._base}{under}"

    async def _request(self, method: str, instance: str | None, route: str, **request: Any) -> Answer:
        """Return the answer, whatever it says. UnreachableError if there is none."""
        try:
            found = await (self._http or self._client()).request(method, self._url(instance, route), **request)
        except (httpx.RequestError, OSError) as error:  # also what arrives and cannot be decoded
            sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
            raise _unreachable(f"{self._base} did not answer: {in_words(error, self._base)}", sent=sent) from None
        return Answer(found.status_code, dict(found.headers), found.content)

    async def _call(
        self,
        method: str,
        instance: str | None,
        route: str,
        kind: type[T],
        said: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Ask once, and return the answer as a `kind`.

        Raise what a refusal stands for, an UnreachableError for what is no answer, and an InvalidInputError for text
        that cannot be sent.
        """
        answer = await self._request(
            method, instance, route, params=query, timeout=timeout_s or self._timeout_s,
            content=None if said is None else _written(said),
        )  # fmt: skip
        return self._read(answer, kind)

    async def _pieces(self, instance: str, route: str, timeout_s: float) -> AsyncIterator[bytes]:
        """Yield an answer as it comes. Each piece may take `timeout_s`."""
        try:
            async with (self._http or self._client()).stream(
                "GET", self._url(instance, route), timeout=httpx.Timeout(self._timeout_s, read=timeout_s)
            ) as found:
                if not found.is_success:
                    self._read(Answer(found.status_code, dict(found.headers), await found.aread()), dict)
                async for piece in found.aiter_raw():
                    yield piece
        except (httpx.RequestError, OSError) as error:
            raise _unreachable(
                f"{self._base} did not answer to the end: {in_words(error, self._base)}", sent=True
            ) from None

    async def _send_pieces(
        self, instance: str, route: str, pieces: AsyncIterable[bytes], kind: type[T], media: str, timeout_s: float,
        query: Mapping[str, Any],
    ) -> T:  # fmt: skip
        """Post a body as it comes, once. The answer may take `timeout_s`."""
        answer = await self._request(
            "POST", instance, route, params=query, headers={"content-type": media}, content=pieces,
            timeout=httpx.Timeout(self._timeout_s, read=timeout_s, write=timeout_s),
        )  # fmt: skip
        return self._read(answer, kind)

    async def _call_directly(
        self,
        instance: str,
        route: str,
        kind: type[T],
        said: Any,
        *,
        wait_s: float = 0.0,
        key: str | None = None,
        rescue: Rescue[T] | None = None,
    ) -> T:
        """Do as `_call` with POST, over the built-in transport. The answer may take `wait_s` longer than others; what
        becomes of a failure is for `rescue`, if there is one."""
        if rescue is not None:
            try:
                return await self._call_directly(instance, route, kind, said, wait_s=wait_s, key=key)
            except TocsinError as error:
                return await rescue(error)
        return self._read(await self._post_directly(instance, route, _written(said), wait_s, key), kind)

    async def _post_directly(
        self, instance: str, route: str, body: bytes, wait_s: float = 0.0, key: str | None = None
    ) -> Answer:
        """Do as `_request` with POST, over the built-in transport."""
        timeout_s, keyed = self._timeout_s + wait_s, {} if key is None else {"idempotency-key": key}
        if self._transport is not None:  # it may lead into this process
            return await self._request("POST", instance, route, content=body, headers=keyed, timeout=timeout_s)
        if self._builtin is None:
            self._builtin = BuiltinTransport(ssl_context=self._ssl_context)
        try:
            answer = await self._builtin.post(
                self._url(instance, route),
                {**self._headers, **keyed} if keyed else self._headers,
                body,
                connect_timeout=self._timeout_s,
                timeout=timeout_s,
                max_body=LARGEST_ANSWER,
            )
        except TransportError as error:
            sent = not isinstance(error, NeverConnected)
            raise _unreachable(f"{self._base} did not answer: {self._fault(error)}", sent=sent) from None
        if answer.cut:  # its beginning may read like a whole answer
            raise UnreachableError(f"what {self._base} answers is longer than {LARGEST_ANSWER} bytes")
        if is_packed(answer.headers):
            raise UnreachableError(f"what {self._base} answers is compressed, which it was asked not to be")
        return answer

    def _read(self, answer: Answer, kind: type[T]) -> T:
        """Return the answer as a `kind`, or raise what it stands for."""
        if answer.status == NotAnsweredYetError.status:
            raise NotAnsweredYetError(
                f"{self._base} has accepted it, and it will be done: it has not been answered in time",
                **{name: value for name, value in (json_object(answer) or {}).items() if name in ("id", "ids")},
            )
        if succeeded(answer):
            try:
                return msgspec.json.decode(answer.body, type=kind)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise UnreachableError(f"what {self._base} answers cannot be read: {error}") from None
        failure = refusal(answer.status, json_object(answer), self._base)
        if answer.status in AGAIN and (wait := retry_after_s(answer)):
            failure.details["retry_after_s"] = wait
        raise failure

    def _fault(self, error: TransportError) -> str:
        """Say why there is no answer, in the words that a failure of httpx has."""
        if isinstance(error, DeadlinePassed):
            return f"the connection to {place_of(self._base)} timed out"
        return str(error) if error.__cause__ is None else in_words(error.__cause__, self._base)

    def _client(self) -> httpx.AsyncClient:
        """Return the connections, which are made when the first request needs them."""
        if self._http is None:
            # The system's certificates, as for callbacks; httpx would read its own bundle.
            verify = (self._ssl_context or trusting()) if self._base.startswith("https:") else False
            self._http = httpx.AsyncClient(
                headers=self._headers,
                timeout=self._timeout_s,
                trust_env=False,
                transport=self._transport or HttpxConnections(verify, self._limits),
            )
        return self._http


def _unreachable(message: str, *, sent: bool) -> UnreachableError:
    error = UnreachableError(message)
    error.sent = sent
    return error


def base_url_of(base_url: object, name: str = "base_url") -> str:
    """Return the URL of a server, without a slash at its end. SettingsError does not show what may hold a password."""
    text = base_url.strip() if isinstance(base_url, str) else base_url
    return check_url(text, name, example=DEFAULT_URL).rstrip("/")


def sendable_token(token: str) -> str:
    """Return the token, or refuse it here, where it is not shown."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError("token must be printable ASCII without spaces")
    check_unquoted(token, "token")
    return token


def succeeded(answer: Answer) -> bool:
    """Return whether the server did what it was asked."""
    return 200 <= answer.status <= 299


def json_object(answer: Answer) -> dict[str, Any] | None:
    """Return the body, if it is one."""
    try:
        value = msgspec.json.decode(answer.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def retry_after_s(answer: Answer) -> float:
    """Return what it asks for in seconds, as our servers do; 0 if it does not."""
    return max((whole(each) or 0 for each in members(answer.headers, "retry-after")), default=0)


def _written(said: Any) -> bytes:
    """Return the body of a request. InvalidInputError for text that cannot be sent."""
    try:
        return msgspec.json.encode(said)
    except UnicodeEncodeError:
        raise InvalidInputError(reworded(f"{where(said)} {UNPAIRED}", PYTHON_WORDS)) from None
