"""Collect the pages of the site in one folder: those of `docs/`, those made of the code, files that they link to."""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from scripts.site import cli_reference, http_reference, markdown, python_reference

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs/"
RENAMED: Final = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages of the repository that are pages of the site."""
LANGUAGES: Final = {
    ".py": "python",
    ".mjs": "javascript",
    ".toml": "toml",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".sh": "sh",
}
"""How files that are shown as they are are highlighted; others are plain text."""


def generated() -> dict[str, str]:
    """Return the pages and files that are made of the code, by path inside the site."""
    return {**python_reference.pages(), **http_reference.pages(), **cli_reference.pages()}


def stage(target: Path) -> list[str]:
    """Write all pages of the site into a new folder, and return the paths of those that are Markdown."""
    shutil.rmtree(target, ignore_errors=True)
    return Staging(target, generated()).run()


class Staging:
    """One run: which files wait to be written, and where each comes to stand."""

    def __init__(self, target: Path, made: dict[str, str]) -> None:
        self._target, self._made = target, made
        self._waiting = deque([*RENAMED, *files_of_docs()])
        self._places = {placed(source): source for source in self._waiting}

    def run(self) -> list[str]:
        for path, text in self._made.items():
            self._put(path, text)
        while self._waiting:
            source = self._waiting.popleft()
            place = placed(source)
            if source.endswith(".md"):
                text = (ROOT / source).read_text("utf-8")
                self._put(place, markdown.rewritten(text, partial(self._on_site, source)))
            elif place.endswith(".md"):
                self._put(place, shown(source, (ROOT / source).read_text("utf-8")))
            else:
                self._folder_of(place)
                shutil.copyfile(ROOT / source, self._target / place)
        return sorted(path for path in {*self._made, *self._places} if path.endswith(".md"))

    def _on_site(self, source: str, line: int, link: str) -> str:
        """Return a link of a page as it reads on the site; what it leads to is written too."""
        if link.startswith(("#", "https://", "http://", "mailto:")):
            return link
        path, hash, anchor = link.partition("#")
        place = PurePosixPath(placed(source))
        leads_to = os.path.normpath(PurePosixPath(source).parent / path)
        if os.path.normpath(place.parent / path) in self._made and source.startswith(DOCS):
            return link
        if (ROOT / leads_to).is_dir():
            leads_to = f"{leads_to}/README.md"
        if not (ROOT / leads_to).is_file():
            raise SystemExit(f"{source}:{line}: links to {link}, and {leads_to} is not there")
        if placed(leads_to) not in self._places:
            self._places[placed(leads_to)] = leads_to
            self._waiting.append(leads_to)
        return os.path.relpath(placed(leads_to), place.parent) + hash + anchor

    def _folder_of(self, place: str) -> Path:
        path = self._target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _put(self, place: str, text: str) -> None:
        self._folder_of(place).write_text(text, "utf-8")


def files_of_docs() -> list[str]:
    """Return every file below `docs/`."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / DOCS).rglob("*") if path.is_file())


def placed(source: str) -> str:
    """Return where a file of the repository stands on the site."""
    if source in RENAMED:
        return RENAMED[source]
    if source.startswith(DOCS):
        return re.sub(r"README\.md$", "index.md", source.removeprefix(DOCS))
    return f"files/{source}" if source.endswith(".md") else f"files/{source}.md"


def shown(source: str, text: str) -> str:
    """Return a page that shows a file of the repository as it is."""
    language = LANGUAGES.get(PurePosixPath(source).suffix, "text")
    return (
        f"# {PurePosixPath(source).name}\n\n`{source}`, as it is in the repository.\n\n````{language}\n{text}\n````\n"
    )
