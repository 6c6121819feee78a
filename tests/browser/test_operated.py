"""The server that tests of pages look at is a real one, and its receiver answers what it is told."""

from __future__ import annotations

from playwright.sync_api import Browser

from tests.browser.operated import Operated
from tests.browser.watched import watched_page
from tests.waiting import wait_until


def test_callbacks_are_answered_as_told_and_a_page_of_the_server_opens(browser: Browser, server: Operated) -> None:
    server.answers(**{"invoices:send": {"status": 500, "body": "no connection to the mail server"}})
    job = {"args": {}, "delayMs": 0, "retry": {"maxRetries": 0}}
    server.schedule([{**job, "functionPath": "invoices:send"}, {**job, "functionPath": "mail:send"}], "one")

    wait_until(lambda: server.came() == {"invoices:send 500": 1, "mail:send 200": 1})
    assert server.ask("/dead", instance="one")["records"][0]["lastResponse"] == "no connection to the mail server"
    with watched_page(browser, server.url) as (page, faults):
        faults.expected.append("favicon.ico")
        page.goto("/healthz")
        assert "ok" in page.content()
