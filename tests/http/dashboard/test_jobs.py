"""Jobs on pages: what is shown of them, to whom, and what can be done with them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.http.dashboard.browsing import Browser, browsing, links_of, said_on
from tests.http.http_client import DUE, client_of, open_host
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.dashboard.overview import HELP
from tocsin.actors.scheduler.client.reads import LocalReads
from tocsin.actors.scheduler.model.health import LEVELS
from tocsin.actors.scheduler.model.records import HealthReason, Status
from tocsin.actors.scheduler.queries import candidates

pytestmark = pytest.mark.anyio

ADMIN, READER = "secret-of-admin", "secret-of-reader"
TOKENS = [f"root:admin:{ADMIN}", f"looker:read:{READER}"]
EVIL = "<script>alert('x')</script>"
ACTS = ("cancel", "run", "move", "retry", "cancel-dead")


@pytest.fixture
async def browser(host: ActorHost) -> AsyncIterator[Browser]:
    async with browsing(host.asgi(insecure=True)) as one:
        yield one


async def schedule(browser: Browser, place: str = "", **members: object) -> None:
    body = {"functionPath": "p", "scheduledFor": DUE, **members}
    answer = await browser.client.post(f"{place}/schedule", json=body)
    assert answer.status_code == 200, answer.text


# ---- What is shown -------------------------------------------------------------------------------


async def test_jobs_are_listed_filtered_and_paged(browser: Browser) -> None:
    jobs = [
        {"functionPath": f"path:{n % 2}", "scheduledFor": DUE + n, "id": f"job-{n:03}", "labels": [f"label-{n % 3}"]}
        for n in range(60)
    ]
    answer = await browser.client.post("/schedule/batch", json={"jobs": jobs})
    assert answer.status_code == 200

    page = await browser.visit("/ui/jobs")
    assert page.text.count("<tr>") == 51
    assert "job-000" in page.text
    following = next(link for link in links_of(page) if "cursor=" in link)
    rest = await browser.visit(following)
    assert rest.text.count("<tr>") == 11
    assert "job-059" in rest.text
    assert "10 jobs on this page, the last" in rest.text
    assert "/ui/jobs" in links_of(rest)

    filtered = await browser.visit("/ui/jobs?path=path:1&label=label-2&state=pending")
    assert filtered.text.count("<tr>") == 11
    assert 'value="path:1"' in filtered.text
    by_id = await browser.visit("/ui/jobs?order=id&path=path:0")
    assert by_id.text.count("<tr>") == 31


async def test_what_is_wrong_with_a_filter_is_said_on_the_page(browser: Browser) -> None:
    page = await browser.visit("/ui/jobs?pool=not+a+name")
    assert page.status_code == 200
    assert "must be 1 to 128 characters" in page.text
    assert 'value="not a name"' in page.text
    assert (await browser.visit("/ui/jobs?colour=red")).status_code == 400


async def test_empty_pages_say_so(browser: Browser) -> None:
    assert "There are no jobs." in (await browser.visit("/ui/jobs")).text
    assert "Nothing is scheduled." in (await browser.visit("/ui")).text
    assert "No job fits these filters." in (await browser.visit("/ui/jobs?pool=a")).text
    assert "There are no instances yet." in (await browser.visit("/ui/instances")).text


async def test_a_job_is_found_by_its_id(browser: Browser) -> None:
    await schedule(browser, id="invoice-42")
    found = await browser.visit("/ui/jobs?id=+invoice-42+")
    assert (found.status_code, found.headers["location"]) == (303, "/ui/jobs/invoice-42")
    missed = await browser.visit("/ui/jobs?id=invoice-43")
    assert missed.status_code == 404
    assert "there is no job &#39;invoice-43&#39;" in missed.text.lower()


async def test_args_are_shown_only_when_asked_for(browser: Browser) -> None:
    await schedule(browser, id="j", args={"card": "4000-0000"})
    for path in ("/ui", "/ui/jobs", "/ui/jobs/j", "/ui/jobs/j/cancel"):
        assert "4000-0000" not in (await browser.visit(path)).text
    assert "4000-0000" in (await browser.visit("/ui/jobs/j?args=1")).text


async def test_why_history_and_error_of_a_dead_job_are_shown(browser: Browser) -> None:
    async with open_host() as (host, _), browsing(host.asgi(insecure=True)) as browser:
        await schedule(browser, id="d", functionPath="answer:410", scheduledFor=1_700_000_000_000)
        while (await browser.client.get("/get?id=d")).json()["record"]["state"] != "dead":
            pass
        page = await browser.visit("/ui/jobs/d")
        assert "Why it is dead" in page.text
        assert "HTTP 410" in page.text
        assert page.text.count('class="state dead"') == 2  # of the job, and of its attempt
        assert "/ui/jobs/d/retry" in links_of(page)
        assert "/ui/jobs/d/cancel" not in links_of(page)


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        ({"maxAttempts": 2}, "2 retries, after 30s and then twice as long each time, at most 1h"),
        ({"maxRetries": 1, "backoff": "linear", "baseMs": 1000}, "1 retry, after 1s and then as much longer each"),
        ({"maxAttempts": 0}, "never"),
        (None, "5 retries, after 30s and then twice as long each time, at most 1h"),
    ],
)
async def test_the_retries_of_a_job_are_told_by_whichever_name_they_were_asked_for(
    browser: Browser, retry: dict[str, object] | None, words: str
) -> None:
    await schedule(browser, **{"id": "r", "retry": retry} if retry is not None else {"id": "r"})

    assert f"<dt>Retries</dt><dd>{words}" in (await browser.visit("/ui/jobs/r")).text


async def test_a_job_shows_the_shard_key_by_which_it_has_turns(browser: Browser) -> None:
    await schedule(browser, id="s", pool="gpu", shardKey="customer <7>")
    assert "<dt>Shard key</dt><dd>customer &lt;7&gt;</dd>" in (await browser.visit("/ui/jobs/s")).text


async def test_what_is_oldest_says_where_it_waits_and_why(browser: Browser) -> None:
    for n in range(3):
        await schedule(browser, id=f"v{n}", queue="video", pool="gpu", scheduledFor=1_700_000_000_000 + n)

    page = await browser.visit("/ui")

    assert page.text.count("no claim waits for queue video on this host") == 1, "of the first"
    assert page.text.count(">queue video</a>") == 3
    assert page.text.count(">pool gpu</a>") == 3


async def test_a_reason_of_health_leads_to_the_page_that_helps_and_commands_in_it_are_code(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [HealthReason("DEAD_GROWING", "5 died of <i>; see `tocsin dead ls`, then", 1), HealthReason("X", "odd `", 1)]
    status = LocalReads.status

    async def unwell(reads: LocalReads) -> Status:
        return msgspec.structs.replace(await status(reads), health="amber", reasons=told)

    monkeypatch.setattr(LocalReads, "status", unwell)
    page = await browser.visit("/ui")

    assert "5 died of &lt;i&gt;; see <code>tocsin dead ls</code>, then</span>" in page.text
    assert '<a href="/ui/dead">Dead letters</a> <span class="soft">since' in page.text
    assert HELP.keys() <= LEVELS.keys()
    for _, path, _, filters in HELP.values():
        assert (await browser.client.get(f"/ui{path}", params=filters)).status_code == 200


async def test_a_slip_in_the_name_of_an_instance_is_seen(browser: Browser) -> None:
    await schedule(browser, id="there")

    slip, there = await browser.visit("/i/nosuch/ui"), await browser.visit("/ui")

    assert "There is nothing in this instance yet" in slip.text
    assert "Healthy" not in slip.text
    assert "Healthy" in there.text
    assert (await browser.client.get("/i/nosuch/status")).json()["known"] is False
    assert "known" not in (await browser.client.get("/status")).json()
    assert len((await browser.client.get("/instances")).json()["instances"]) == 1, "a look makes none"


async def test_a_chain_is_shown_as_it_is_linked(browser: Browser) -> None:
    await schedule(browser, id="first", then=[{"functionPath": "second", "then": [{"functionPath": "third"}]}])
    page = await browser.visit("/ui/jobs/first")
    assert page.text.index('class="depth-0"') < page.text.index(">second<") < page.text.index('class="depth-1"')


async def test_nothing_that_users_wrote_becomes_markup(browser: Browser) -> None:
    await schedule(browser, id="evil", functionPath=EVIL, args={"a": EVIL})
    await browser.client.put("/schedules/s", json={"everyMs": 60_000, "functionPath": EVIL})
    pages = ["/ui", "/ui/jobs", "/ui/jobs/evil?args=1", "/ui/jobs/evil/cancel", f"/ui/jobs?pool={EVIL}", f"/ui/{EVIL}"]
    for path in (*pages, "/i/<script>alert('x')/ui", f"/ui/jobs?id={EVIL}", f"/ui/instances?name={EVIL}"):
        page = await browser.visit(path)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "<script>" not in page.text, path
        assert "&lt;script&gt;alert(" in page.text, path


async def test_an_overview_of_too_many_lines_to_merge_says_so(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "LINES_MERGED", 1)
    for pool in ("a", "b", "c"):
        await schedule(browser, pool=pool)
    page = await browser.visit("/ui")
    assert page.status_code == 200
    assert "pool" in page.text.split('id="next"')[1].split("</div>")[0]


async def test_an_instant_beyond_the_calendar_is_shown_as_it_is(browser: Browser) -> None:
    await schedule(browser, id="late", scheduledFor=999_999_999_999_999)
    assert "999999999999999 ms" in (await browser.visit("/ui/jobs/late")).text


async def test_every_link_leads_somewhere_also_under_a_path_and_in_an_instance(host: ActorHost) -> None:
    app = host.asgi(insecure=True)

    async def mounted(scope: object, receive: object, send: object) -> None:
        await app({**scope, "root_path": "/ops/jobs"}, receive, send)  # type: ignore[dict-item, arg-type]

    for root, served in (("", app), ("/ops/jobs", mounted)):
        for place in ("", "/i/tenant-a"):
            async with browsing(served) as browser:
                here = f"{root}{place}"
                await schedule(browser, here, id=f"j{len(here)}", pool="a", queue="q", labels=["x"])
                seen: set[str] = set()
                todo = {f"{here}/ui"}
                while todo - seen:
                    path = (todo - seen).pop()
                    seen.add(path)
                    page = await browser.visit(path)
                    assert page.status_code == 200, path
                    assert path.startswith(f"{root}/"), path
                    if page.headers["content-type"].startswith("text/html") and "/login" not in path:
                        todo |= links_of(page)
                assert {f"{here}/ui/jobs", f"{here}/ui/jobs/j{len(here)}/cancel", f"{root}/ui"} <= seen


# ---- Instances -----------------------------------------------------------------------------------


async def test_instances_are_those_that_the_caller_may_see(host: ActorHost) -> None:
    limited = ["eu:admin@eu-*:secret-of-europe", f"root:admin:{ADMIN}", f"looker:read:{READER}"]
    async with client_of(host.asgi(tokens=TOKENS)) as client:
        for name in ("eu-1", "eu-2", "us-1"):
            job, header = {"functionPath": "p", "scheduledFor": DUE}, {"authorization": f"Bearer {ADMIN}"}
            answer = await client.post(f"/i/{name}/schedule", json=job, headers=header)
            assert answer.status_code == 200
    async with browsing(host.asgi(tokens=limited)) as browser:
        await browser.log_in("secret-of-europe")
        page = await browser.visit("/ui/instances")
        assert {"/i/eu-1/ui", "/i/eu-2/ui"} <= links_of(page)
        assert "us-1" not in page.text
        assert 'class="badge"' not in page.text
        await browser.log_in(ADMIN)
        assert "/i/us-1/ui" in links_of(await browser.visit("/ui/instances"))
        await browser.log_in(READER)
        page = await browser.visit("/ui/instances")
        assert "needs the scope admin" in page.text
        assert "eu-1" not in page.text
        there = await browser.visit("/ui/instances?name=us-1")
        assert there.headers["location"] == "/i/us-1/ui"


# ---- What can be done ----------------------------------------------------------------------------


async def test_a_job_is_cancelled_after_a_question_and_the_next_page_says_so_once(browser: Browser) -> None:
    await schedule(browser, id="j")
    question = await browser.visit("/ui/jobs/j/cancel")
    assert "Cancel this job?" in question.text
    assert (await browser.client.get("/get?id=j")).json()  # asking does nothing

    done = await browser.send("/ui/jobs/j/cancel", question)

    assert (done.status_code, done.headers["location"]) == (303, "/ui/jobs")
    assert (await browser.client.get("/get?id=j")).json() == {}
    assert said_on(await browser.visit("/ui/jobs")) == "Cancelled j."
    assert said_on(await browser.visit("/ui/jobs")) == ""
    again = await browser.send("/ui/jobs/j/cancel", question, once="")  # as from another process
    assert again.status_code == 303
    assert "nothing was cancelled" in said_on(await browser.visit("/ui/jobs"))


async def test_all_jobs_of_a_filter_are_cancelled_after_a_dry_run_and_that_is_undone(browser: Browser) -> None:
    for n in range(3):
        await schedule(browser, id=f"r{n}", labels=["red"], functionPath=f"p:{n % 2}")
    await schedule(browser, id="blue", labels=["blue"])
    offered = "/ui/cancel-jobs?label=red"
    assert offered in links_of(await browser.visit("/ui/jobs?label=red"))
    for narrower in ("", "?label=red&state=pending", "?queue=q", "?label=none"):
        assert "cancel-jobs" not in (await browser.visit(f"/ui/jobs{narrower}")).text
    assert (await browser.visit("/ui/cancel-jobs")).status_code == 400, "all of an instance is not a filter"

    question = await browser.visit(offered)
    assert "A dry run matches 3 jobs" in question.text
    assert len((await browser.client.get("/list")).json()["records"]) == 4
    done = await browser.visit((await browser.send(offered, question)).headers["location"])

    assert said_on(done) == "3 jobs with the label red cancelled."
    assert [one["id"] for one in (await browser.client.get("/list")).json()["records"]] == ["blue"]
    undo = next(one for one in links_of(done) if "/undo/" in one)
    later = await browser.visit("/ui/jobs")
    assert "somebody cancelled 3 jobs with the label red" in later.text
    assert "/undo/" not in (await browser.visit("/ui/dead")).text, "these are no dead letters"
    undone = await browser.visit((await browser.send(undo)).headers["location"])
    assert said_on(undone) == "Undone: 3 of 3 put back."
    assert "undid somebody&#39;s cancel of 3 jobs with the label red" in (await browser.visit("/ui/jobs")).text
    assert len((await browser.client.get("/list")).json()["records"]) == 4


async def test_a_job_is_moved_and_what_is_typed_wrong_is_asked_again(browser: Browser) -> None:
    await schedule(browser, id="j", queue="q")
    for wrong in ("soon", "2027-01-31T09:00", "-5m", "5 fortnights", "12"):
        again = await browser.send("/ui/jobs/j/move", when=wrong)
        assert again.status_code == 200
        assert 'class="wrong"' in again.text
        assert f'value="{wrong}"' in again.text
    done = await browser.send("/ui/jobs/j/move", when="2031-01-31T09:00Z")
    assert (done.status_code, done.headers["location"]) == (303, "/ui/jobs/j")
    assert (await browser.client.get("/get?id=j")).json()["record"]["nextAttemptAt"] == 1_927_616_400_000
    assert "2031-01-31 09:00:00 UTC" in said_on(await browser.visit("/ui/jobs/j"))
    await browser.send("/ui/jobs/j/run")
    assert (await browser.client.get("/get?id=j")).json()["record"]["state"] == "waiting"


async def test_a_dead_job_is_retried_or_cancelled(browser: Browser) -> None:
    for id, act, state in (("a", "retry", "waiting"), ("b", "cancel-dead", None)):
        await schedule(browser, id=id, queue="q", scheduledFor=1_700_000_000_000, retry={"maxRetries": 0})
        job = (await browser.client.post("/queues/q/claim", json={"waitMs": 0})).json()["jobs"][0]
        end = {"id": id, "lease": job["lease"], "ok": False, "error": "no"}
        await browser.client.post("/complete", json=end)
        assert (await browser.client.get(f"/get?id={id}")).json()["record"]["state"] == "dead"
        assert (await browser.send(f"/ui/jobs/{id}/{act}")).status_code == 303
        record = (await browser.client.get(f"/get?id={id}")).json().get("record")
        assert (record and record["state"]) == state
        if record:
            await browser.client.post("/cancel", json={"id": id})


async def test_who_may_only_look_is_offered_nothing_and_can_do_nothing(host: ActorHost) -> None:
    async with browsing(host.asgi(tokens=TOKENS)) as browser:
        await browser.log_in(ADMIN)
        job = {"functionPath": "p", "scheduledFor": DUE, "id": "j"}
        answer = await browser.client.post("/schedule", json=job, headers={"authorization": f"Bearer {ADMIN}"})
        assert answer.status_code == 200
        questions = {act: await browser.visit(f"/ui/jobs/j/{act}") for act in ACTS}
        assert "/ui/jobs/j/cancel" in links_of(await browser.visit("/ui/jobs/j"))
        await browser.log_in(READER)
        page = await browser.visit("/ui/jobs/j")
        assert page.status_code == 200
        assert not [link for link in links_of(page) if link.rpartition("/")[2] in ACTS]
        for act in ACTS:
            assert (await browser.visit(f"/ui/jobs/j/{act}")).status_code == 403
            refused = await browser.send(f"/ui/jobs/j/{act}", questions[act], when="5m")
            assert refused.status_code == 403
            assert "that needs the scope operate" in refused.text
        record = (await browser.client.get("/get?id=j")).json()["record"]
        assert (record["state"], record["nextAttemptAt"]) == ("pending", DUE)


async def test_an_apps_rule_decides_about_each_act(host: ActorHost) -> None:
    async def rule(_: object, action: str, instance: str, resource: str | None) -> bool:
        return (action, instance, resource) != ("cancel", "default", "mine")

    async with browsing(host.asgi(authorize=rule)) as browser:
        for id in ("mine", "yours"):
            await schedule(browser, id=id)
        assert "/ui/jobs/mine/cancel" not in links_of(await browser.visit("/ui/jobs/mine"))
        assert "/ui/jobs/yours/cancel" in links_of(await browser.visit("/ui/jobs/yours"))
        question = await browser.visit("/ui/jobs/yours/cancel")
        assert (await browser.send("/ui/jobs/mine/cancel", question)).status_code == 403
        assert (await browser.send("/ui/jobs/yours/cancel", question)).status_code == 303


async def test_nothing_is_done_by_get_or_without_the_mark_of_the_browser(browser: Browser) -> None:
    await schedule(browser, id="j")
    await browser.visit("/ui/jobs/j/cancel")
    for headers in ({"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "same-site"}, {}):
        answer = await browser.client.post("/ui/jobs/j/cancel", data={"form": "0" * 32}, headers=headers)
        assert answer.status_code == 403
    answer = await browser.client.post("/ui/jobs/j/cancel", json={}, headers={"sec-fetch-site": "same-origin"})
    assert answer.status_code == 415
    assert (await browser.client.get("/get?id=j")).json()
    answer = await browser.send("/ui/jobs", await browser.visit("/ui/jobs/j/cancel"))
    assert answer.status_code == 405


async def test_words_of_somebody_else_are_not_shown_as_said(browser: Browser) -> None:
    await schedule(browser, id="j")
    page = await browser.client.get("/ui/jobs", headers={"cookie": "tocsin-said=not-base64-at-all%%"})
    assert page.status_code == 200
    assert said_on(page) == ""


async def test_what_is_done_here_is_noted_as_done_here_and_by_whom(host: ActorHost) -> None:
    async with browsing(host.asgi(tokens=TOKENS)) as browser:
        await host.scheduler().run_at(DUE, "p", id="j")
        await browser.log_in(ADMIN)
        await browser.send("/ui/jobs/j/move", when="2031-01-31T09:00Z")
        await browser.send("/ui/jobs/j/cancel")
    noted = (await host.scheduler().audit()).actions
    assert [(one.action, one.about, one.by.via, one.by.token) for one in noted] == [
        ("cancel", "j", "dashboard", "root"),
        ("reschedule", "j", "dashboard", "root"),
    ]
