"""Who sees the dashboard: sessions that stand for tokens, what ends them, and forms that are nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.http.dashboard.browsing import SAME, Browser, LaterClock, browsing, hidden_fields
from tests.http.http_client import open_host, refused
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.dashboard.headers import POLICY
from tocsin.actors.http.sessions import LIFE_MS
from tocsin.actors.scheduler.client.reads import LocalReads

pytestmark = pytest.mark.anyio

ADMIN, READER, LIMITED = "secret-of-admin", "secret-of-reader", "secret-of-limited"
TOKENS = [f"root:admin:{ADMIN}", f"looker:read:{READER}", f"eu:read@eu-*:{LIMITED}"]


@pytest.fixture
async def browser(host: ActorHost) -> AsyncIterator[Browser]:
    async with browsing(host.asgi(tokens=TOKENS)) as one:
        yield one


async def test_a_token_is_typed_in_once_and_a_cookie_stands_for_it(browser: Browser) -> None:
    page = await browser.visit("/ui")
    assert page.status_code == 401
    assert "Paste a token" in page.text
    assert "Overview" not in page.text

    came = await browser.send("/ui/login", page, token=f" {READER} ")

    assert (came.status_code, came.headers["location"]) == (303, "/ui")
    cookie = next(one for one in came.headers.get_list("set-cookie") if one.startswith("tocsin-session"))
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert READER not in cookie
    seen = await browser.visit("/ui")
    assert seen.status_code == 200
    assert "Logged in as looker" in seen.text
    assert READER not in seen.text
    assert (await browser.client.get("/status")).status_code == 200  # what reads, counts by the cookie too
    refused(await browser.client.get("/instances"), 403, "FORBIDDEN")  # with the scopes of its token


async def test_a_wrong_token_opens_nothing_and_is_not_shown(browser: Browser) -> None:
    answer = await browser.log_in("some-other-secret")
    assert answer.status_code == 401
    assert "not known" in answer.text
    assert "some-other-secret" not in answer.text
    assert (await browser.visit("/ui")).status_code == 401


async def test_a_session_opens_nothing_that_writes(browser: Browser) -> None:
    await browser.log_in(ADMIN)
    job = {"functionPath": "p", "delayMs": 0}
    refused(await browser.client.post("/schedule", json=job, headers=SAME), 401, "UNAUTHENTICATED")
    refused(await browser.client.request("DELETE", "/pool?name=a", headers=SAME), 401, "UNAUTHENTICATED")


@pytest.mark.parametrize(
    "headers", [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"origin": "http://localhost:3000"}]
)
async def test_pages_of_others_read_nothing_by_the_cookie(browser: Browser, headers: dict[str, str]) -> None:
    await browser.log_in(ADMIN)
    refused(await browser.client.get("/status", headers=headers), 401, "UNAUTHENTICATED")
    assert (await browser.client.get("/ui", headers=headers)).status_code == 401


async def test_one_callers_session_is_not_the_next_ones(browser: Browser) -> None:
    await browser.log_in(ADMIN)
    assert (await browser.client.get("/status")).status_code == 200
    browser.client.cookies.clear()
    refused(await browser.client.get("/status"), 401, "UNAUTHENTICATED")


async def test_a_header_counts_alone_where_there_is_one(browser: Browser) -> None:
    await browser.log_in(ADMIN)
    refused(await browser.client.get("/status", headers={"authorization": "Bearer wrong"}), 401, "UNAUTHENTICATED")


async def test_a_session_ends_with_its_token(host: ActorHost) -> None:
    tokens = list(TOKENS)
    async with browsing(host.asgi(tokens=lambda: tokens)) as browser:
        await browser.log_in(READER)
        assert (await browser.visit("/ui")).status_code == 200
        del tokens[1]
        assert (await browser.visit("/ui")).status_code == 401
        tokens.append("looker:read:another-secret-of-reader")
        assert (await browser.visit("/ui")).status_code == 401


async def test_a_session_ends_after_its_time() -> None:
    clock = LaterClock()
    async with open_host(clock=clock) as (host, _), browsing(host.asgi(tokens=TOKENS)) as browser:
        await browser.log_in(READER)
        assert (await browser.visit("/ui")).status_code == 200
        clock.later_ms = LIFE_MS - 60_000
        assert (await browser.visit("/ui")).status_code == 200
        clock.later_ms = LIFE_MS
        assert (await browser.visit("/ui")).status_code == 401


async def test_log_out_ends_it_here_also_for_whoever_has_the_cookie(browser: Browser) -> None:
    await browser.log_in(READER)
    cookies = dict(browser.client.cookies)
    left = await browser.send("/ui/logout", await browser.visit("/ui"))
    assert left.status_code == 303
    assert (await browser.visit("/ui")).status_code == 401
    browser.client.cookies.update(cookies)
    assert (await browser.visit("/ui")).status_code == 401


@pytest.mark.parametrize("changed", range(3))
async def test_a_forged_session_is_none(browser: Browser, changed: int) -> None:
    await browser.log_in(READER)
    name, value = next((name, value) for name, value in browser.client.cookies.items() if "session" in name)
    parts = value.split(".")
    parts[changed] = parts[changed][:-1] + ("0" if parts[changed][-1] != "0" else "1")
    browser.client.cookies.clear()
    browser.client.cookies.set(name, ".".join(parts), domain="localhost.local")
    assert (await browser.visit("/ui")).status_code == 401


async def test_a_link_on_another_site_leads_here_although_the_browser_keeps_its_cookie_back(browser: Browser) -> None:
    for site in ("cross-site", "same-site"):
        page = await browser.visit("/ui?a=b", sec_fetch_site=site, sec_fetch_mode="navigate", cookie="of-the-app=1")
        assert page.status_code == 401
        assert '<meta http-equiv="refresh" content="0; url=/ui?a=b">' in page.text
    page = await browser.visit("/ui?a=b", sec_fetch_site="same-origin")
    assert "Paste a token" in page.text


@pytest.mark.parametrize(
    ("wanted", "location"),
    [
        ("/i/eu-1/ui/jobs?state=dead", "/i/eu-1/ui/jobs?state=dead"),
        ("https://evil.example/ui", "/ui"),
        ("//evil.example/ui", "/ui"),
        ("/ui/\\evil.example", "/ui"),
        ("/ui\r\nx: y", "/ui"),
        ("/ui/login", "/ui"),
        ("/status", "/ui"),
    ],
)
async def test_a_login_leads_to_the_page_that_was_asked_for_and_to_no_other_site(
    browser: Browser, wanted: str, location: str
) -> None:
    came = await browser.send("/ui/login", token=READER, next=wanted)
    assert (came.status_code, came.headers["location"]) == (303, location)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    ],
)
async def test_a_form_of_another_site_does_nothing(browser: Browser, headers: dict[str, str]) -> None:
    form = hidden_fields(await browser.visit("/ui/login"))
    answer = await browser.client.post("/ui/login", data={**form, "token": ADMIN}, headers=headers)
    assert answer.status_code == 403
    assert "not sent by a page of this dashboard" in answer.text


@pytest.mark.parametrize("mark", [None, "", "0" * 32])
async def test_a_form_without_the_mark_of_its_browser_does_nothing(browser: Browser, mark: str | None) -> None:
    await browser.visit("/ui/login")
    form = {"token": ADMIN} if mark is None else {"token": ADMIN, "form": mark}
    answer = await browser.client.post("/ui/login", data=form, headers=SAME)
    assert answer.status_code == 403
    assert "older page" in answer.text


async def test_an_empty_cookie_marks_no_form(browser: Browser) -> None:
    headers = {**SAME, "cookie": "tocsin-form="}
    answer = await browser.client.post("/ui/login", data={"token": ADMIN, "form": ""}, headers=headers)
    assert answer.status_code == 403


async def test_over_https_cookies_come_back_over_https_only(host: ActorHost) -> None:
    for base, headers in (("https://tocsin.example", {}), ("http://tocsin.example", {"x-forwarded-proto": "https"})):
        async with browsing(host.asgi(tokens=TOKENS), base=base) as browser:
            page = await browser.client.get("/ui", headers=headers)
            assert page.headers["set-cookie"].endswith("; Secure")


async def test_two_servers_on_one_machine_do_not_log_each_other_out(host: ActorHost) -> None:
    async with browsing(host.asgi(tokens=TOKENS), base="http://127.0.0.1:8321") as browser:
        assert "tocsin-form-8321=" in (await browser.visit("/ui")).headers["set-cookie"]


async def test_a_limited_token_sees_its_instances_only(browser: Browser) -> None:
    await browser.log_in(LIMITED)
    assert (await browser.visit("/i/eu-1/ui")).status_code == 200
    for path in ("/ui", "/i/us-1/ui"):
        answer = await browser.visit(path)
        assert answer.status_code == 403
        assert "does not reach" in answer.text


async def test_every_answer_is_guarded(browser: Browser) -> None:
    await browser.log_in(READER)
    page = await browser.visit("/ui")
    assets = {word for word in page.text.split('"') if word.startswith("/ui/static/")}
    assert len(assets) == 3
    for path in ("/ui", "/ui/login", "/ui/nowhere", "/i/!/ui", *assets):
        answer = await browser.visit(path)
        assert answer.headers["content-security-policy"] == POLICY, path
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "immutable" in answer.headers["cache-control"] if path in assets else True
        assert path in assets or answer.headers["cache-control"] == "no-store"
        head = await browser.client.head(path, headers={"sec-fetch-site": "none"})
        assert (head.status_code, head.content) == (answer.status_code, b"")
        assert head.headers["content-length"] == answer.headers["content-length"]
    assert "unsafe" not in POLICY
    assert "default-src 'none'" in POLICY


async def test_without_tokens_only_this_machine_is_answered(host: ActorHost) -> None:
    async with browsing(host.asgi(insecure=True)) as browser:
        assert (await browser.visit("/ui")).status_code == 200
        for headers in ({"host": "evil.example"}, {"via": "1.1 x"}, {"sec_fetch_site": "cross-site"}):
            answer = await browser.visit("/ui", **headers)
            assert answer.status_code == 403
            assert "no tokens" in answer.text
        assert (await browser.visit("/ui/static/dashboard.css", host="evil.example")).status_code == 403
        # A link on another page leads here all the same: by a page that holds nothing but its own address.
        page = await browser.visit("/ui", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
        assert 'content="0; url=/ui"' in page.text
        assert "Healthy" not in page.text


async def test_an_apps_rule_is_asked_for_each_page_as_over_http(host: ActorHost) -> None:
    asked: list[tuple[Any, ...]] = []

    async def rule(caller: Any, action: str, instance: str, resource: str | None) -> bool:
        asked.append((caller.user, action, instance, resource))
        return action != "list"

    app = host.asgi(authorize=rule)

    async def with_user(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "user": "alice"}, receive, send)

    async with browsing(with_user) as browser:
        page = await browser.visit("/i/a/ui")
        assert page.status_code == 200
        assert "You may not list jobs." in page.text
    assert asked[0] == ("alice", "status", "a", None)
    assert ("alice", "list", "a", None) in asked


async def test_a_rule_that_says_no_shows_nothing(host: ActorHost) -> None:
    async with browsing(host.asgi(authorize=lambda *_: False)) as browser:
        answer = await browser.visit("/ui")
        assert answer.status_code == 403
        assert "Healthy" not in answer.text


async def test_a_session_is_known_to_every_process_that_knows_its_token(host: ActorHost) -> None:
    async with browsing(host.asgi(tokens=TOKENS)) as one, browsing(host.asgi(tokens=TOKENS)) as other:
        await one.log_in(READER)
        other.client.cookies.update(one.client.cookies)
        assert (await other.visit("/ui")).status_code == 200


async def test_where_an_app_has_a_rule_and_tokens_both_decide(host: ActorHost) -> None:
    asked: list[str | None] = []

    async def rule(caller: Any, action: str, *_: Any) -> bool:
        asked.append(caller.name)
        return action != "list"

    async with browsing(host.asgi(tokens=TOKENS, authorize=rule)) as browser:
        assert (await browser.visit("/ui")).status_code == 401
        assert asked == []
        await browser.log_in(READER)
        assert (await browser.visit("/ui")).status_code == 200
        assert (await browser.visit("/ui/jobs")).status_code == 403
        refused(await browser.client.post("/cancel", json={"id": "a"}, headers=SAME), 401, "UNAUTHENTICATED")
        assert set(asked) == {"looker"}


async def test_a_failure_shows_a_page_and_not_its_cause(host: ActorHost, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> Any:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(LocalReads, "status", fail)
    async with browsing(host.asgi(insecure=True)) as browser:
        page = await browser.visit("/ui")
    assert page.status_code == 500
    assert "its log says why" in page.text
    assert "swordfish" not in page.text
    assert page.headers["content-security-policy"] == POLICY
