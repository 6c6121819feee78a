"""Forms of our own pages, and of nobody else's: each holds what a cookie of the same browser holds, which no other site
can read, set or make a browser send."""

from __future__ import annotations

import hmac
import re
from random import Random
from typing import Final
from urllib.parse import parse_qsl

from tocsin.actors.http.access import Visit, is_own_page
from tocsin.actors.http.body import FORM, SMALL_BODY, read_body
from tocsin.actors.http.cookies import FORM as FORM_COOKIE
from tocsin.actors.http.cookies import cookies
from tocsin.actors.http.crowd import Crowd
from tocsin.actors.http.incoming import Incoming
from tocsin.errors import ForbiddenError, InvalidInputError

MARK: Final = "form"
"""The member of a form that holds its mark."""
FIELDS_MOST: Final = 1_500
"""Enough for the ids of a page of a list, marked one by one."""
_SHAPE: Final = re.compile(r"[0-9a-f]{32}")


def mark_of(request: Incoming) -> str | None:
    """Return the mark of the forms of this browser, or None if it has none yet."""
    return next((one for one in cookies(request, FORM_COOKIE) if _SHAPE.fullmatch(one)), None)


def new_mark(random: Random) -> str:
    return random.randbytes(16).hex()


async def read_form(request: Incoming, visit: Visit, crowd: Crowd) -> dict[str, str]:
    """Read a form. ForbiddenError if it is none of our pages'. A member that comes several times has its values in one
    text, with spaces between them."""
    if not _says_own(request):
        raise ForbiddenError(
            "this form was not sent by a page of this dashboard (Origin, Sec-Fetch-Site); if there is a proxy, it must "
            "pass on the Host header"
        )
    raw = await read_body(request, SMALL_BODY, crowd if visit.stranger else None, FORM)
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MOST)
    except ValueError:
        raise InvalidInputError(f"the form must be percent-encoded UTF-8, of at most {FIELDS_MOST} members") from None
    for name, value in pairs:
        found[name] = f"{found[name]} {value}" if name in found else value
    given = found.pop(MARK, "").encode()
    if not any(
        hmac.compare_digest(one.encode(), given) for one in cookies(request, FORM_COOKIE) if _SHAPE.fullmatch(one)
    ):
        raise ForbiddenError("this form is of an older page, or of none of this dashboard: go back, reload, try again")
    return found


def _says_own(request: Incoming) -> bool:
    """Return whether the browser says that a page of ours sent this. One of the headers must be there."""
    return (b"sec-fetch-site" in request.named or b"origin" in request.named) and is_own_page(request)
