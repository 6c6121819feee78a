"""Coming and going: a token is typed in once, and a cookie stands for it from then on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tocsin.actors.http.access import OWN_SITE
from tocsin.actors.http.cookies import SESSION, set_cookie
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.headers import seen_elsewhere
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.responses import Reply
from tocsin.actors.http.sessions import LIFE_MS
from tocsin.actors.http.tokens import find_token

COME: Final = "/login"
LEAVE: Final = "/logout"
PATHS: Final = (COME, LEAVE)
UNKNOWN: Final = "The token is not known."
_OURS: Final = re.compile(r"(/i/[A-Za-z0-9_.:-]+)?/ui(/[A-Za-z0-9_.:/-]*)?(\?[A-Za-z0-9_.:%&=+*-]*)?")
"""Addresses that one is sent to after a login: pages of this app, below its root."""


@dataclass(frozen=True, slots=True)
class Login:
    """The content of the login page. Without `tokens` nobody can log in here."""

    next: str
    wrong: str
    tokens: bool


def came_from_elsewhere(request: Incoming) -> bool:
    """Return whether a link on a page of another origin led here. Then nothing that was sent with it counts, and of
    another site the browser has kept back its cookie; both is over as soon as a page of ours asks for the same."""
    from_elsewhere = any(site not in OWN_SITE for site in request.all(b"sec-fetch-site"))
    return from_elsewhere and "navigate" in request.all(b"sec-fetch-mode")


def address(asked: Asked) -> str:
    """Return the address of this request."""
    return asked.at_root + _address(asked)


def _address(asked: Asked) -> str:
    """Return the address of this request, below the root of the app. One that leads out of the dashboard is none of its
    pages: anybody could make a browser ask for any path of this host, as if a page of ours did."""
    path = quote(asked.request.path.removeprefix(asked.root), safe="/:")
    if _leads_out(path):
        return "/ui"
    query = asked.request.scope.get("query_string", b"").decode("latin-1")
    return path + (f"?{query}" if query else "")


def wanted(asked: Asked) -> str:
    """Return the page to show after the login, below the root: the one asked for, or said by the form."""
    here = asked.form.get("next") or _address(asked)
    return here if _OURS.fullmatch(here) and not _leads_out(here) and not here.endswith(PATHS) else "/ui"


def _leads_out(path: str) -> bool:
    """Return whether a browser would ask for another path than is written: it takes `..` as the way up."""
    return any(part in (".", "..") for part in path.partition("?")[0].split("/"))


def come(asked: Asked) -> Reply | None:
    """Begin a session for the token in the form; None if there is no such token."""
    token = find_token(asked.gate.tokens, asked.form.get("token", "").strip())
    if token is None:
        return None
    cookie = set_cookie(asked.request, SESSION, asked.gate.sessions.begin(token), life_s=LIFE_MS // 1000)
    return seen_elsewhere(asked.at_root + wanted(asked), [cookie])


def leave(asked: Asked) -> Reply:
    """End the session."""
    if asked.visit.session is not None:
        asked.gate.sessions.end(asked.visit.session)
    return seen_elsewhere(f"{asked.at_root}/ui/login", [set_cookie(asked.request, SESSION, "", life_s=0)])
