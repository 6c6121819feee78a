"""Every link of a page leads somewhere: in the repository, and with its anchor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.site.markdown import anchors, links

from .pages import MADE, PAGES, ROOT, named


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert not list(faults(page))


def faults(page: Path) -> list[str]:
    found = []
    for line, link in links(page.read_text("utf-8")):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.parent / path)) if path else page
        if target.is_relative_to(ROOT / "docs") and target.relative_to(ROOT / "docs").as_posix() in MADE:
            continue
        if not target.exists():
            found.append(f"{named(page)}:{line}: {link} is not there")
        elif anchor and anchor not in anchors(target.read_text("utf-8")):
            found.append(f"{named(page)}:{line}: {named(target)} has no heading #{anchor}")
    return found
