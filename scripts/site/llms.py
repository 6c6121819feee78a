"""`llms.txt`: the pages of the site with one line each, in the order of its navigation, for programs that read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.site import markdown

NAME: Final = "llms.txt"
HEAD: Final = """\
# tocsin

> Durable scheduling for Python: jobs and recurring jobs kept in one SQLite file, sent to your app as signed HTTP
> callbacks or pulled by workers, with retries, pools, chains and results. No broker.

Each line below is a page, with what it is about. The addresses are those of the Markdown; for HTML replace `.md` by
`.html`.
"""


def text(nav: Sequence[Any], pages: Path) -> str:
    """Return the file for a navigation as it stands in zensical.toml, of pages in a folder."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join([HEAD, *sections(nav, pages, 2)])).rstrip() + "\n"


def sections(nav: Sequence[Any], pages: Path, level: int) -> Iterator[str]:
    """Write the entries of a navigation, each section under its own heading."""
    for entry in nav:
        [(title, value)] = entry.items()
        if isinstance(value, str):
            page = (pages / value).read_text("utf-8")
            yield f"- [{title}]({value}): {markdown.first_sentence(page)}"
        else:
            yield from ("", f"{'#' * level} {title}", "")
            yield from sections(value, pages, level + 1)
    yield ""
