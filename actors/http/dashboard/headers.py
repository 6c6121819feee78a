"""Headers of pages: what they may load (themselves), who may frame them (nobody), who may keep them (nobody)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tocsin.actors.http.responses import Reply

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_GUARDS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: browsers would send the forms of our own pages with `Origin: null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", POLICY.encode()),
)
KEEP_S: Final = 31_536_000

Pairs = Sequence[tuple[bytes, bytes]]


def html(text: str, status: int = 200, more: Iterable[tuple[bytes, bytes]] = ()) -> Reply:
    """Answer a page."""
    body = text.encode("utf-8", "backslashreplace")
    return _reply(
        status, body, [(b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"), *more]
    )


def seen_elsewhere(url: str, more: Iterable[tuple[bytes, bytes]] = ()) -> Reply:
    """Send the browser to another page, by GET."""
    return _reply(303, b"", [(b"location", url.encode("latin-1")), (b"cache-control", b"no-store"), *more])


def asset(body: bytes, kind: str, *, keep: bool) -> Reply:
    """Answer a file of the dashboard; kept by the browser if its address changes with it."""
    kept = f"public, max-age={KEEP_S}, immutable" if keep else "no-cache"
    return _reply(200, body, [(b"content-type", kind.encode()), (b"cache-control", kept.encode())])


def _reply(status: int, body: bytes, more: Pairs) -> Reply:
    return Reply(status, [*_GUARDS, *more, (b"content-length", b"%d" % len(body))], body)
