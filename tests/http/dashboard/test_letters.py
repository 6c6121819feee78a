"""Pages of dead letters: what they show, to whom, and what they do."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from tests.http.dashboard.browsing import browsing, links_of, said_on
from tests.http.dashboard.site import ADMIN, EVIL, ONCE, TOKENS, Site
from tocsin.actors.http.dashboard.letters import SHOWN

pytestmark = pytest.mark.anyio


async def test_what_a_receiver_said_is_shown_as_text(site: Site) -> None:
    await site.ask("POST", "/schedule", id="x", functionPath=EVIL, queue="q", delayMs=0, labels=["a"], retry=ONCE)
    claimed = (await site.ask("POST", "/queues/q/claim", max=1))["jobs"][0]
    await site.ask("POST", "/complete", id="x", lease=claimed["lease"], ok=False, error=EVIL, retryable=False)

    for path in ("/ui/dead", "/ui/dead/letters"):
        page = await site.admin.visit(path)
        assert EVIL not in page.text
        assert EVIL in unescape(page.text)


async def test_letters_are_found_by_path_reason_pool_and_label(site: Site) -> None:
    await site.die("a", "b", labels=["red"])
    await site.die("c", path="answer:410", pool="p")

    async def found(query: str) -> set[str]:
        page = await site.reader.visit(f"/ui/dead/letters?{query}")
        return set(re.findall(r'class="short id" title="([^"]*)"', page.text))

    assert await found("") == {"a", "b", "c"}
    assert await found("path=answer:500") == {"a", "b"}
    assert await found("reason=refused") == {"c"}
    assert await found("pool=p") == {"c"}
    assert await found("label=red") == {"a", "b"}
    assert await found("label=red&reason=refused") == set()


async def test_a_long_list_of_letters_has_pages(site: Site) -> None:
    ids = [f"j{n:03d}" for n in range(SHOWN + 5)]
    await site.die(*ids)

    first = await site.reader.visit("/ui/dead/letters?path=answer:500")
    second = await site.reader.visit(next(one for one in links_of(first) if "cursor=" in one))

    shown = [re.findall(r'class="short id" title="([^"]*)"', page.text) for page in (first, second)]
    assert [len(one) for one in shown] == [SHOWN, 5]
    assert sorted(shown[0] + shown[1]) == ids
    assert "path=answer%3A500" in next(one for one in links_of(first) if "cursor=" in one)


async def test_marked_letters_are_retried_and_others_are_not(site: Site) -> None:
    await site.die("a", "b", "c")
    await site.ask("PUT", "/instance", paused=True)

    question = await site.admin.visit("/ui/dead/retry?id=a&id=c&id=a&id=gone")
    assert "Retry 3 dead letters?" in question.text
    done = await site.admin.send("/ui/dead/retry", question)

    page = await site.admin.visit(done.headers["location"])
    assert said_on(page) == "2 dead letters retried. 1 had gone before."
    while (await site.ask("GET", "/status"))["dead"] > 1:
        pass
    assert {one["id"] for one in (await site.ask("GET", "/dead"))["records"]} == {"b"}
    assert {one["id"] for one in (await site.ask("GET", "/list"))["records"]} == {"a", "c"}


async def test_marked_letters_are_cancelled(site: Site) -> None:
    await site.die("a", "b")

    question = await site.admin.visit("/ui/dead/cancel?id=a")
    done = await site.admin.send("/ui/dead/cancel", question)

    assert said_on(await site.admin.visit(done.headers["location"])) == "1 dead letter cancelled."
    assert {one["id"] for one in (await site.ask("GET", "/dead"))["records"]} == {"b"}
    assert (await site.ask("GET", "/list"))["records"] == []


@pytest.mark.parametrize("verb", ["retry", "cancel"])
async def test_an_apps_rule_is_asked_about_each_letter_that_is_marked(site: Site, verb: str) -> None:
    await site.die("a", "b")
    asked: list[tuple[str, str | None]] = []

    def rule(caller: Any, action: str, instance: str, resource: str | None) -> bool:
        asked.append((action, resource))
        return resource != "b"

    async with browsing(site.host.asgi(tokens=TOKENS, authorize=rule)) as browser:
        await browser.log_in(ADMIN)
        question = await browser.visit(f"/ui/dead/{verb}?id=a&id=b")
        answer = await browser.send(f"/ui/dead/{verb}", question)

    assert answer.status_code == 403
    assert (f"dead_{verb}", "a") in asked
    assert (await site.ask("GET", "/status"))["dead"] == 2, "all of them or none"


async def test_nothing_marked_is_said_and_does_nothing(site: Site) -> None:
    await site.die("a")
    for verb in ("retry", "cancel"):
        page = await site.admin.visit(f"/ui/dead/{verb}")
        assert (page.status_code, "Nothing is marked" in page.text) == (400, True)
    assert (await site.ask("GET", "/status"))["dead"] == 1


async def test_a_bulk_retry_says_how_many_first_and_then_how_far_it_has_come(site: Site) -> None:
    await site.die("a", "b")
    await site.die("c", path="answer:410")

    question = await site.admin.visit("/ui/dead/retry-all?path=answer:500")
    assert "A dry run matches 2 dead letters." in question.text
    assert (await site.ask("GET", "/audit"))["actions"] == [], "a question does nothing"
    done = await site.admin.send("/ui/dead/retry-all", question, rate="7")

    page = await site.reader.visit(done.headers["location"])
    assert "of 2 retried" in page.text
    assert "/stop" not in page.text, "a reader stops nothing"
    said = said_on(await site.admin.visit(done.headers["location"]))
    assert said == "2 dead letters of answer:500 will be retried, 7 a second."


@pytest.mark.parametrize("rate", ["0", "", "many", "-1", "1e3", "²", "9" * 30])
async def test_a_wrong_rate_is_said_beside_what_was_filled_in(site: Site, rate: str) -> None:
    await site.die("a")

    answer = await site.admin.send("/ui/dead/retry-all", rate=rate)

    assert answer.status_code == 200
    assert 'class="wrong"' in answer.text
    assert (await site.ask("GET", "/status"))["dead"] == 1


async def test_a_bulk_retry_is_stopped(site: Site) -> None:
    await site.die(*(f"j{n}" for n in range(30)))
    question = await site.admin.visit("/ui/dead/retry-all")
    address = (await site.admin.send("/ui/dead/retry-all", question, rate="1")).headers["location"]

    stopped = await site.admin.send(f"{address}/stop")

    page = await site.admin.visit(stopped.headers["location"])
    assert said_on(page) == "The bulk retry is stopped."
    assert "stopped</span>" in page.text
    assert said_on(await site.admin.visit((await site.admin.send(f"{address}/stop")).headers["location"])) == (
        "The bulk retry had ended."
    )


async def test_dead_letters_stand_in_groups_by_path_and_reason(site: Site) -> None:
    await site.die("a", "b", "c")
    await site.die("d", path="answer:410")

    page = await site.reader.visit("/ui/dead")

    rows = re.findall(r'title="(answer:\d+)".*?<td class="number">(\d+)</td>', page.text, re.DOTALL)
    assert rows == [("answer:500", "3"), ("answer:410", "1")]
    assert "/ui/dead/letters?path=answer%3A410&reason=refused" in links_of(page)
    assert not re.search("data-ask", page.text), "a reader changes nothing"
    assert "/ui/dead/cancel-all?path=answer%3A410&reason=refused" in links_of(await site.admin.visit("/ui/dead"))


async def test_a_group_is_cancelled_and_that_is_undone_and_the_undo_undone(site: Site) -> None:
    await site.die("a", "b")
    await site.die("c", path="answer:410")
    before = await site.ask("GET", "/dead")

    question = await site.admin.visit("/ui/dead/cancel-all?path=answer:500")
    assert "A dry run matches 2 dead letters." in question.text
    done = await site.admin.send("/ui/dead/cancel-all", question)
    page = await site.admin.visit(done.headers["location"])
    assert said_on(page) == "2 dead letters of answer:500 cancelled."
    assert {one["id"] for one in (await site.ask("GET", "/dead"))["records"]} == {"c"}
    undo = next(one for one in links_of(page) if "/undo/" in one)
    assert undo in links_of(await site.admin.visit("/ui/dead")), "also on a page that comes later"
    assert undo in links_of(await site.admin.visit("/ui/audit"))
    assert "/undo/" not in (await site.reader.visit("/ui/dead")).text
    await site.ask("PUT", "/pool", name="smtp", maxConcurrency=3)
    offered = [one for one in links_of(await site.admin.visit("/ui/dead")) if "/undo/" in one]
    assert offered == [undo], "what is done to pools is undone in the log"
    assert len([one for one in links_of(await site.admin.visit("/ui/audit")) if "/undo/" in one]) == 2

    undone = await site.admin.visit((await site.admin.send(undo)).headers["location"])

    assert said_on(undone) == "Undone: 2 of 2 put back."
    assert await site.ask("GET", "/dead") == before
    told = unescape((await site.admin.visit("/ui/dead")).text)
    assert re.search("root undid root's cancel of 2 dead letters of answer:500, <time.*>; 2 put back", told)
    assert (await site.admin.visit(undo)).status_code == 404, "it was undone already"
    again = re.search(r'<div class="said" .*?href="([^"]*/undo/[^"]*)"', undone.text, re.DOTALL)
    assert again is not None
    redone = await site.admin.visit((await site.admin.send(again[1])).headers["location"])
    assert said_on(redone) == "Undone: 2 of 2 put back."
    assert {one["id"] for one in (await site.ask("GET", "/dead"))["records"]} == {"c"}


async def test_marked_letters_that_were_cancelled_come_back(site: Site) -> None:
    await site.die("a", "b", "c")
    question = await site.admin.visit("/ui/dead/cancel?id=a&id=b")
    page = await site.admin.visit((await site.admin.send("/ui/dead/cancel", question)).headers["location"])

    await site.admin.send(next(one for one in links_of(page) if "/undo/" in one))

    assert {one["id"] for one in (await site.ask("GET", "/dead"))["records"]} == {"a", "b", "c"}


async def test_bulk_retries_that_go_on_are_shown_with_the_dead_letters(site: Site) -> None:
    await site.die(*(f"j{n}" for n in range(30)))
    question = await site.admin.visit("/ui/dead/retry-all")
    address = (await site.admin.send("/ui/dead/retry-all", question, rate="1")).headers["location"]

    assert address in links_of(await site.reader.visit("/ui/dead"))
    await site.admin.send(f"{address}/stop")
    assert address not in links_of(await site.reader.visit("/ui/dead"))
