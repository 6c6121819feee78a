"""No page and no act reads or does what an app's rule was not asked for: found out for every one of them, by watching
which methods of the scheduler each request calls."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any

import pytest

from tests.http.dashboard.browsing import browsing
from tests.http.http_client import open_host
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.http.dashboard.page import Act, Page, Place
from tocsin.actors.http.dashboard.pages import PLACES
from tocsin.actors.scheduler.client.bulk import LocalBulk
from tocsin.actors.scheduler.client.changes import LocalChanges
from tocsin.actors.scheduler.client.queues import LocalQueues
from tocsin.actors.scheduler.client.reads import LocalReads
from tocsin.actors.scheduler.client.scheduler import port_of
from tocsin.actors.scheduler.client.schedules_port import LocalSchedules

pytestmark = pytest.mark.anyio

BULK = {"dead_retry_all": "dead_retry", "dead_cancel_all": "dead_cancel"}
"""What is asked for several things that are named one by one: the same as for each of them."""
OF_GROUPS = {
    "groups": "groups.list",
    "group": "groups.get",
    "members": "groups.members",
    "cancel_group": "groups.cancel",
}
"""Methods of groups, and what HTTP calls them."""
PORTS = ((LocalReads, ""), (LocalChanges, ""), (LocalBulk, ""), (LocalQueues, ""), (LocalSchedules, "schedules."))


class Watch:
    """A rule that says yes to all but `refused`, what it was asked for, and which methods were called meanwhile, each
    as the action that HTTP calls it."""

    def __init__(self) -> None:
        self.refused: str | None = None
        self.asked: set[str] = set()
        self.called: set[str] = set()

    def rule(self, _: Any, action: str, *__: Any) -> bool:
        self.asked.add(action)
        return action != self.refused

    def begin(self, refused: str | None = None) -> None:
        self.refused, self.asked, self.called = refused, set(), set()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch, inside = Watch(), ContextVar("inside", default=False)

    def wrapped(method: Any, action: str) -> Any:
        @functools.wraps(method)
        async def call(*args: Any, **named: Any) -> Any:
            if not inside.get():  # what a method calls itself is its own affair
                watch.called.add(OF_GROUPS.get(action, action))
            token = inside.set(True)
            try:
                return await method(*args, **named)
            finally:
                inside.reset(token)

        return call

    for kind, before in PORTS:
        for name, method in list(vars(kind).items()):
            if not name.startswith("_") and callable(method):
                monkeypatch.setattr(kind, name, wrapped(method, before + name))
    return watch


async def things(host: ActorHost, number: int) -> None:
    """Make one of everything that pages are about."""
    jobs, dead = host.scheduler("default"), f"dead{number}"
    await jobs.run_after("1h", "p", id=f"live{number}", pool=f"pool{number}")
    await jobs.run_after(0, "p", id=dead, queue=f"q{number}")
    [claimed] = await port_of(jobs).queues.claim(
        f"q{number}", max=1, lease_ms=60_000, wait_ms=0, worker=None, exclude=()
    )
    await jobs.complete(dead, claimed.lease, ok=False, error="x", retryable=False)
    await jobs.groups.open(f"group{number}")
    await jobs.run_after("1h", "p", group=f"group{number}")
    await jobs.schedules.put(f"s{number}", "p", every="1h")
    await jobs.schedules.trigger(f"s{number}", "key")


def address(place: Place, number: int) -> str:
    """Return the path of a place, about the things of that number."""
    first, _, last = place.path.strip("/").partition("/")
    names = {"jobs": "live", "schedules": "s", "pools": "pool", "groups": "group"}
    dead = first == "jobs" and last.rpartition("/")[2] in ("retry", "cancel-dead")
    name = f"{'dead' if dead else names.get(first, 'none')}{number}"
    marked = f"?id=dead{number}&id=other" if place.path in ("/dead/retry", "/dead/cancel") else ""
    marked += f"?pool=pool{number}" if place.path == "/cancel-jobs" else ""
    return f"/ui{place.path}".replace("{id}", name).replace("{name}", name) + marked


async def test_no_page_and_no_act_calls_what_the_rule_was_not_asked_for(watch: Watch) -> None:
    seen: set[str] = set()
    async with open_host() as (host, _), browsing(host.asgi(authorize=watch.rule)) as browser:
        for number, place in enumerate(one for one in PLACES if isinstance(one, (Page, Act))):
            await things(host, number)
            path = address(place, number)
            watch.begin()
            page = await browser.visit(path)
            assert page.status_code in (200, 404), path
            assert watch.called <= watch.asked, path
            for action in sorted(watch.asked):
                watch.begin(action)
                assert (await browser.visit(path)).status_code in (200, 403, 404), path
                assert action not in watch.called, path
            if isinstance(place, Act) and page.status_code == 200:
                watch.begin(place.action)
                assert (await browser.send(path, page)).status_code == 403
                assert watch.called <= {"status"}, path
                watch.begin()
                filled = {"when": "2h", "cap": "3", "rate": "5", "start": "2026-10-01", "end": "2026-10-02"}
                assert (await browser.send(path, page, **filled)).status_code in (303, 409), path
                assert all({one, BULK.get(one)} & watch.asked for one in watch.called), path
            seen |= watch.called
    assert len(seen) > 20, "most of them were tried"
