"""A real browser for tests of pages: the system's Chromium without a screen, driven by Playwright's library.

Playwright's own download of a browser is not used, and neither is its plugin of pytest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS: Final = (
    "--no-sandbox",  # refused to root, and the pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing leaves this machine, whatever a page asks for
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Fails, or skips where CI is not set, if none is installed.

    While one is open, the thread belongs to Playwright's event loop: no test may run another loop in it. So a browser
    lives for one module of tests, and starts in a fifth of a second.
    """
    program = found()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def found() -> str:
    """The path of the first one that is installed."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    if os.environ.get("CI"):
        pytest.fail("Chromium is not installed")
    pytest.skip("Chromium is not installed")
