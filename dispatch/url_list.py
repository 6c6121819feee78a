"""The list of URLs that jobs may name to be called back there, and the grammar of its entries.

An entry is `scheme://host[:port][/path]`. The host stands for itself, or, as `*.customer.example`, for the names with
one label more. The path stands for itself and all below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from tocsin.dispatch.target import LABEL, NUMBER, check_url
from tocsin.errors import InvalidInputError, SettingsError

URL_LIMIT: Final = 2048
ENTRIES_LIMIT: Final = 1000
EXAMPLE: Final = "https://hooks.example/in/"
ANY_LABEL: Final = "*."
PORTS: Final = {"http": 80, "https": 443}
HIDDEN_SIGN: Final = re.compile(r"%(2f|5c|00)", re.IGNORECASE)
"""A slash, a backslash or NUL that is written as an escape: some servers undo it before they look at the path."""


class _Parts(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str


class UrlList:
    """The entries of one host, in force. SettingsError for one that is not of the grammar."""

    def __init__(self, entries: Iterable[str], name: str = "allow_urls") -> None:
        if isinstance(entries, (str, bytes)) or not isinstance(entries, Iterable):
            raise SettingsError(f"{name} must be a list of URLs like {EXAMPLE}, not {type(entries).__name__}")
        self.entries: Sequence[str] = tuple(entries)
        if len(self.entries) > ENTRIES_LIMIT:
            raise SettingsError(f"{name} must hold at most {ENTRIES_LIMIT} entries, not {len(self.entries)}")
        self._entries = [_entry(each, name) for each in self.entries]

    def allows(self, url: str) -> bool:
        """Return whether an entry covers this URL, which `check_job_url` has returned."""
        parts = _parts(url)
        return any(_covers(entry, parts) for entry in self._entries)

    def check(self, url: object, name: str = "url") -> str:
        """Return the URL as it is called. InvalidInputError if it is none, or no entry covers it."""
        checked = check_job_url(url, name)
        if not self.allows(checked):
            raise InvalidInputError(
                f"{name}: {shown_url(checked)} is not on the host's list of URLs (allow_urls, TOCSIN_ALLOW_URLS)"
            )
        return checked


class AnyUrl(UrlList):
    """Covers every URL, for whoever calls none: a rehearsal."""

    def __init__(self) -> None:
        super().__init__([EXAMPLE])

    def allows(self, url: str) -> bool:
        return True


NO_URLS: Final = UrlList(())
"""The list of a host that was given none: jobs may name no URL."""


def check_job_url(url: object, name: str = "url") -> str:
    """Return a URL as it is called. InvalidInputError unless all who read it read the same."""
    try:
        if isinstance(url, str) and len(url) > URL_LIMIT:
            raise SettingsError(f"{name} must have at most {URL_LIMIT} characters, not {len(url)}")
        checked = check_url(url, name, example=EXAMPLE, query=True)
        if "#" in str(url):
            raise SettingsError(f"{name} must have no fragment: it is not sent")
        parts = urlsplit(checked)
        if (parts.hostname or "").endswith("."):
            raise SettingsError(f"{name} must have a host without a dot at its end")
        _check_path(parts.path, name)
    except SettingsError as error:
        raise InvalidInputError(error.message) from None
    return checked


def _check_path(path: str, name: str) -> None:
    if HIDDEN_SIGN.search(path):
        raise SettingsError(f"{name} must have no escaped slash, backslash or NUL in its path: some servers undo that")
    for part in path.split("/"):
        if unquote(part.partition(";")[0]) in (".", ".."):
            raise SettingsError(f"{name} must have no . or .. in its path, also not before a semicolon")


def shown_url(url: str) -> str:
    """Return a job's URL as people are shown it: a query may hold what is secret."""
    address, mark, _ = url.partition("?")
    return f"{address}?…" if mark else address


def host_of(url: str) -> str:
    """Return scheme, host and port of a URL, which is all that logs and errors tell of it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _entry(entry: object, name: str) -> _Parts:
    if not isinstance(entry, str):
        raise SettingsError(f"{name} must hold URLs like {EXAMPLE}, not {type(entry).__name__}")
    scheme, mark, rest = entry.partition("://")
    anywhere = rest.startswith(ANY_LABEL)
    plain = f"{scheme}{mark}{rest.removeprefix(ANY_LABEL)}"
    parts = _parts(check_url(plain, name, example=EXAMPLE))
    if "*" in plain:
        raise SettingsError(f"{name}: * stands for the first label of a host only, not so in {entry!r:.200}")
    if anywhere and ("." not in parts.host or NUMBER.fullmatch(parts.host.rpartition(".")[2]) or "[" in parts.host):
        raise SettingsError(f"{name}: behind *. must stand a name with a dot in it, not so in {entry!r:.200}")
    if parts.host.endswith("."):
        raise SettingsError(f"{name}: a host must have no dot at its end, not so in {entry!r:.200}")
    _check_path(parts.path, name)
    return parts._replace(host=f"{ANY_LABEL}{parts.host}") if anywhere else parts


def _parts(checked: str) -> _Parts:
    """Return what is compared of a URL that `check_url` has returned."""
    parts = urlsplit(checked)
    host = parts.netloc.rpartition(":")[0] if parts.port is not None else parts.netloc
    return _Parts(parts.scheme, host.lower(), parts.port or PORTS[parts.scheme], parts.path or "/")


def _covers(entry: _Parts, url: _Parts) -> bool:
    if (entry.scheme, entry.port) != (url.scheme, url.port):
        return False
    if entry.host.startswith(ANY_LABEL):
        first, dot, rest = url.host.partition(".")
        if not dot or rest != entry.host[len(ANY_LABEL) :] or not LABEL.fullmatch(first):
            return False
    elif entry.host != url.host:
        return False
    below = entry.path if entry.path.endswith("/") else f"{entry.path}/"
    return url.path == entry.path or url.path.startswith(below)
