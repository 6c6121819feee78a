"""People at the dashboard: they log in, go to pages, and answer what they are asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Browser, Locator, Page, StorageState

from tests.browser.operated import Operated
from tests.browser.watched import Faults, watched_page
from tests.processes.server_process import TOKEN

_COOKIES: Final[dict[tuple[str, str], StorageState]] = {}
"""Of those who have logged in, by server and token."""


@contextmanager
def visiting(
    browser: Browser, server: Operated, *, instance: str = "default", token: str = TOKEN, **options: Any
) -> Iterator[tuple[Page, Faults]]:
    """Yield the overview of an instance, as somebody who has logged in sees it."""
    came = server.url, token
    if came not in _COOKIES:
        _COOKIES[came] = log_in(browser, *came)
    with watched_page(browser, server.url, storage_state=_COOKIES[came], **options) as (page, faults):
        page.goto("/ui" if instance == "default" else f"/i/{instance}/ui", wait_until="commit")
        page.get_by_role("heading", name="Overview").wait_for()
        yield page, faults


def log_in(browser: Browser, origin: str, token: str) -> StorageState:
    """Log in as people do, by the form that a stranger sees, and return the cookies that stand for it from then on."""
    with watched_page(browser, origin) as (page, faults):
        faults.expected.append("401")  # what a stranger is answered, with the form
        page.goto("/ui")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        return page.context.storage_state()


def go(page: Page, entry: str) -> None:
    """Follow an entry of the navigation."""
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name=entry).click()
    page.get_by_role("heading", name=entry, level=1).wait_for()


def answer(page: Page, button: str, **fields: str) -> str:
    """Answer the question that a page or a dialog asks; what is said to have been done."""
    question = page.locator("form.question")
    for label, value in fields.items():
        question.get_by_label(label.replace("_", " ")).fill(value)
    question.get_by_role("button", name=button).click()
    return said(page)


def said(page: Page) -> str:
    """Return what the page says was done just now."""
    banner: Locator = page.locator("main > .said p")
    return banner.inner_text()
