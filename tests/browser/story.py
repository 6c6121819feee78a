"""A night on call, by real clicks: `python -m tests.browser.story FOLDER`.

A receiver breaks, health turns red and says why, 200 jobs die, the dashboard groups them, a dry run says 200, they are
retried at 50 a second and all delivered, health is green, the log has it; then a bulk cancel is undone, and that undo
undone. Each step has a picture, and a fact that is checked.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
from playwright.sync_api import Page, expect

from tests.browser.chromium import chromium
from tests.browser.operated import Operated, operated
from tests.browser.visits import answer, go, visiting
from tests.waiting import wait_until

DEAD: Final = 200
RATE: Final = 50
PATHS: Final = {"payments:capture": 120, "invoices:send": 80}
BROKEN: Final[dict[str, dict[str, Any]]] = {
    "payments:capture": {"status": 500, "body": "ConnectionError: card processor at 10.0.0.7:443 does not answer"},
    "invoices:send": {"status": 500, "body": "OperationalError: too many connections for role app"},
}
RETRY: Final = {"maxRetries": 1, "baseMs": 1_000, "backoff": "linear"}
PATIENCE_MS: Final = 30_000


class Story:
    """Tells the steps, one after another, with a picture of each."""

    def __init__(self, page: Page, server: Operated, folder: Path) -> None:
        self.page, self.server, self._folder = page, server, folder
        self.told = 0
        self._start = time.monotonic()

    def status(self) -> Any:
        return self.server.ask("/status")

    def step(self, name: str, fact: object) -> None:
        """Keep a picture, and say what was found to be so."""
        self.told += 1
        self.page.screenshot(path=self._folder / f"{self.told:02}-{name}.png")
        click.echo(f"{time.monotonic() - self._start:5.1f} s  {self.told:2}  {name}: {fact}")

    def see(self, place: str, words: str | re.Pattern[str]) -> None:
        """Wait until a part of the page says so: it follows what happens without a reload."""
        expect(self.page.locator(place)).to_contain_text(words, timeout=PATIENCE_MS)


def tell(story: Story) -> None:
    _all_is_well(story)
    _it_breaks(story)
    _they_die(story)
    _they_are_looked_at(story)
    _they_are_retried(story)
    _it_is_well_again(story)
    _a_slip_is_undone(story)


def _all_is_well(story: Story) -> None:
    schedule(story.server, dict.fromkeys(PATHS, 10), "well")
    wait_until(lambda: sum(story.server.came().values()) == 20)
    story.page.reload()
    story.see("#health", "Healthy")
    story.step("all-is-well", f"health {story.status()['health']}, callbacks {story.server.came()}")


def _it_breaks(story: Story) -> None:
    story.server.answers(**BROKEN)
    schedule(story.server, PATHS, "night")
    story.see("#health", re.compile("look|trouble"))
    story.see("#why", re.compile("card processor|too many connections"))
    story.step("the-receiver-breaks", [one["code"] for one in story.status()["reasons"]])


def _they_die(story: Story) -> None:
    wait_until(lambda: story.status()["dead"] == DEAD)
    story.see("#health", "In trouble")
    story.see("#why", f"{DEAD} jobs died of failing callbacks")
    status = story.status()
    assert status["health"] == "red", status
    story.step("health-is-red", [f"{one['code']}: {one['message']}" for one in status["reasons"]])


def _they_are_looked_at(story: Story) -> None:
    page = story.page
    go(page, "Dead letters")
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(len(PATHS))
    for path, count in PATHS.items():
        row = rows.filter(has_text=path)
        expect(row).to_contain_text(str(count))
        expect(row).to_contain_text(BROKEN[path]["body"])
    story.step("grouped-by-reason-and-path", rows.all_inner_texts())
    rows.filter(has_text="invoices:send").get_by_role("link").first.click()
    expect(page.locator("#list tbody tr")).to_have_count(50)
    story.step("one-group", page.get_by_role("heading", level=1).inner_text())
    page.go_back()


def _they_are_retried(story: Story) -> None:
    page = story.page
    story.server.answers()  # somebody has repaired the receiver
    page.get_by_role("link", name="Retry all").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"A dry run matches {DEAD} dead letters.")
    assert story.status()["dead"] == DEAD, "a dry run does nothing"
    story.step("a-dry-run-says", page.get_by_role("dialog").locator("p").all_inner_texts())
    begun = time.monotonic()
    words = answer(page, f"Retry {DEAD} jobs", Jobs_a_second=str(RATE))
    story.see("#progress", re.compile(rf"[1-9]\d* of {DEAD} retried"))
    story.step("they-are-retried", words)
    story.see("#progress", f"{DEAD} of {DEAD} retried")
    wait_until(lambda: story.status()["backlog"] == story.status()["inFlight"] == 0)
    took = time.monotonic() - begun
    assert took > DEAD / RATE - 1.5, f"faster than {RATE} a second: {took:.1f} s"
    came = story.server.came()
    delivered = {path: came[f"{path} 200"] - 10 for path in PATHS}
    assert delivered == PATHS, came
    story.step("all-are-delivered", f"{delivered} within {took:.1f} s")


def _it_is_well_again(story: Story) -> None:
    page = story.page
    go(page, "Overview")
    story.see("#health", "Healthy")
    status = story.status()
    assert (status["health"], status["dead"]) == ("green", 0), status
    story.step("health-is-green", f"health {status['health']}, dead {status['dead']}")
    go(page, "Audit log")
    first = page.locator("#list tbody tr").first
    expect(first).to_contain_text("operator retried dead letters in bulk")
    expect(first).to_contain_text(str(DEAD))
    entry = story.server.ask("/audit")["actions"][0]
    assert (entry["action"], entry["by"]["via"], entry["by"]["token"]) == ("dead_retry_all", "dashboard", "operator")
    story.step("the-log-has-it", first.inner_text())


def _a_slip_is_undone(story: Story) -> None:
    page = story.page
    story.server.answers(**BROKEN)
    schedule(story.server, {"invoices:send": 40}, "slip")
    wait_until(lambda: story.status()["dead"] == 40)
    go(page, "Dead letters")
    story.see("#list", "invoices:send")
    before = letters(story.server)
    page.locator("#list tbody tr").get_by_role("link", name="Cancel").click()
    said = answer(page, "Cancel 40 jobs")
    assert story.status()["dead"] == 0
    page.reload()
    story.see("#undo", "The time to undo it ends in 9m")
    story.step("a-bulk-cancel", said)
    page.locator("#undo").get_by_role("link", name="Undo").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("40")
    story.step("undo-asks", page.get_by_role("dialog").locator("p").all_inner_texts())
    said = answer(page, "Undo")
    assert letters(story.server) == before, "they are what they were"
    story.step("the-cancel-is-undone", said)
    page.locator("main > .said").get_by_role("link", name="Undo").click()
    said = answer(page, "Undo")
    assert story.status()["dead"] == 0
    story.step("the-undo-is-undone", said)


def schedule(server: Operated, counts: dict[str, int], name: str) -> None:
    """Have jobs fall due now, so many of each path."""
    server.schedule([
        {
            "id": f"{name}-{path.split(':')[0]}-{n:03d}", "functionPath": path, "delayMs": 0, "retry": RETRY,
            "args": {"order": n}, "labels": [f"tenant-{n % 7}"],
        }
        for path, count in counts.items()
        for n in range(count)
    ])  # fmt: skip


def letters(server: Operated) -> list[dict[str, Any]]:
    """Return the dead letters, whole."""
    found: list[dict[str, Any]] = server.ask("/dead?limit=1000")["records"]
    return sorted(found, key=lambda one: str(one["id"]))


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def main(folder: Path) -> None:
    """Tell it once, with pictures into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    run(folder, tell)


def run(folder: Path, telling: Callable[[Story], None]) -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        operated(Path(place)) as server,
        chromium() as browser,
        visiting(browser, server) as (page, _),
    ):
        telling(Story(page, server, folder))


if __name__ == "__main__":
    main()
