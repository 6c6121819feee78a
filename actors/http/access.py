"""Who may do what. Every request passes the gate: by token, by the embedding app's own rule, by both, or (without
either, on this machine only) by being addressed to loopback and sent by no foreign web page."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from tocsin.actors.http.cookies import SESSION, cookies
from tocsin.actors.http.deeds import deed
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.sessions import Sessions
from tocsin.actors.http.tokens import Token, find_token
from tocsin.errors import ForbiddenError, UnauthenticatedError

_LOOPBACK: Final = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_PROXIED: Final = (
    b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip",
)  # fmt: skip
"""Headers that proxies add. The sender behind a proxy may be anywhere, whatever these headers say."""
READS: Final = ("GET", "HEAD")
OWN_SITE: Final = ("none", "same-origin")
"""Values of Sec-Fetch-Site that no page of another origin has."""
UNASKED: Final = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
"""Content types that browsers send to other origins without asking whether they may."""
_USER_MAX: Final = 256
_KNOWN_MOST: Final = 256
_NO_HEADERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `name` is that of the token; `user` what the app's own middleware put into `scope["user"]`."""

    name: str | None = None
    user: Any = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def identity(self) -> tuple[str, str]:
        """Return what tells callers apart: the token's name, and the user as text ("" if it has none that is stable).
        Jobs keep it as their initiator."""
        return self.name or "", "" if self.user is None else _text_of(self.user)


_NOBODY: Final = Caller()

Authorize = Callable[[Caller, str, str, str | None], bool | Awaitable[bool]]
"""`authorize(identity, action, instance, resource)`, sync or async. `action` is the name of the Python method
(`schedule` for both ways to make a job, `schedules.put` and so on for schedules); `resource` the job's id, the
schedule's name, or for `schedule` the function path or workflow. Who puts a schedule is asked about as both."""


@dataclass(frozen=True, slots=True)
class Visit:
    """The caller of a request, as known before any check."""

    caller: Caller
    token: Token | None = None
    refusal: UnauthenticatedError | None = None
    """Why this is nobody, where there are tokens; raised by what needs one."""
    stranger: bool = False
    """Nobody knows who asks: no token of ours where there are tokens, no user where an app has a rule."""
    session: str | None = None
    """The cookie that stood for the token, where a browser sent one."""


class Gate:
    """Lets pass who may, with neither tokens nor a rule only callers on this machine. `tokens` that may change are a
    callable, asked at each request: one that is taken away opens nothing any more."""

    def __init__(
        self,
        tokens: Sequence[Token] | Callable[[], Sequence[Token]],
        authorize: Authorize | None,
        sessions: Sessions,
    ) -> None:
        self.sessions = sessions
        self._read_tokens = tokens if callable(tokens) else None
        self._fixed_tokens = () if callable(tokens) else tokens
        self.has_rule = authorize is not None
        self._authorize = authorize
        self._known_of: Sequence[Token] = ()
        self._known: dict[bytes, Visit] = {}
        """Callers by their header, among the tokens in `_known_of`."""

    @property
    def tokens(self) -> Sequence[Token]:
        """The tokens that count now."""
        return self._fixed_tokens if self._read_tokens is None else self._read_tokens()

    def enter(self, request: Incoming, *, form: bool = False) -> Visit:
        """Find out who asks. ForbiddenError where there are no tokens and the request is not from this machine.

        A browser's session counts for what reads, and where a `form` is to be checked for who made the page it is on.
        """
        tokens = self._fixed_tokens if self._read_tokens is None else self._read_tokens()
        user = request.scope.get("user")
        if tokens and user is None and not self.has_rule:
            return self._by_token_alone(request, tokens, form)
        if request.method == "POST" and not form:
            _check_unasked(request)
        headers = request.headers if self.has_rule else _NO_HEADERS
        if not tokens:
            if self._authorize is None:
                _check_local(request)
                return Visit(Caller(None, user, headers))
            known = user is not None and getattr(user, "is_authenticated", True)
            return Visit(Caller(None, user, headers), stranger=not known)
        try:
            token, session = self._token_of(request, tokens, form)
        except UnauthenticatedError as error:
            return Visit(Caller(None, user, headers), refusal=error, stranger=True)
        return Visit(Caller(token.name, user, headers), token, session=session)

    def _by_token_alone(self, request: Incoming, tokens: Sequence[Token], form: bool) -> Visit:
        """Find out who asks where nothing counts but the token: a header that was good is looked at once.

        Kept by its digest, as tokens are. Whatever follows from other tokens is forgotten with them.
        """
        given = request.named.get(b"authorization", ())
        if self._known_of is not tokens:
            self._known_of, self._known = tokens, {}
        digest = hashlib.sha256(given[0]).digest() if len(given) == 1 else b""
        if (visit := self._known.get(digest)) is not None:
            return visit
        try:
            token, session = self._token_of(request, tokens, form)
        except UnauthenticatedError as error:
            return Visit(_NOBODY, refusal=error, stranger=True)
        if session is not None:  # may end at any time, and is not in the header that callers are known by
            return Visit(Caller(token.name), token, session=session)
        if len(self._known) >= _KNOWN_MOST:
            self._known.clear()
        visit = self._known[digest] = Visit(Caller(token.name), token)
        return visit

    def _token_of(self, request: Incoming, tokens: Sequence[Token], form: bool) -> tuple[Token, str | None]:
        """Return the token of the header, or, where there is none, of a browser's session, with its cookie."""
        counts = (request.method in READS or form) and not request.named.get(b"authorization")
        if counts and b"cookie" in request.named and is_own_page(request):
            for cookie in cookies(request, SESSION):
                if (token := self.sessions.find(tokens, cookie)) is not None:
                    return token, cookie
        return _token_of(request, tokens), None

    def check_token(self, token: Token | None, scopes: frozenset[str], action: str, instance: str) -> None:
        """Raise ForbiddenError if the token lacks the scope or the instance."""
        self.check_scope(token, scopes, action)
        if token is not None and not token.reaches(instance):
            raise ForbiddenError(f"token {token.name!r} does not reach the instance {instance!r}")

    def check_scope(self, token: Token | None, scopes: frozenset[str], action: str) -> None:
        """Raise ForbiddenError if the token lacks the scope."""
        if token is not None and not token.may(scopes):
            needed = " or ".join(sorted(scopes))
            raise ForbiddenError(f"token {token.name!r} may not {deed(action)}: that needs the scope {needed}")

    async def ask(self, caller: Caller, action: str, instance: str, resource: str | None) -> None:
        """Ask the app's own rule, if there is one. An error of the rule lets nobody pass."""
        if self._authorize is None:
            return
        allowed = self._authorize(caller, action, instance, resource)
        if inspect.isawaitable(allowed):
            allowed = await allowed
        if not allowed:
            raise ForbiddenError(f"this caller may not {deed(action)} in the instance {instance!r}")


def is_own_page(request: Incoming) -> bool:
    """Return whether no page of another site or origin makes a browser send this, as far as browsers tell."""
    if b"sec-fetch-site" in request.named:
        return all(site in OWN_SITE for site in request.all(b"sec-fetch-site"))
    if b"origin" not in request.named:
        return True
    host = (request.all(b"host") or [""])[0]
    return all(_same_host(origin, host) for origin in request.all(b"origin"))


def _check_unasked(request: Incoming) -> None:
    """Keep out what a page of another origin can make a browser send unasked, with the cookies of the app that this is
    a part of: a POST whose content type is none of JSON. For any other one browsers ask the app's rules of CORS."""
    if request.named.get(b"authorization") or is_own_page(request):
        return
    kinds = request.all(b"content-type")
    if not kinds or any(kind.partition(";")[0].strip().lower() in UNASKED for kind in kinds):
        raise ForbiddenError(
            "web pages of other origins may not change anything here (Origin, Sec-Fetch-Site); one that the app's CORS "
            "allows sends the content-type application/json"
        )


def _check_local(request: Incoming) -> None:
    """Keep out what comes from elsewhere, or only looks local: strangers, what a proxy passes on, rebound names, and
    pages of other origins."""
    client = request.scope.get("client")
    if client is not None and _is_elsewhere(client[0]):
        raise ForbiddenError("this server has no tokens, so it answers only requests from this machine")
    if any(name in request.named for name in _PROXIED):
        raise ForbiddenError(
            "this server has no tokens, and a request that a proxy passed on may come from anywhere: give it tokens"
        )
    hosts = request.all(b"host")
    if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0]):
        raise ForbiddenError(
            "this server has no tokens, so it answers only requests to localhost, 127.0.0.1 or [::1]; "
            "the Host header says otherwise"
        )
    for origin in request.all(b"origin"):
        if not _same_host(origin, hosts[0]):
            raise ForbiddenError("this server has no tokens, so web pages of other origins are refused (Origin)")
    if any(site not in OWN_SITE for site in request.all(b"sec-fetch-site")):
        raise ForbiddenError("this server has no tokens, so web pages of other sites are refused (Sec-Fetch-Site)")


def _token_of(request: Incoming, tokens: Sequence[Token]) -> Token:
    given = request.all(b"authorization")
    if not given:
        raise UnauthenticatedError("a token is needed: Authorization: Bearer <secret>")
    scheme, _, secret = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not secret.strip():
        raise UnauthenticatedError("the Authorization header must be one, and be: Bearer <secret>")
    token = find_token(tokens, secret.strip())
    if token is None:
        raise UnauthenticatedError("the token is not known")
    return token


def _is_elsewhere(peer: str) -> bool:
    """Return whether the other end of the connection is another machine. A Unix socket's end has no address."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:  # a socket for both families
        return not address.ipv4_mapped.is_loopback
    return not address.is_loopback


def _same_host(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _text_of(user: Any) -> str:
    """Return a user as text: itself, its name, or its own `str`; not the default one, which holds an address."""
    text = _said_of(user).encode("utf-8", "backslashreplace").decode()
    if len(text) <= _USER_MAX:
        return text
    # Cut short it could be another user's.
    return text[: _USER_MAX - 33] + "#" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _said_of(user: Any) -> str:
    if user is None:
        return ""
    for name in ("identity", "display_name"):
        try:
            value = getattr(user, name, None)
        except NotImplementedError:  # of Starlette's BaseUser, where the app has not written it
            continue
        if isinstance(value, (str, int)):
            return str(value)
    own: Any = type(user).__str__
    return "" if own is object.__str__ else str(user)
