"""Where callbacks go: the configured origin and path, checked and joined. Never anything from a request."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from tocsin.errors import SettingsError

DEFAULT_PATH: Final = "/_tocsin/callback"
EXAMPLE: Final = "https://app.example"
UNFIT: Final = re.compile(r"[\x00-\x20\x7f\\]")
"""URL parsers differ about these; one that is checked here and another that connects must read the same host."""
HOST: Final = re.compile(r"(\[[^\[\]]+\]|[^\[\]:]+)(:[0-9]+)?")
"""Older Pythons read `[::1]evil.example` as the host `::1`."""


def check_origin_url(origin: str) -> str:
    """`http(s)://host[:port][/prefix]`, returned without trailing slashes. SettingsError says what is wrong."""
    if UNFIT.search(origin):
        raise SettingsError("the origin must hold no spaces, control characters or backslashes")
    if "@" in origin:
        # Not shown: it may hold a password.
        raise SettingsError(f"the origin must not hold a user name or password; write it like {EXAMPLE}")
    if "?" in origin or "#" in origin:
        raise SettingsError(f"the origin {origin!r} must have no query or fragment")
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        raise SettingsError(f"the origin {origin!r} is not a URL; write it like {EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not HOST.fullmatch(parts.netloc) or port == 0:
        raise SettingsError(f"the origin {origin!r} must look like {EXAMPLE}: http or https, a host, a port if unusual")
    return origin.rstrip("/")


def check_path(path: str) -> str:
    """SettingsError unless it is an absolute path and nothing more."""
    if not path.startswith("/") or UNFIT.search(path) or any(c in path for c in "?#"):
        raise SettingsError(f"the callback path must start with / and hold no ? # \\ or space, not {path!r}")
    return path


def callback_url(origin: str, path: str) -> str:
    """The two joined, with one slash between them."""
    return check_origin_url(origin) + check_path(path)


def is_loopback(url: str) -> bool:
    """Whether only this machine can answer there: a loopback address, or `localhost`."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
