"""The pages of the frameworks show the examples as they are, and every framework has its page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from scripts.site.markdown import blocks
from tests.examples.example_process import EXAMPLES
from tests.examples.test_reminders import BLOCKING, COMMANDS

PAGES: Final = Path(__file__).parents[2] / "docs" / "frameworks"
SHOWN: Final = {
    "fastapi.md": "reminders_fastapi.py",
    "starlette.md": "reminders_starlette.py",
    "litestar.md": "reminders_litestar.py",
    "aiohttp.md": "reminders_aiohttp.py",
    "django.md": "reminders_django.py",
    "django-wsgi.md": "reminders_django_wsgi.py",
    "flask.md": "reminders_flask.py",
    "asyncio.md": "reminders_asyncio.py",
}


@pytest.mark.parametrize("page", SHOWN)
def test_a_page_shows_the_example_that_is_tested(page: str) -> None:
    shown = [block.text for block in blocks((PAGES / page).read_text("utf-8")) if block.language == "python"]

    assert [text.strip() for text in shown] == [(EXAMPLES / SHOWN[page]).read_text("utf-8").strip()], (
        f"copy examples/{SHOWN[page]} into docs/frameworks/{page}"
    )


def test_every_example_has_a_page_and_every_page_is_in_the_overview() -> None:
    overview = (PAGES / "README.md").read_text("utf-8")

    assert set(SHOWN.values()) == {path.name for path in EXAMPLES.glob("reminders_*.py")}
    assert {path.name for path in PAGES.glob("*.md")} == {"README.md", *SHOWN}
    assert all(f"({page})" in overview for page in SHOWN)


def test_a_page_runs_its_example_as_the_test_does() -> None:
    for framework, command in (COMMANDS | BLOCKING).items():
        target = next(word for word in command if "reminders_" in word).rpartition("/")[2]
        told = [block.text for block in blocks((PAGES / f"{framework}.md").read_text("utf-8"))]
        assert any(target in text for text in told if "pip install" in text)
