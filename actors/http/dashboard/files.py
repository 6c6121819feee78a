"""The files of the dashboard: style, script and picture, and the templates, as they were installed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from tocsin.actors.http.dashboard.headers import asset
from tocsin.actors.http.responses import Reply
from tocsin.errors import NotFoundError

KINDS: Final[Mapping[str, str]] = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
UNDER: Final = "/static/"


@cache
def read(name: str) -> bytes:
    return files(__package__).joinpath("static", name).read_bytes()


@cache
def version(name: str) -> str:
    """Return a mark of what a file holds; a part of its address."""
    return hashlib.blake2b(read(name), digest_size=6).hexdigest()


def answer_file(path: str, query: bytes) -> Reply:
    """Answer a file. NotFoundError if there is none of that name."""
    name = path.removeprefix(UNDER)
    if name not in KINDS:
        raise NotFoundError(f"the dashboard has no file {name[:80]!r}")
    return asset(read(name), KINDS[name], keep=query == f"v={version(name)}".encode())


def template(name: str) -> str:
    return files(__package__).joinpath("templates", name).read_text("utf-8")
