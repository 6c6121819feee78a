"""Pages of dead letters, schedules, queues, workers and pools: what they show, to whom, and what they do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import httpx
import pytest

from tests.http.dashboard.browsing import SAME, Browser, browsing, links_of, said_on
from tests.http.http_client import open_host
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.dashboard.letters import SHOWN

pytestmark = pytest.mark.anyio

ADMIN, READER = "secret-of-admin", "secret-of-reader"
TOKENS = [f"root:admin:{ADMIN}", f"looker:read:{READER}"]
EVIL = "<script>alert('x')</script>&\"'"
ONCE = {"maxRetries": 0}
HOUR_MS = 3_600_000


class Site:
    """A host with a dashboard, an administrator's browser and a reader's, and the API for what pages do not do."""

    def __init__(self, host: ActorHost, admin: Browser, reader: Browser) -> None:
        self.host, self.admin, self.reader = host, admin, reader

    async def ask(self, method: str, path: str, **body: Any) -> Any:
        headers = {"authorization": f"Bearer {ADMIN}"}
        answer = await self.admin.client.request(method, path, json=body or None, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def die(self, *ids: str, path: str = "answer:500", place: str = "", **more: Any) -> None:
        """Have jobs die: their receiver answers as their path says, and they have no retries."""
        jobs = [{"id": id, "functionPath": path, "delayMs": 0, "retry": ONCE, **more} for id in ids]
        await self.ask("POST", f"{place}/schedule/batch", jobs=jobs)
        while (await self.ask("GET", f"{place}/status"))["inFlight"] or not await self._all_dead(ids, place):
            pass

    async def _all_dead(self, ids: tuple[str, ...], place: str) -> bool:
        records = (await self.ask("GET", f"{place}/dead?limit=1000"))["records"]
        return {record["id"] for record in records} >= set(ids)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with open_host() as (host, _):
        app = host.asgi(tokens=TOKENS)
        async with browsing(app) as admin, browsing(app) as reader:
            await admin.log_in(ADMIN)
            await reader.log_in(READER)
            yield Site(host, admin, reader)


PAGES = ("/dead", "/dead/letters", "/schedules", "/queues", "/workers", "/pools", "/audit")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("place", ["", "/i/nobody"])
async def test_a_page_of_nothing_says_what_would_be_there(site: Site, path: str, place: str) -> None:
    page = await site.reader.visit(f"{place}/ui{path}")

    assert page.status_code == 200
    assert 'class="empty"' in page.text
    assert not re.search(r"<(?:script|style)(?![^>]*src=)[^>]*>|\sstyle=|\son[a-z]+=", page.text), "refused by browsers"


# ---- Dead letters --------------------------------------------------------------------------------


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


# ---- Schedules -----------------------------------------------------------------------------------


async def test_a_schedule_is_shown_with_its_next_instants_where_it_lives(site: Site) -> None:
    definition = {"cron": "30 6 * * mon", "timezone": "Asia/Kolkata", "functionPath": "reports:send", "jitterMs": 1000}
    await site.ask("PUT", "/schedules/report", **definition, args={"secret": "of the args"})

    listed = await site.reader.visit("/ui/schedules")
    page = await site.reader.visit("/ui/schedules/report")

    assert "30 6 * * mon (Asia/Kolkata)" in unescape(listed.text)
    instants = re.findall(r"<td>(\w{3} [\d-]+ 06:30:00 IST)", page.text)
    assert len(instants) == 5
    assert all(one.startswith("Mon ") for one in instants)
    assert "of the args" not in page.text
    assert "of the args" in unescape((await site.reader.visit("/ui/schedules/report?args=1")).text)
    assert not re.search(r"data-ask", page.text), "a reader changes nothing"


@pytest.mark.parametrize("rule", [{"everyMs": HOUR_MS}, {"at": 1_900_000_000_000}, {"at": 999_999_999_999_999}])
async def test_schedules_of_every_rule_are_shown(site: Site, rule: dict[str, Any]) -> None:
    await site.ask("PUT", "/schedules/s", **rule, workflow="w", pool="p", priority=3, labels=["l"], overlap="queue")

    assert (await site.reader.visit("/ui/schedules")).status_code == 200
    page = await site.reader.visit("/ui/schedules/s")
    assert page.status_code == 200
    assert len(re.findall(r'<tr><td>[^<]*</td><td class="number">', page.text)) == (5 if "everyMs" in rule else 1)


async def test_a_schedule_is_paused_run_resumed_and_deleted(site: Site) -> None:
    await site.ask("PUT", "/instance", paused=True)
    await site.ask("PUT", "/schedules/s", everyMs=HOUR_MS, functionPath="p")

    async def act(verb: str, **fields: str) -> str:
        done = await site.admin.send(f"/ui/schedules/s/{verb}", **fields)
        assert done.status_code == 303, done.text
        return said_on(await site.admin.visit(done.headers["location"]))

    assert await act("pause") == "The schedule s is paused: its slots are skipped."
    assert (await site.ask("GET", "/schedules/s"))["state"] == "paused"
    assert (await act("trigger")).startswith("The schedule s runs now, as job ")
    page = await site.admin.visit("/ui/schedules/s")
    assert "live, triggered by hand" in page.text
    assert "1 occurrence is live." in page.text
    assert (await act("resume")).startswith("The schedule s is resumed. Its next slot is ")
    assert await act("delete", cancel="on") == "The schedule s is deleted, and its live occurrences are cancelled."
    assert (await site.ask("GET", "/list"))["records"] == []
    assert (await site.admin.visit("/ui/schedules/s")).status_code == 404


async def test_a_form_that_is_sent_twice_runs_a_schedule_once(site: Site) -> None:
    await site.ask("PUT", "/instance", paused=True)
    await site.ask("PUT", "/schedules/s", everyMs=HOUR_MS, functionPath="p", overlap="allow")
    question = await site.admin.visit("/ui/schedules/s/trigger")

    for _ in range(2):
        done = await site.admin.send("/ui/schedules/s/trigger", question)

    assert said_on(await site.admin.visit(done.headers["location"])) == "It was run by this form already."
    assert (await site.ask("GET", "/status"))["backlog"] == 1


# ---- Queues, workers, pools ----------------------------------------------------------------------


async def test_queues_and_workers_show_what_waits_and_who_works(site: Site) -> None:
    for n in range(3):
        await site.ask("POST", "/schedule", id=f"t{n}", functionPath="thumbs:make", queue="thumbs", delayMs=0)
    worker = {"id": "w-1", "name": "thumbs", "hostname": EVIL[:20]}
    job = (await site.ask("POST", "/queues/thumbs/claim", max=1, worker=worker))["jobs"][0]
    running = {"id": job["id"], "attempt": 1, "startedAt": 1, "functionPath": "thumbs:make"}
    snapshot = {**worker, "queues": "*", "exclude": ["mail"], "concurrency": 4, "status": "busy", "jobs": [running]}
    await site.ask("POST", "/workers", **snapshot, startedAt=1, heartbeatAt=1)

    queues, workers = await site.reader.visit("/ui/queues"), await site.reader.visit("/ui/workers")

    numbers = re.findall(r'<td class="number(?: opt)?">([^<]*)</td>', queues.text)
    assert numbers[:2] == ["2", "2"]
    assert numbers[-2:] == ["1", "0"]
    assert "/ui/jobs?queue=thumbs" in links_of(queues)
    assert "all but mail" in workers.text
    assert f"/ui/jobs/{job['id']}" in links_of(workers)
    assert EVIL[:20] not in workers.text
    assert EVIL[:20] in unescape(workers.text)


async def test_a_pool_shows_its_holders_and_is_paused_resumed_and_set(site: Site) -> None:
    await site.ask("POST", "/schedule", id="held", functionPath="p", queue="q", pool="smtp", delayMs=0)
    await site.ask("POST", "/schedule", id="queued", functionPath="p", queue="q", pool="smtp", delayMs=0)
    await site.ask("POST", "/queues/q/claim", max=1)

    page = await site.admin.visit("/ui/pools/smtp")
    assert "/ui/jobs/held" in links_of(page)
    assert "a worker has it" in page.text
    assert "/ui/pools/smtp/forget" not in links_of(page), "a job names it"

    async def act(verb: str, **fields: str) -> httpx.Response:
        return await site.admin.send(f"/ui/pools/smtp/{verb}", **fields)

    await act("pause")
    assert (await site.ask("GET", "/pool?name=smtp"))["paused"] is True
    assert ">paused<" in (await site.admin.visit("/ui/pools")).text
    await act("resume")
    assert (await act("cap", cap="seven")).status_code == 200  # asked again
    done = await act("cap", cap="7")
    assert (
        said_on(await site.admin.visit(done.headers["location"])) == "At most 7 jobs of the pool smtp run at once now."
    )
    pool = await site.ask("GET", "/pool?name=smtp")
    assert (pool["paused"], pool["maxConcurrency"]) == (False, 7)


async def test_a_pool_that_nobody_names_is_forgotten(site: Site) -> None:
    await site.ask("PUT", "/pool", name="old", maxConcurrency=3)
    assert "/ui/pools/old/forget" in links_of(await site.admin.visit("/ui/pools/old"))

    done = await site.admin.send("/ui/pools/old/forget")

    assert said_on(await site.admin.visit(done.headers["location"])) == "The pool old is forgotten."
    assert (await site.admin.visit("/ui/pools/old")).status_code == 404


# ---- Who may -------------------------------------------------------------------------------------

ACTS = (
    "/dead/retry", "/dead/cancel", "/dead/retry-all", "/dead/cancel-all", "/undo/x", "/schedules/s/pause",
    "/schedules/s/resume", "/schedules/s/trigger", "/schedules/s/delete", "/pools/p/pause",
    "/pools/p/resume", "/pools/p/cap", "/pools/p/forget",
)  # fmt: skip


@pytest.mark.parametrize("path", ACTS)
async def test_a_reader_is_neither_asked_nor_heard_and_nor_is_another_site(site: Site, path: str) -> None:
    await site.ask("PUT", "/schedules/s", everyMs=HOUR_MS, functionPath="p")
    await site.ask("PUT", "/pool", name="p", maxConcurrency=3)
    await site.die("a")
    before = await site.ask("GET", "/status"), await site.ask("GET", "/schedules/s"), await site.ask("GET", "/dead")
    form = {"ids": "a", "rate": "5", "key": "k", "cap": "5"}

    page = await site.reader.visit("/ui/pools")
    assert (await site.reader.visit(f"/ui{path}")).status_code == 403
    answer = await site.reader.send(f"/ui{path}", page, **form)
    assert answer.status_code == 403
    unmarked = await site.admin.client.post(f"/ui{path}", data=form, headers=SAME)
    assert unmarked.status_code == 403
    elsewhere = await site.admin.client.post(f"/ui{path}", data=form, headers={"sec-fetch-site": "cross-site"})
    assert elsewhere.status_code in (401, 403)

    after = await site.ask("GET", "/status"), await site.ask("GET", "/schedules/s"), await site.ask("GET", "/dead")
    assert after == before


# ---- The audit log -------------------------------------------------------------------------------


async def test_the_log_says_who_did_what_and_leads_there(site: Site) -> None:
    await site.die("a")
    await site.ask("PUT", "/pool", name="smtp", maxConcurrency=3)
    await site.ask("PUT", "/schedules/s", everyMs=HOUR_MS, functionPath="p")
    await site.ask("POST", "/schedules/s/pause")
    await site.admin.send("/ui/pools/smtp/pause")
    retry = await site.admin.visit("/ui/dead/retry-all")
    await site.admin.send("/ui/dead/retry-all", retry, rate="5")

    page = await site.reader.visit("/ui/audit")

    text = re.sub(r"<[^>]+>|\s+", " ", unescape(page.text))
    for words in (
        "root paused a pool",
        "root set a pool",
        "root paused a schedule",
        "root retried dead letters in bulk",
    ):
        assert words in re.sub(r" +", " ", text)
    assert {"/ui/pools/smtp", "/ui/schedules/s"} <= links_of(page)
    assert any(one.startswith("/ui/dead/redrives/") for one in links_of(page))
    assert ADMIN not in page.text
    assert "No action fits." in (await site.reader.visit("/ui/audit?who=nobody")).text
    assert "paused a pool" in (await site.reader.visit("/ui/audit?who=dashboard")).text


async def test_a_paused_pool_and_schedule_say_by_whom(site: Site) -> None:
    await site.ask("PUT", "/pool", name="smtp", paused=True)
    await site.ask("PUT", "/schedules/s", everyMs=HOUR_MS, functionPath="p")
    await site.ask("POST", "/schedules/s/pause")

    for path in ("/ui/pools/smtp", "/ui/schedules/s"):
        assert "Paused by root" in (await site.reader.visit(path)).text


async def test_a_long_log_has_pages(site: Site) -> None:
    for n in range(60):
        await site.ask("PUT", "/pool", name=f"p{n}", maxConcurrency=3)

    first = await site.reader.visit("/ui/audit?action=set_pool")
    second = await site.reader.visit(next(one for one in links_of(first) if "cursor=" in one))

    pools = [set(re.findall(r"/ui/pools/(p\d+)", page.text)) for page in (first, second)]
    assert [len(one) for one in pools] == [50, 10]
    assert len(pools[0] | pools[1]) == 60
