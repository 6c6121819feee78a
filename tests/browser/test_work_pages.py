"""Dead letters, schedules and pools by real clicks and keys, with and without the script, on desks and phones."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, expect

from tests.browser.operated import READER, Operated
from tests.browser.visits import answer, go, visiting
from tests.browser.watched import PHONE, overflow
from tests.waiting import wait_until

LONG = "a_path.of_many.modules:with_a_name_that_says_everything_there_is_to_say_about_it"
DOWN = "no connection to the card processor"


def kill_jobs(server: Operated, instance: str, path: str, count: int, **more: Any) -> None:
    server.answers(**{path: {"status": 500, "body": DOWN}})
    job = {"functionPath": path, "delayMs": 0, "retry": {"maxRetries": 0}, **more}
    server.schedule([{**job, "id": f"{'long-' * 10}{n:04d}"} for n in range(count)], instance)
    wait_until(lambda: server.ask("/status", instance=instance)["dead"] == count)


def test_dead_letters_are_retried_by_clicks_at_a_rate_after_a_dry_run(browser: Browser, server: Operated) -> None:
    kill_jobs(server, "clicks", "pay:card", 12)
    server.answers()
    with visiting(browser, server, instance="clicks") as (page, _):
        go(page, "Dead letters")
        page.get_by_role("link", name="pay:card").click()
        expect(page.locator("tbody tr")).to_have_count(12)
        page.get_by_role("link", name="Retry all of these").click()
        expect(page.get_by_role("dialog")).to_contain_text("A dry run matches 12 dead letters.")
        expect(page.get_by_role("dialog")).to_contain_text("At 50 a second that takes 1s.")
        page.get_by_label("Jobs a second").fill("2")
        expect(page.get_by_role("dialog")).to_contain_text("At 2 a second that takes 6s.")

        words = answer(page, "Retry 12 jobs", Jobs_a_second="100")

        assert words == "12 dead letters of pay:card with the reason exhausted will be retried, 100 a second."
        expect(page.locator("#progress")).to_contain_text("12 of 12 retried")
        wait_until(lambda: server.ask("/status", instance="clicks")["backlog"] == 0)
        assert server.ask("/status", instance="clicks")["dead"] == 0
        assert server.came()["pay:card 200"] == 12


def test_marked_letters_are_cancelled_without_a_script(browser: Browser, server: Operated) -> None:
    kill_jobs(server, "plain", "pay:plain", 3)
    with visiting(browser, server, instance="plain", java_script_enabled=False) as (page, _):
        go(page, "Dead letters")
        page.get_by_role("link", name="One by one").click()
        for box in page.get_by_role("checkbox").all()[:2]:
            box.check()
        page.get_by_role("button", name="Cancel the marked").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Cancel 2 dead letters?")

        assert answer(page, "Cancel 2 jobs") == "2 dead letters cancelled."
        expect(page.locator("tbody tr")).to_have_count(1)


def test_a_schedule_is_paused_by_keys_alone_and_its_marks_say_what_they_are(browser: Browser, server: Operated) -> None:
    server.answers()
    server.ask("/schedules/s", {"everyMs": 3_600_000, "functionPath": "p"}, "PUT", instance="keys")
    server.ask("/schedules/s/trigger", {}, instance="keys")
    with visiting(browser, server, instance="keys") as (page, _):
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.get_by_role("heading", name="Schedules", level=1).wait_for()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="s", exact=True).wait_for()
        page.get_by_label("triggered by hand").focus()
        expect(page.locator(".mark .tip")).to_have_css("opacity", "1")
        page.get_by_role("link", name="Pause").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog").get_by_role("button", name="Pause")).to_be_focused()
        page.keyboard.press("Enter")

        expect(page.locator(".said")).to_contain_text("The schedule s is paused")
        assert server.ask("/schedules/s", instance="keys")["paused"] is True


def test_a_pool_is_watched_while_it_fills(browser: Browser, server: Operated) -> None:
    server.ask("/pool", {"name": "smtp", "maxConcurrency": 2}, "PUT", instance="pools")
    with visiting(browser, server, instance="pools") as (page, _):
        go(page, "Pools")
        page.get_by_role("link", name="smtp").click()
        expect(page.locator("#holders")).to_contain_text("Nobody holds it.")
        job = {"functionPath": "p", "queue": "q", "pool": "smtp", "delayMs": 0}
        server.schedule([{**job, "id": f"j{n}"} for n in range(3)], "pools")
        server.ask("/queues/q/claim", {"max": 5}, instance="pools")
        page.keyboard.press("r")

        expect(page.locator("#holders tbody tr")).to_have_count(2)
        expect(page.locator("#counts")).to_contain_text("of at most 2")


def test_no_page_is_wider_than_a_phone_or_has_a_fault(browser: Browser, server: Operated) -> None:
    instance = "narrow.with.a-name:as-long-as-names-of-tenants-are"
    kill_jobs(server, instance, LONG, 2, pool="a-pool.of-which.the:name-is-longer-than-a-phone-is-wide")
    schedule = {"everyMs": 3_600_000, "functionPath": LONG, "args": {"text": "x" * 200}}
    server.ask(f"/schedules/{'s' * 100}", schedule, "PUT", instance=instance)
    server.ask(f"/schedules/{'s' * 100}/trigger", {}, instance=instance)
    pool = "a-pool.of-which.the:name-is-longer-than-a-phone-is-wide"
    paths = [
        "/dead",
        f"/dead/letters?path={LONG}",
        "/dead/retry-all",
        "/audit",
        "/schedules",
        f"/schedules/{'s' * 100}?args=1",
    ]
    paths += [f"/schedules/{'s' * 100}/delete", "/queues", "/workers", "/pools", f"/pools/{pool}", "/pools/none"]
    options = {"viewport": PHONE, "color_scheme": "dark"}
    with visiting(browser, server, instance=instance, token=READER, **options) as (page, faults):
        faults.expected += ["404", "403"]
        for path in paths:
            page.goto(f"/i/{instance}/ui{path}")
            assert overflow(page) == [], path
