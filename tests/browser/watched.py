"""Pages whose faults are noted: requests to other hosts, errors on the console (violations of the content security
policy are among them), exceptions of scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

DEADLINE_MS: Final = 10_000
DESK: Final[Mapping[str, int]] = {"width": 1280, "height": 800}
PHONE: Final[Mapping[str, int]] = {"width": 390, "height": 844}


class Faults:
    """What went wrong in the pages of one context; `expected` are words of errors that a test causes on purpose."""

    def __init__(self, origin: str) -> None:
        self._host = urlsplit(origin).netloc
        self.found: list[str] = []
        self.requests: list[str] = []
        self.expected: list[str] = []

    def watch(self, context: BrowserContext) -> None:
        context.on("request", self._request)
        context.on("console", self._console)
        context.on("weberror", lambda error: self._note(f"an exception: {error.error}"))

    def _request(self, request: Request) -> None:
        self.requests.append(f"{request.method} {request.url}")
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != self._host:
            self._note(f"a request to another host: {request.url}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._note(f"the console: {message.text} ({message.location.get('url', '')})")

    def _note(self, fault: str) -> None:
        self.found.append(fault)

    def check(self) -> None:
        """Fails for each fault that no test expects."""
        unexpected = [one for one in self.found if not any(words in one for words in self.expected)]
        assert not unexpected, "\n".join(unexpected)


@contextmanager
def watched_page(browser: Browser, origin: str, **options: Any) -> Iterator[tuple[Page, Faults]]:
    """A page in a context of its own, that is, without anybody's cookies; its faults fail when the block ends well."""
    settings: dict[str, Any] = {"viewport": dict(DESK), "base_url": origin, "locale": "en-GB", "timezone_id": "UTC"}
    context = browser.new_context(**{**settings, **options})
    context.set_default_timeout(DEADLINE_MS)
    faults = Faults(origin)
    faults.watch(context)
    try:
        yield context.new_page(), faults
        faults.check()
    finally:
        context.close()


def overflow(page: Page) -> list[str]:
    """What makes a page wider than its window; scrolling boxes of their own are allowed to be."""
    found: list[str] = page.evaluate(OVERFLOWING)
    return found


OVERFLOWING: Final = """() => {
    const width = document.documentElement.clientWidth
    if (document.documentElement.scrollWidth <= width) return []
    const scrolls = (node) => {
        for (let up = node.parentElement; up; up = up.parentElement) {
            if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(up).overflowX)) return true
        }
        return false
    }
    return [...document.body.querySelectorAll("*")]
        .filter((node) => node.getBoundingClientRect().right > width + 0.5 && !scrolls(node))
        .map((node) => `${node.tagName.toLowerCase()}.${node.className} ${node.textContent.trim().slice(0, 40)}`)
}"""
