"""Pages of schedules, queues, workers and pools, and of the log: what they show, to whom, and what they do."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx
import pytest

from tests.http.dashboard.browsing import SAME, links_of, said_on
from tests.http.dashboard.site import ADMIN, EVIL, HOUR_MS, Site

pytestmark = pytest.mark.anyio

PAGES = ("/dead", "/dead/letters", "/schedules", "/queues", "/workers", "/pools", "/groups", "/audit")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("place", ["", "/i/nobody"])
async def test_a_page_of_nothing_says_what_would_be_there(site: Site, path: str, place: str) -> None:
    page = await site.reader.visit(f"{place}/ui{path}")

    assert page.status_code == 200
    assert 'class="empty"' in page.text
    assert not re.search(r"<(?:script|style)(?![^>]*src=)[^>]*>|\sstyle=|\son[a-z]+=", page.text), "refused by browsers"


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

    done = await site.admin.send("/ui/schedules/s/trigger", question)
    done = await site.admin.send("/ui/schedules/s/trigger", question, once="")  # as to another process

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
    "/dead/retry", "/dead/cancel", "/dead/retry-all", "/dead/cancel-all", "/cancel-jobs", "/undo/x",
    "/schedules/s/pause",
    "/schedules/s/resume", "/schedules/s/trigger", "/schedules/s/delete", "/pools/p/pause",
    "/pools/p/resume", "/pools/p/cap", "/pools/p/forget", "/groups/g/cancel",
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


# ---- Groups --------------------------------------------------------------------------------------


async def test_a_group_says_what_it_waits_for_and_is_cancelled(site: Site) -> None:
    await site.ask("POST", "/groups", name="import", then=[{"functionPath": "import:done"}])
    for n in range(2):
        await site.ask("POST", "/schedule", id=f"m{n}", functionPath="p", delayMs=HOUR_MS, group="import")

    listed = await site.reader.visit("/ui/groups")
    one = await site.reader.visit("/ui/groups/import")
    member = await site.reader.visit("/ui/jobs/m0")

    assert "2 members still to end" in listed.text
    assert "It waits for: 2 members still to end." in one.text and "import:done" in one.text
    assert "/ui/jobs/m1" in one.text and "/ui/groups/import" in member.text
    assert not re.search("data-ask", one.text), "a reader changes nothing"
    assert "/ui/groups/import/cancel" in links_of(await site.admin.visit("/ui/groups/import"))
    done = await site.admin.send("/ui/groups/import/cancel")
    assert "being cancelled" in said_on(await site.admin.visit(done.headers["location"]))
    assert "2 members" not in (await site.reader.visit("/ui/groups")).text
