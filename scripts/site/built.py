"""Checks of the built site: each link and anchor leads somewhere, and no page loads anything from another host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOADED: Final = {
    "img": ("src",), "script": ("src",), "iframe": ("src",), "source": ("src",), "video": ("src",), "audio": ("src",),
    "object": ("data",), "embed": ("src",), "input": ("src",),
}  # fmt: skip
"""Attributes whose address a browser asks for without a click."""
RELATIONS: Final = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "manifest",
    "modulepreload",
}
"""Relations of a `link` that make a browser ask too."""


FOREIGN: Final = re.compile(r"""(?:url\(|@import|xlink:href=|href=)\s*["']?((?:https?:)?//[^"')\s]+)""")
"""What a style sheet or a picture loads from another host."""


class Page(HTMLParser):
    """What one page links to, loads, and can be jumped to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the checks ask for."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.loaded += [values[name] for name in LOADED.get(tag, ()) if name in values]
        if tag == "link" and RELATIONS & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])


def faults(site: Path) -> Iterator[str]:
    """Walk everything that is wrong with a built site, a line each."""
    for path in sorted([*site.rglob("*.css"), *site.rglob("*.svg")]):
        for address in FOREIGN.findall(path.read_text("utf-8")):
            yield f"{path.relative_to(site).as_posix()}: loads {address} from another host"
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for address in page.loaded:
            if urlsplit(address).netloc:
                yield f"{name}: loads {address} from another host"
        if path.name == "404.html":
            continue  # its links start at the root of whatever serves it
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{name}: links to {link}, and {parts.path} is not there"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: links to {link}, and that page has no #{parts.fragment}"
