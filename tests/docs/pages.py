"""The pages that users read, and the blocks on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.site import cli_reference, http_reference, python_reference
from scripts.site.markdown import Block, blocks

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MADE: Final = {http_reference.PAGE, "openapi.json", cli_reference.PAGE, "llms.txt"} | {
    f"reference/{group.slug}.md" for group in python_reference.GROUPS
}
"""Pages that exist on the site only; `scripts/docs` checks their anchors."""
HISTORY: Final = {"CHANGELOG.md"}
"""Pages that tell of what was: their blocks need not hold today."""


def named(page: Path) -> str:
    """Return what a page is called in the repository."""
    return page.relative_to(ROOT).as_posix()


def all_blocks(*languages: str) -> Iterator[tuple[Path, Block]]:
    """Walk the blocks in some languages, or in any, of all pages."""
    for page in PAGES:
        if named(page) not in HISTORY:
            found = blocks(page.read_text("utf-8"))
            yield from ((page, one) for one in found if not languages or one.language in languages)


def ids(blocks: list[tuple[Path, Block]]) -> list[str]:
    """Return names of blocks for parametrized tests."""
    return [f"{named(page)}:{block.line}" for page, block in blocks]
