"""What the site and the tests of the pages read in Markdown: fences, headings, links."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

FENCE: Final = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<language>[\w-]*)[^\n]*$")
MARK: Final = re.compile(r"^<!-- (?P<word>[a-z ]+): (?P<value>.+) -->$")
HEADING: Final = re.compile(r"^(?P<level>#{1,6}) (?P<title>.+?)\s*$")
LINK: Final = re.compile(r"(?P<head>!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()(?P<target>[^)\s]+)(?P<tail>\))")
SPAN: Final = re.compile(r"(`+)(?:.+?)\1", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it stands, in which language, its text, and the mark in the line before it."""

    line: int
    language: str
    text: str
    mark: tuple[str, str] | None


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order. A mark is a comment: `<!-- fragment: host, app -->`."""
    found: list[Block] = []
    inside: re.Match[str] | None = None
    start, body, before = 0, list[str](), ""
    for number, line in enumerate(page.splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None:
            if fence is not None:
                inside, start, body = fence, number, []
            elif line.strip():
                before = line.strip()
        elif fence is not None and fence["ticks"].startswith(inside["ticks"]) and not fence["language"]:
            mark = MARK.match(before)
            text = "".join(f"{one.removeprefix(inside['indent'])}\n" for one in body)
            found.append(Block(start, inside["language"], text, (mark["word"], mark["value"]) if mark else None))
            inside, before = None, ""
        else:
            body.append(line)
    if inside is not None:
        raise ValueError(f"line {start}: a block is not closed")
    return found


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Walk the lines outside of fenced blocks, with their numbers."""
    ticks = ""
    for number, line in enumerate(page.splitlines(), 1):
        fence = FENCE.match(line)
        if fence is not None and not ticks:
            ticks = fence["ticks"]
        elif fence is not None and fence["ticks"].startswith(ticks) and not fence["language"]:
            ticks = ""
        elif not ticks:
            yield number, line


def headings(page: str) -> list[tuple[int, str]]:
    """Return level and title of each heading."""
    found = (HEADING.match(line) for _, line in prose(page))
    return [(len(match["level"]), match["title"]) for match in found if match]


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings: what links to them must say, on the site as in a repository's view."""
    found: set[str] = set()
    for _, title in headings(page):
        anchor, again = slug(title), 0
        while (name := f"{anchor}-{again}" if again else anchor) in found:
            again += 1
        found.add(name)
    return found


def slug(title: str) -> str:
    """Return the anchor of a heading, as repositories' viewers make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
    kept = (one for one in unicodedata.normalize("NFC", text) if one in " -_" or one.isalnum())
    return "".join(kept).strip().replace(" ", "-")


def slugify(text: str, separator: str) -> str:
    """Return the same for the generator, which hands over the text of a heading."""
    return slug(text)


def rewritten(page: str, change: Callable[[int, str], str]) -> str:
    """Return a page with each link's target changed; blocks and code in the text stay as they are."""
    lines = page.splitlines(keepends=True)
    numbers = [number for number, _ in prose(page)]
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    for run in runs:
        text = "".join(lines[number - 1] for number in run)
        code = [(span.start(), span.end()) for span in SPAN.finditer(text)]

        def replaced(
            match: re.Match[str], text: str = text, first: int = run[0], code: list[tuple[int, int]] = code
        ) -> str:
            if any(start <= match.start("target") - 1 and match.end() <= end for start, end in code):
                return match[0]
            target = change(first + text.count("\n", 0, match.start()), match["target"])
            return match["head"] + target + match["tail"]

        lines[run[0] - 1] = LINK.sub(replaced, text)
        for number in run[1:]:
            lines[number - 1] = ""
    return "".join(lines)


def links(page: str) -> list[tuple[int, str]]:
    """Return the targets of a page's links, with the lines they stand in."""
    found: list[tuple[int, str]] = []

    def seen(line: int, target: str) -> str:
        found.append((line, target))
        return target

    rewritten(page, seen)
    return found


def first_sentence(page: str) -> str:
    """Return the first sentence under the title, without marks of Markdown: what the page is about."""
    lines: list[str] = []
    for _, line in prose(page):
        text = line.strip()
        if text.startswith(("#", "<!--", "|", "!", ">", "<")):
            if lines:
                break
        elif text:
            lines.append(text)
        elif lines:
            break
    plain = LINK.sub(lambda match: match["head"].lstrip("![").removesuffix("]("), " ".join(lines))
    plain = plain.replace("**", "").replace("*", "")
    return re.split(r"(?<=[.!?])\s(?=[A-Z`])", plain, maxsplit=1)[0]
