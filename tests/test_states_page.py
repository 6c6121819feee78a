"""The page of states says what the tables in the code say."""

from __future__ import annotations

from scripts.states import PAGE, generated


def test_the_page_is_written_from_the_tables() -> None:
    page = PAGE.read_text("utf-8")

    assert page == generated(page), "run `.venv/bin/python -m scripts.states`"
