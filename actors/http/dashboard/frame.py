"""The surroundings of every page: the navigation, how the instance is, who is there, and what was done just now."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tocsin.actors.http.cookies import SAID, cookies, set_cookie
from tocsin.actors.http.dashboard import files
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.navigation import ENTRIES
from tocsin.actors.http.incoming import Incoming

SAID_S: Final = 60
SAID_BYTES: Final = 2_700
"""Browsers drop cookies of more than 4 KiB, and these grow by a third on the way."""
_UNDO: Final = re.compile(r"(/i/[A-Za-z0-9_.:-]+)?/ui/undo/[A-Za-z0-9_.:-]+")
HEALTH: Final = {"green": "Healthy", "amber": "Needs a look", "red": "In trouble"}


class Said(msgspec.Struct, frozen=True):
    """Words on what was done, for the next page to say. `undo` is the address that takes it back."""

    words: str
    undo: str = ""
    good: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the navigation on this page."""

    name: str
    words: str
    url: str
    key: str
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The surroundings of a page."""

    title: str
    page: str
    instance: str
    links: Sequence[Link] = ()
    health: str = ""
    paused: bool = False
    moved_to: str = ""
    moving_to: str = ""
    known: bool = True
    """False if there is nothing in the instance."""
    who: str = ""
    may_leave: bool = False
    mark: str = ""
    feed: str = ""
    said: Said | None = None

    def words_of(self, health: str) -> str:
        """Return how health is called."""
        return HEALTH.get(health, health)

    def file(self, asked_root: str, name: str) -> str:
        """Return the address of a file of the dashboard."""
        return f"{asked_root}/ui{files.UNDER}{name}?v={files.version(name)}"


async def around(asked: Asked, page: str, title: str, mark: str, names: Collection[str]) -> Frame:
    """Return the frame of a page of one instance; `names` are those of all pages that exist."""
    status = await asked.status()
    dead = status.dead if status is not None else 0
    return Frame(
        title=title,
        page=page,
        instance=asked.instance,
        links=[
            Link(one.name, one.words, asked.url(one.path), one.key, dead if one.name == "dead" else 0)
            for one in ENTRIES
            if one.name in names
        ],
        health=status.health if status is not None and (status.known or status.health != "green") else "",
        known=status is None or status.known,
        paused=status is not None and status.paused,
        moved_to=(status.moved_to or "") if status is not None else "",
        moving_to=(status.moving_to or "") if status is not None else "",
        who=asked.visit.caller.name or "",
        may_leave=asked.visit.session is not None,
        mark=mark,
        feed=asked.feed if await asked.may("changes") else "",
        said=read_said(asked),
    )


def bare(title: str, mark: str = "") -> Frame:
    """Return the frame of a page that tells nothing of any instance."""
    return Frame(title=title, page="", instance="", mark=mark)


# ---- What was said -------------------------------------------------------------------------------


def say(request: Incoming, said: Said) -> tuple[bytes, bytes]:
    """Return the cookie that lets the next page say what was done: an address could be somebody else's words."""
    raw, words = msgspec.json.encode(said), said.words
    while len(raw) > SAID_BYTES and words:
        words = words[: len(words) * 3 // 4]
        raw = msgspec.json.encode(msgspec.structs.replace(said, words=f"{words}…"))
    return set_cookie(request, SAID, base64.urlsafe_b64encode(raw).decode().rstrip("="), life_s=SAID_S)


def read_said(asked: Asked) -> Said | None:
    """Return what was done. A server on another port of this machine can set that cookie, too: so it says words, and
    leads nowhere but to the question whether to undo."""
    for text in cookies(asked.request, SAID):
        try:
            said = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Said)
        except (binascii.Error, ValueError, msgspec.MsgspecError):
            continue
        known = said.undo.startswith(asked.at_root) and _UNDO.fullmatch(said.undo.removeprefix(asked.at_root))
        return said if known else msgspec.structs.replace(said, undo="")
    return None


def unsay(request: Incoming) -> tuple[bytes, bytes]:
    return set_cookie(request, SAID, "", life_s=0)
