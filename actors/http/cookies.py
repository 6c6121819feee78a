"""Cookies of a request and of an answer. Their names hold the port, which browsers do not tell cookies apart by: two
servers on one machine would log each other out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from tocsin.actors.http.incoming import Incoming

SESSION: Final = "tocsin-session"
FORM: Final = "tocsin-form"
SAID: Final = "tocsin-said"
IN_PATHS: Final = "/:@!$&'()*+,=~"
"""Characters that browsers leave as they are in a path."""
_PORT: Final = re.compile(r":([0-9]{1,5})$")
_MOST: Final = 8
"""Cookies of one name that are looked at: those of several paths come together."""


def cookies(request: Incoming, kind: str) -> Sequence[str]:
    """Return the values of the cookies of a kind, the most specific path first, as browsers send them."""
    name = _name(request, kind)
    found = []
    for header in request.all(b"cookie"):
        for pair in header.split(";"):
            given, _, value = pair.strip().partition("=")
            if given == name:
                found.append(value)
    return found[:_MOST]


def set_cookie(request: Incoming, kind: str, value: str, *, life_s: int | None = None) -> tuple[bytes, bytes]:
    """Return the header that sets a cookie for this app alone; with a life of 0 it is removed. No script reads it, and
    no page of another site sends it."""
    # As browsers write it in what they ask for: they compare texts.
    root = quote(request.scope.get("root_path", ""), safe=IN_PATHS) or "/"
    parts = [f"{_name(request, kind)}={value}", f"Path={root}", "HttpOnly", "SameSite=Strict"]
    if life_s is not None:
        parts.append(f"Max-Age={life_s}")
    if is_secure(request):
        parts.append("Secure")
    return b"set-cookie", "; ".join(parts).encode("latin-1")


def is_secure(request: Incoming) -> bool:
    """Return whether the browser speaks HTTPS, also to a proxy before this server: a page's own `Origin` tells, and a
    caller who makes one up gives away nothing but a cookie of its own that works over HTTPS only."""
    said = [*request.all(b"origin"), *(f"{each}:" for each in request.all(b"x-forwarded-proto"))]
    return request.scope.get("scheme") == "https" or any(one.startswith("https:") for one in said)


def _name(request: Incoming, kind: str) -> str:
    port = _PORT.search((request.all(b"host") or [""])[0])
    return f"{kind}-{port[1]}" if port else kind
