"""URLs that people give: the origin and path of callbacks, and others. One check for all of them, wherever they are
given and whenever they are used; what it returns is read alike by every client."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

from tocsin.errors import SettingsError

DEFAULT_PATH: Final = "/_tocsin/callback"
EXAMPLE: Final = "https://app.example"
UNFIT: Final = re.compile(r"[\x00-\x20\x7f\\]")
"""URL parsers differ about these; one that is checked here and another that connects must read the same host."""
AUTHORITY: Final = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]+)(:[0-9]+)?")
"""Older Pythons read `[::1]evil.example` as the host `::1`."""
LABEL: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
DOTS: Final = frozenset({".", ".."})
NAME_LIMIT: Final = 253


def check_url(value: object, name: str, *, example: str = EXAMPLE, query: bool = False, secret: bool = False) -> str:
    """Check `http(s)://host[:port][/path]`, with a query if allowed. SettingsError says what is wrong with `name`.

    Returned in ASCII, as it is sent. An error does not show a value that is `secret` or may hold a password.
    """
    if not isinstance(value, str):
        raise SettingsError(f"{name} must be a text like {example}, not {type(value).__name__}")
    shown = "" if secret or any(mark in value for mark in "@?#") else f", not {value[:200]!r}"
    wrong = f"{name} must be a URL like {example}: http or https, a host, a port if unusual{shown}"
    if UNFIT.search(value):
        raise SettingsError(f"{name} must hold no spaces, control characters or backslashes")
    if "@" in re.split(r"[/?#]", value.rpartition("//")[2], maxsplit=1)[0]:
        raise SettingsError(f"{name} must not hold a user or password; write it like {example}")
    if not query and ("?" in value or "#" in value):
        raise SettingsError(f"{name} must have no query or fragment; write it like {example}")
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SettingsError(wrong) from None
    if parts.scheme not in ("http", "https") or not AUTHORITY.fullmatch(parts.netloc) or port == 0:
        raise SettingsError(wrong)
    try:
        host, path = _host(host, literal=parts.netloc.startswith("[")), _path(parts.path)
    except ValueError as fault:
        raise SettingsError(f"{name} {fault}{shown}") from None
    sent = f"{parts.scheme}://{host}" + ("" if port is None else f":{port}") + path
    return sent + (f"?{_quoted(parts.query)}" if parts.query else "")


def check_origin_url(origin: object, name: str = "the origin") -> str:
    """Return where callbacks go, with a path in front of theirs if there is one, and without trailing slashes."""
    checked = check_url(origin, name).rstrip("/")
    if checked.endswith(DEFAULT_PATH):
        raise SettingsError(
            f"{name} must not hold the callback path, which is added to it: leave out {DEFAULT_PATH}; another one goes "
            "into callback_path (TOCSIN_CALLBACK_PATH)"
        )
    return checked


def check_path(path: object, name: str = "the callback path") -> str:
    """Return a path as it is sent. SettingsError unless it is an absolute path and nothing more."""
    if not isinstance(path, str):
        raise SettingsError(f"{name} must be a text like {DEFAULT_PATH}, not {type(path).__name__}")
    if not path.startswith("/") or UNFIT.search(path) or any(c in path for c in "?#"):
        wanted = "it must start with / and hold no ? # \\ or space"
        raise SettingsError(f"{name} must be a path like {DEFAULT_PATH}: {wanted}, not {path[:200]!r}")
    try:
        return _path(path)
    except ValueError as fault:
        raise SettingsError(f"{name} {fault}, not {path[:200]!r}") from None


def callback_url(origin: object, path: str) -> str:
    """Return the two joined, with one slash between them."""
    return check_origin_url(origin) + check_path(path)


def origin_of(read: Callable[[], object]) -> str | None:
    """Return what a callable says the origin is; None if there is none. SettingsError if it raises, or says no text."""
    try:
        origin = read()
    except SettingsError:
        raise
    except Exception as error:  # it is the user's, and no job is at fault
        raise SettingsError(f"origin() raised {type(error).__name__}") from error
    if origin is not None and not isinstance(origin, str):
        # Typed callers cannot, but an `async def` is soon given.
        raise SettingsError(f"origin() must return text, not {type(origin).__name__}")
    return origin or None


def is_loopback(url: str) -> bool:
    """Return whether only this machine can answer there: a loopback address, or `localhost`."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _host(host: str, *, literal: bool) -> str:
    """Return the host in ASCII; `literal`: it stands in brackets. ValueError says what is wrong."""
    if literal:
        if "%" in host:
            raise ValueError("must hold no zone of an IPv6 address: clients read it differently")
        return f"[{_address(host)}]"
    if not host.isascii():
        import idna  # most hosts need none

        try:
            host = idna.encode(host, uts46=True).decode()
        except idna.IDNAError as error:
            raise ValueError(f"has a host that is no name: {error}") from None
    labels = host.removesuffix(".").split(".")
    if not all(LABEL.fullmatch(label) for label in labels) or len(host) > NAME_LIMIT:
        raise ValueError("has a host that is no name: letters, digits, - and _ between dots, 63 characters at most")
    if NUMBER.fullmatch(labels[-1]):
        return _address(host)  # `127.1` and `0x7f.1` are addresses to some
    return host


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError("has a host that is no address: write all parts of it as numbers") from None


def _path(path: str) -> str:
    """Return the path as it is sent. ValueError says what is wrong."""
    if ESCAPE.search(path):
        raise ValueError("has a % in its path that escapes nothing: write %25")
    if any(part.lower().replace("%2e", ".") in DOTS for part in path.split("/")):
        raise ValueError("has . or .. in its path: clients differ about what that leads to")
    return _quoted(path)


def _quoted(text: str) -> str:
    try:
        return quote(text, safe="/%:@!$&'()*+,;=~?")
    except UnicodeEncodeError:
        raise ValueError("holds characters that are no Unicode") from None
