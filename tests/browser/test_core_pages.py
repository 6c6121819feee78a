"""Coming and going, following, and what can be done with one job, by real clicks and keys."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from tests.browser.operated import READER, Operated
from tests.browser.visits import answer, go, said, visiting
from tests.browser.watched import PHONE, overflow, watched_page
from tests.processes.server_process import TOKEN

HOUR_MS = 3_600_000
LONG = {"id": "long-" * 12, "functionPath": "a_path.of_many.modules:" + "with_a_long_name_" * 12, "delayMs": HOUR_MS}


def background(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


def test_who_logs_in_comes_to_the_page_that_was_asked_for_and_leaves_again(browser: Browser, server: Operated) -> None:
    with watched_page(browser, server.url) as (page, faults):
        faults.expected.append("401")
        page.goto("/i/coming/ui/jobs?state=pending")
        page.get_by_label("Token").fill("not-the-token")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("The token is not known.")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{server.url}/i/coming/ui/jobs?state=pending")
        assert TOKEN not in page.content()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto("/ui")
        expect(page.get_by_label("Token")).to_be_visible()


def test_a_page_follows_what_happens_without_being_asked(browser: Browser, server: Operated) -> None:
    with visiting(browser, server, instance="followed") as (page, faults):
        with page.expect_request("**/i/followed/changes"):
            go(page, "Jobs")
        expect(page.get_by_text("There are no jobs.")).to_be_visible()
        server.schedule([{"id": "followed-1", "functionPath": "p", "delayMs": HOUR_MS}], "followed")
        expect(page.get_by_role("link", name="followed-1")).to_be_visible()
        expect(page.locator("tbody time").first).to_have_text(re.compile(r"in (1h|59m)"))
        page.get_by_role("link", name="followed-1").focus()
        server.schedule([{"id": "followed-2", "functionPath": "p", "delayMs": HOUR_MS}], "followed")
        expect(page.get_by_role("link", name="followed-2")).to_be_visible()
        expect(page.get_by_role("link", name="followed-1")).to_be_focused()
        assert f"GET {server.url}/i/followed/changes" in faults.requests


def test_a_job_is_found_moved_and_cancelled_by_dialogs(browser: Browser, server: Operated) -> None:
    server.schedule([{"id": "deal", "functionPath": "p", "delayMs": HOUR_MS, "args": {"secret": "swordfish"}}], "acts")
    with visiting(browser, server, instance="acts") as (page, _):
        go(page, "Jobs")
        page.get_by_label("Id of a job").fill("deal")
        page.keyboard.press("Enter")
        expect(page.get_by_text("It is due in")).to_be_visible()
        expect(page.get_by_text("swordfish")).to_have_count(0)
        page.get_by_role("link", name="Show args").click()
        expect(page.get_by_text("swordfish")).to_be_visible()

        page.get_by_role("link", name="Move").click()
        expect(page.get_by_role("dialog", name="Move this job")).to_be_visible()
        expect(page.get_by_label("When")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("link", name="Move").click()
        assert answer(page, "Move", When="2d").startswith("Moved deal. It is due in 2d")
        page.get_by_role("link", name="Cancel", exact=True).click()
        assert answer(page, "Cancel the job") == "Cancelled deal."
    assert server.ask("/get?id=deal", instance="acts") == {}


def test_without_a_script_the_same_is_done_on_pages(browser: Browser, server: Operated) -> None:
    server.schedule([{"id": "sober", "functionPath": "p", "delayMs": HOUR_MS}], "plainly")
    with visiting(browser, server, instance="plainly", java_script_enabled=False) as (page, _):
        go(page, "Jobs")
        page.get_by_role("link", name="sober").click()
        expect(page.locator("#facts time").nth(1)).to_have_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"))
        page.get_by_role("link", name="Move").click()
        page.get_by_label("When").fill("soon")
        page.get_by_role("button", name="Move").click()
        expect(page.get_by_role("alert")).to_contain_text("when must look like")
        expect(page.get_by_label("When")).to_have_value("soon")
        page.get_by_label("When").fill("5m")
        page.get_by_role("button", name="Move").click()
        assert said(page).startswith("Moved sober. It is due in 5m")


def test_who_may_only_look_sees_no_acts(browser: Browser, server: Operated) -> None:
    server.schedule([{"id": "seen", "functionPath": "p", "delayMs": HOUR_MS}])
    with visiting(browser, server, token=READER) as (page, faults):
        page.goto("/ui/jobs/seen")
        expect(page.get_by_role("heading", level=1)).to_contain_text("p")
        expect(page.locator("main [data-ask]")).to_have_count(0)
        faults.expected.append("403")
        page.goto("/ui/jobs/seen/cancel")
        expect(page.get_by_text("that needs the scope operate or schedule")).to_be_visible()


def test_keys_go_places_and_times_are_of_the_browsers_zone(browser: Browser, server: Operated) -> None:
    server.schedule(
        [{"id": f"key-{n}", "functionPath": "p", "scheduledFor": 2_000_000_000_000} for n in (1, 2)], "keyed"
    )
    with visiting(browser, server, instance="keyed", timezone_id="Asia/Tokyo") as (page, _):
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("g")
        page.keyboard.press("j")
        expect(page).to_have_url(re.compile("/ui/jobs$"))
        page.keyboard.press("/")
        expect(page.get_by_label("Function path")).to_be_focused()
        page.keyboard.press("Escape")
        for _ in range(2):
            page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("key-2")
        expect(page.locator("#facts time").nth(1)).to_have_text("18 May 2033, 12:33:20")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("Next and previous row")


def test_colours_are_the_systems_or_chosen_and_kept(browser: Browser, server: Operated) -> None:
    with visiting(browser, server, color_scheme="dark") as (page, _):
        dark = background(page)
        theme = page.get_by_role("button", name="Theme: system")
        theme.click()  # light
        light = background(page)
        assert light != dark
        go(page, "Jobs")
        assert background(page) == light
        page.get_by_role("button", name="Light").click()
        assert background(page) == dark
        page.get_by_role("button", name="Dark").click()
        expect(page.get_by_role("button", name="System")).to_be_visible()


def test_nothing_is_wider_than_a_phone_however_long_it_is(browser: Browser, server: Operated) -> None:
    chain = {"then": [{"functionPath": LONG["functionPath"]}], "labels": ["label-" * 20, "b"], "pool": "pool-" * 25}
    server.schedule([{**LONG, **chain}], "narrow")
    with visiting(browser, server, instance="narrow", viewport={**PHONE, "width": 360}) as (page, _):
        for path in ("", "/jobs", f"/jobs/{LONG['id']}?args=1", f"/jobs/{LONG['id']}/cancel", "/instances"):
            page.goto(f"/i/narrow/ui{path}")
            assert overflow(page) == [], path


def test_a_link_on_another_site_leads_to_the_page_of_who_has_logged_in(browser: Browser, server: Operated) -> None:
    with visiting(browser, server, instance="linked") as (page, faults):
        faults.expected.append("401")  # of the page that asks for the same again
        page.goto("about:blank")
        page.set_content(f'<a href="{server.url}/i/linked/ui/jobs?state=pending">the jobs</a>')
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
        expect(page).to_have_url(f"{server.url}/i/linked/ui/jobs?state=pending")


def test_a_second_click_does_nothing_twice_and_says_what_the_first_did(browser: Browser, server: Operated) -> None:
    server.schedule([{"id": "clicked", "functionPath": "p", "delayMs": HOUR_MS}], "hurried")
    with visiting(browser, server, instance="hurried") as (page, _):
        page.goto("/i/hurried/ui/jobs/clicked/cancel")
        page.get_by_role("button", name="Cancel the job").dblclick(no_wait_after=True)
        assert said(page) == "Cancelled clicked."
