"""What a browser is made to send, or an impatient person sends: links of other pages, forged words, forms sent twice,
roots that are no ASCII, texts that are too long."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Iterator
from html import unescape
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.http.dashboard.browsing import browsing, links_of, said_on
from tests.http.dashboard.site import ADMIN, EVIL, HOUR_MS, TOKENS, Site
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.dashboard import once, pools
from tocsin.actors.http.dashboard.args import ARGS_MOST
from tocsin.actors.http.dashboard.once import Once
from tocsin.actors.http.responses import Reply
from tocsin.actors.http.sessions import LIFE_MS, Sessions
from tocsin.actors.http.tokens import parse_token

pytestmark = pytest.mark.anyio


def said(**members: Any) -> dict[str, str]:
    """The cookie of what was done, as a server on another port of the same machine could set it."""
    return {"cookie": "tocsin-said=" + base64.urlsafe_b64encode(json.dumps(members).encode()).decode().rstrip("=")}


# ---- Words that were done ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "undo",
    [
        "javascript:alert(1)",
        "https://evil.example/ui/undo/a",
        "//evil.example/ui/undo/a",
        "/ui/logout",
        "/ui/undo/a?x=y",
    ],
)
async def test_forged_words_lead_nowhere(host: ActorHost, undo: str) -> None:
    async with browsing(host.asgi(insecure=True)) as browser:
        page = await browser.visit("/ui", **said(words=EVIL, undo=undo))
        assert said_on(page) == EVIL
        assert EVIL not in page.text
        assert undo not in unescape(page.text)
        page = await browser.visit("/ui", **said(words="Cancelled.", undo="/i/a/ui/undo/b-1"))
        assert "/i/a/ui/undo/b-1" in links_of(page)


async def test_words_that_are_too_long_for_a_cookie_are_cut_and_the_way_back_stays(site: Site) -> None:
    path = "\x01" * 480 + "é😀"
    await site.ask("POST", "/schedule", id="b", functionPath=path, queue="q", delayMs=0, retry={"maxRetries": 0})
    lease = (await site.ask("POST", "/queues/q/claim", max=1))["jobs"][0]["lease"]
    await site.ask("POST", "/complete", id="b", lease=lease, ok=False, error="x", retryable=False)
    question = await site.admin.client.get("/ui/dead/cancel-all", params={"path": path})

    done = await site.admin.send("/ui/dead/cancel-all", question)

    cookie = next(one for one in done.headers.get_list("set-cookie") if one.startswith("tocsin-said"))
    assert len(cookie.partition(";")[0]) < 4096
    page = await site.admin.visit(done.headers["location"])
    assert said_on(page).endswith("…")
    assert any("/ui/undo/" in one for one in links_of(page))


# ---- Forms sent twice ----------------------------------------------------------------------------


async def test_a_second_click_on_a_bulk_retry_does_not_double_its_pace(site: Site) -> None:
    await site.die("a", "b", "c")
    question = await site.admin.visit("/ui/dead/retry-all")

    first, second = await asyncio.gather(*(site.admin.send("/ui/dead/retry-all", question, rate="1") for _ in range(2)))

    assert first.headers["location"] == second.headers["location"]
    log = (await site.ask("GET", "/audit"))["actions"]
    assert len([one for one in log if one["action"] == "dead_retry_all"]) == 1
    other = await site.admin.send("/ui/dead/retry-all", question, rate="2")
    assert other.headers["location"] != first.headers["location"], "filled in otherwise it is another form"


async def test_a_form_is_done_once_also_where_the_first_click_is_hung_up_on() -> None:
    now, done = 0.0, 0
    going = asyncio.Event()

    async def work() -> Reply:
        nonlocal done
        await going.wait()
        done += 1
        return Reply(303, [], str(done).encode())

    forms = Once(lambda: now)
    mark = "0" * 32
    first = asyncio.create_task(forms.do(mark, {"a": "b"}, work))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(forms.do(mark, {"a": "b"}, work))
    going.set()
    assert (await second).body == b"1"
    assert (await forms.do(mark, {"a": "c"}, work)).body == b"2"
    now = once.KEPT_S
    assert (await forms.do(mark, {"a": "b"}, work)).body == b"3"
    assert len(forms._sent) == 1
    for name in ("", "x", "g" * 32):  # none of ours: nothing is kept
        await forms.do(name, {}, work)
    assert len(forms._sent) == 1


async def test_a_form_that_failed_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "MOST", 2)
    answers: Iterator[bytes | Exception] = iter([ValueError("no"), b"1", b"2", b"3", b"4"])
    forms = Once(lambda: 0.0)

    async def work() -> Reply:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return Reply(303, [], answer)

    async def send(number: int) -> bytes:
        return (await forms.do(f"{number:032}", {}, work)).body

    with pytest.raises(ValueError, match="no"):
        await send(1)
    assert [await send(n) for n in (1, 1, 2, 3)] == [b"1", b"1", b"2", b"3"]
    assert await send(1) == b"4", "the oldest are forgotten"


async def test_a_question_about_a_job_is_not_answered_for_the_next_one_of_its_id(site: Site) -> None:
    async def job() -> None:
        await site.ask("POST", "/schedule", id="j", functionPath="p", delayMs=HOUR_MS)

    await job()
    question = await site.admin.visit("/ui/jobs/j/cancel")
    await site.ask("POST", "/cancel", id="j")
    gone = await site.admin.send("/ui/jobs/j/cancel", question)
    assert "nothing was cancelled" in said_on(await site.admin.visit(gone.headers["location"]))
    await job()

    done = await site.admin.send("/ui/jobs/j/cancel", question, once="")

    assert "another job now" in said_on(await site.admin.visit(done.headers["location"]))
    assert (await site.ask("GET", "/get?id=j"))["record"]["state"] == "pending"


# ---- Where the app is ----------------------------------------------------------------------------


async def test_it_works_under_a_path_that_is_no_ascii(host: ActorHost) -> None:
    app = Starlette(routes=[Mount("/задачи и", host.asgi(tokens=TOKENS))])
    root = "/%D0%B7%D0%B0%D0%B4%D0%B0%D1%87%D0%B8%20%D0%B8"
    async with browsing(app) as browser:
        page = await browser.visit(f"{root}/ui/jobs?state=waiting")
        came = await browser.send(f"{root}/ui/login", page, token=ADMIN)
        assert came.headers["location"] == f"{root}/ui/jobs?state=waiting"
        assert f"Path={root};" in next(one for one in came.headers.get_list("set-cookie") if "session" in one)
        page = await browser.visit(came.headers["location"])
        assert page.status_code == 200
        assert f"{root}/ui/dead" in links_of(page)
        left = await browser.send(f"{root}/ui/logout", page)
        assert left.headers["location"] == f"{root}/ui/login"


@pytest.mark.parametrize(
    "path", ["/ui/..%2f..%2flogout?a=b", "/ui/%2e%2e/logout", "/i/a/ui/jobs/..%2f..%2f..%2f..%2flogout", "/i/..%2fui/x"]
)
async def test_a_link_makes_no_browser_ask_for_what_is_no_page_of_the_dashboard(host: ActorHost, path: str) -> None:
    """A page of ours that leads there would be believed by the app around it."""
    app = Starlette(routes=[Mount("/jobs", host.asgi(tokens=TOKENS))])
    async with browsing(app) as browser:
        url = httpx.URL("http://localhost").copy_with(raw_path=f"/jobs{path}".encode())
        for headers in ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, {}):
            page = await browser.client.get(url, headers=headers)
            assert "logout" not in page.text.replace("/jobs/ui/logout", ""), headers
            if "Paste a token" in page.text:
                came = await browser.send("/jobs/ui/login", page, token=ADMIN)
                assert came.headers["location"] == "/jobs/ui"
                browser.client.cookies.clear()
    async with browsing(host.asgi(tokens=TOKENS)) as browser:
        came = await browser.send("/ui/login", next="/ui/../status", token=ADMIN)
        assert came.headers["location"] == "/ui"


# ---- What is shown to whom -----------------------------------------------------------------------


async def test_slots_of_schedules_are_shown_only_to_whom_a_rule_lets_see_them(host: ActorHost) -> None:
    def rule(_: Any, action: str, *__: Any) -> bool:
        return action not in ("schedules.occurrences", "schedules.preview")

    async with browsing(host.asgi(authorize=rule)) as browser:
        await host.scheduler("default").schedules.put("s", "p", every="1h")
        await host.scheduler("default").schedules.trigger("s", "key")
        for path in ("/ui/schedules/s", "/ui/schedules"):
            page = await browser.visit(path)
            assert page.status_code == 200
            assert "/ui/jobs/run-" not in page.text
        assert "You may not see how its slots ended" in (await browser.visit("/ui/schedules/s")).text


async def test_args_that_grow_by_their_indentation_are_cut(site: Site) -> None:
    args: Any = [1] * 50_000
    for _ in range(60):
        args = [args]
    await site.ask("PUT", "/schedules/s", everyMs=HOUR_MS, functionPath="p", args=args)
    await site.ask("POST", "/schedule", id="j", functionPath="p", delayMs=HOUR_MS, args=args)
    for path in ("/ui/schedules/s", "/ui/jobs/j"):
        page = await site.admin.visit(f"{path}?args=1")
        assert page.status_code == 200
        assert "Cut off here" in page.text
        assert len(page.content) < 2 * ARGS_MOST


async def test_of_many_pools_and_queues_the_first_are_shown_and_the_others_are_found(site: Site) -> None:
    most = pools.SHOWN
    jobs = [
        {"functionPath": "p", "delayMs": HOUR_MS, **({"queue": f"q{n}"} if half else {"pool": f"pool{n}"})}
        for half in (False, True)
        for n in range(most + 3)
    ]
    jobs += [{"functionPath": "p", "delayMs": HOUR_MS, "queue": "z"} for _ in range(2)]
    await site.ask("POST", "/schedule/batch", jobs=jobs)

    page = await site.reader.visit("/ui/pools")
    assert page.text.count("/ui/pools/pool") == most
    assert "There are more" in page.text
    found = await site.reader.visit(f"/ui/pools?name=pool{most + 2}")
    assert found.headers["location"] == f"/ui/pools/pool{most + 2}"

    page = await site.reader.visit("/ui/queues")
    assert page.text.count("/ui/jobs?queue=") == most
    assert "There are 4 more" in page.text
    assert "/ui/jobs?queue=z" in links_of(page), "the longest are shown"


# ---- What anybody can make grow ------------------------------------------------------------------


async def test_methods_that_nobody_knows_are_counted_as_one(host: ActorHost) -> None:
    async with browsing(host.asgi(tokens=TOKENS)) as browser:
        for path in ("/status", "/ui", "/no/such/route"):
            for n in range(5):
                await browser.client.request(f"METHOD{n}", path)
        counts = (await browser.client.get("/metrics", headers={"authorization": f"Bearer {ADMIN}"})).text
    assert "METHOD" not in counts
    assert 'method="other",route="/status",status="405"} 5.0' in counts


def test_sessions_that_were_ended_are_looked_through_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, now = 0, 10**12

    class Ended(dict[str, int]):
        def items(self) -> Any:
            nonlocal looks
            looks += 1
            return super().items()

    sessions = Sessions(lambda: now, random.Random(1))
    token = parse_token(TOKENS[0])
    sessions._ended = Ended()
    sessions._look_at = 10
    cookies = [sessions.begin(token) for _ in range(40)]
    for one in cookies:
        sessions.end(one)
    assert all(sessions.find([token], one) is None for one in cookies)
    assert looks <= 1
    now += LIFE_MS
    sessions._look_at = 40
    sessions.end(sessions.begin(token))
    assert len(sessions._ended) == 1, "whose time is over are forgotten"
