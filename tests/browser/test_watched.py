"""The watch over pages sees what it is there to see."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Route

from tests.browser.watched import PHONE, overflow, watched_page

ORIGIN = "http://127.0.0.1:9"
POLICY = {"content-security-policy": "default-src 'self'", "content-type": "text/html"}
SAYS = "console.error('said')"
CLEAN = "<!doctype html><link rel=icon href=/icon.js><title>clean</title><p>clean</p>"


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ("<img src='http://198.51.100.1/x.png'>", "another host"),
        ("<script>document.title = 'x'</script>", "content security policy"),
        ("<p style='color: red'>x</p>", "content security policy"),
        ("<script src=/throws.js></script>", "an exception: thrown"),
        ("<script src=/says.js></script>", "the console: said"),
    ],
)
def test_a_fault_of_a_page_fails_its_test(browser: Browser, html: str, fault: str) -> None:
    bodies = {
        "/": CLEAN + html,
        "/icon.js": "",
        "/throws.js": "throw new Error('thrown')",
        "/says.js": SAYS,
    }

    with (
        pytest.raises(AssertionError, match=f"(?i){fault}"),
        watched_page(browser, ORIGIN) as (page, faults),
    ):
        page.route("**/*", lambda route: serve(route, bodies))
        page.goto("/", wait_until="load")
        assert len(faults.requests) >= 1


def test_a_clean_page_has_none_and_words_name_those_that_are_expected(browser: Browser) -> None:
    with watched_page(browser, ORIGIN) as (page, faults):
        faults.expected.append("said")
        page.route("**/*", lambda route: serve(route, {"/": CLEAN, "/icon.js": "", "/says.js": SAYS}))
        page.goto("/")
        page.add_script_tag(url="/says.js")

    assert len(faults.found) == 1


def test_a_page_wider_than_a_phone_is_told_from_one_that_scrolls_inside(browser: Browser) -> None:
    wide, inside = "<b class=wide style='display: block; width: 600px'>x</b>", "<div style='overflow: auto'>"
    with watched_page(browser, ORIGIN, viewport=PHONE) as (page, _):
        page.set_content(f"{CLEAN}{inside}{wide}</div>")
        assert overflow(page) == []

        page.set_content(CLEAN + wide)
        assert [one.split()[0] for one in overflow(page)] == ["b.wide"]


def serve(route: Route, bodies: dict[str, str]) -> None:
    path = route.request.url.removeprefix(ORIGIN)
    if path not in bodies:
        route.abort()
    elif path.endswith(".js"):
        route.fulfill(body=bodies[path], headers={"content-type": "text/javascript"})
    else:
        route.fulfill(body=bodies[path], headers=POLICY)
