"""The parts of the site's build: what is read in Markdown, which pages there are, what is wrong with built pages."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from scripts.site import built, cli_reference, http_reference, llms, markdown, python_reference, staging
from scripts.site.__main__ import in_nav
from tocsin.actors.http.openapi import document
from tocsin.errors import TocsinError

from .pages import HISTORY, MADE, PAGES, ROOT, named

WIDTH = 120
WRAPPED = [page for page in PAGES if page.parent.name != "decisions" and named(page) not in HISTORY]
NAV = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]


def test_links_are_read_outside_of_code_only() -> None:
    page = "See [a](a.md#x) and `[no](b.md)`\n```text\n[no](c.md)\n```\n[over\ntwo lines](d.md) ![p](e.svg)\n"

    assert markdown.links(page) == [(1, "a.md#x"), (5, "d.md"), (6, "e.svg")]
    assert markdown.rewritten(page, lambda line, link: link) == page


def test_headings_have_the_anchors_of_repositories_viewers() -> None:
    page = "# A `code` title, with commas\n## Twice\n```text\n# none\n```\n## Twice\n### [Linked](x.md) & more\n"

    assert markdown.anchors(page) == {"a-code-title-with-commas", "twice", "twice-1", "linked--more"}


def test_a_mark_stands_before_its_block() -> None:
    page = "<!-- fragment: app -->\n\n```python\napp\n```\n\n```python\n1\n```\n"

    assert [block.mark for block in markdown.blocks(page)] == [("fragment", "app"), None]


def test_a_page_is_told_by_its_first_sentence() -> None:
    assert markdown.first_sentence("# T\n\n![x](y)\n\nThe [kit](a.md) **does** it. More.\n") == "The kit does it."


def test_every_page_has_a_first_sentence_for_the_list_of_pages() -> None:
    told = [markdown.first_sentence(page.read_text("utf-8")) for page in (ROOT / "docs").glob("*.md")]

    assert all(told)


@pytest.mark.parametrize("page", WRAPPED, ids=named)
def test_prose_is_wrapped(page: Path) -> None:
    wide = [
        (line, len(text))
        for line, text in markdown.prose(page.read_text("utf-8"))
        if len(text) > WIDTH and not text.lstrip().startswith("|")
    ]

    assert not wide, f"lines of prose have at most {WIDTH} characters"


def test_every_page_is_in_the_navigation() -> None:
    pages = {staging.placed(source) for source in staging.files_of_docs() if source.endswith(".md")}
    decisions = {page for page in pages if page.startswith("decisions/0")}

    assert pages - decisions <= set(in_nav(NAV)), "add them to zensical.toml"
    assert len(in_nav(NAV)) == len(set(in_nav(NAV)))


def test_the_list_of_pages_follows_the_navigation(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\nIt is about A. It is long.\n")

    assert llms.text([{"Start": [{"Begin": "a.md"}]}], tmp_path).endswith(
        "## Start\n\n- [Begin](a.md): It is about A.\n"
    )


def test_links_out_of_the_docs_lead_to_pages_that_show_the_file(tmp_path: Path) -> None:
    written = staging.Staging(tmp_path, dict.fromkeys(MADE, "")).run()

    assert "files/examples/receiver.mjs.md" in written
    assert "](files/examples/receiver.mjs.md)" in (tmp_path / "receiving.md").read_text("utf-8")
    assert "](changelog.md)" in (tmp_path / "index.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="b.html">', "page.html: links to b.html, and b.html is not there"),
        ('<a href="#x">', "page.html: links to #x, and that page has no #x"),
        (
            '<script src="https://cdn.example/x.js"></script>',
            "page.html: loads https://cdn.example/x.js from another host",
        ),
        ('<link rel="stylesheet" href="//fonts.example/f">', "page.html: loads //fonts.example/f from another host"),
    ],
)
def test_what_is_wrong_with_a_built_page_is_told(tmp_path: Path, html: str, fault: str) -> None:
    (tmp_path / "page.html").write_text(html)

    assert [*built.faults(tmp_path)] == [fault]


@pytest.mark.parametrize(
    "text", ["@import '//f.example/a.css'", 'a { src: url("https://f.example/b") }', '<a href="http://f.example/c"/>']
)
def test_style_sheets_and_pictures_load_nothing_either(tmp_path: Path, text: str) -> None:
    for name in ("x.css", "x.svg"):
        (tmp_path / name).write_text(text)

    found = [*built.faults(tmp_path)]
    assert [one.split(":")[0] for one in found] == ["x.css", "x.svg"]
    assert all("f.example" in one for one in found)


def test_links_of_a_sound_page_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<p id="x"><a href="page.html#x"></a><a href="https://example.org"></a>')

    assert not [*built.faults(tmp_path)]


def test_the_references_are_whole() -> None:
    python = "".join(python_reference.pages().values())
    http = http_reference.pages()[http_reference.PAGE]
    commands = cli_reference.pages()[cli_reference.PAGE]

    assert "### Scheduler.run_at\n" in python
    assert "async run_after(" in python
    assert f"## tocsin.errors.{TocsinError.__subclasses__()[0].__name__}\n" in python
    routes = [(m.upper(), path) for path, ms in document(tokens=True)["paths"].items() for m in ms]
    assert {f"### {m} {path}" for m, path in routes if not path.startswith("/i/{instance}/")} <= set(http.splitlines())
    assert "## tocsin dead retry-all\n" in commands
    assert "| `--label` |" in commands
