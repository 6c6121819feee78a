"""Args left out are `{}` by every door; None is given, and is null."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from tests.http.http_client import DUE, HttpClient
from tocsin import Cron, Job, Outbox, RemoteScheduler
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.records import Scheduled

pytestmark = pytest.mark.anyio

Given = dict[str, Any]
"""`args`, or nothing."""


async def run_at(http_client: HttpClient, jobs: Scheduler, given: Given) -> list[str]:
    return [await jobs.run_at(DUE, "a:b", **given), await jobs.run_after("1h", "a:b", **given)]


async def submit_many(http_client: HttpClient, jobs: Scheduler, given: Given) -> list[str]:
    answers = await jobs.submit_many([Job(path="a:b", at=DUE, **given), Job("a:b", *given.values(), after="1h")])
    return [one.id for one in answers if isinstance(one, Scheduled)]


async def deferred(http_client: HttpClient, jobs: Scheduler, given: Given) -> list[str]:
    async with jobs.deferred() as later:
        return [later.run_after("1h", "a:b", **given), later.run_at(DUE, "a:b", **given)]


async def then(http_client: HttpClient, jobs: Scheduler, given: Given) -> list[str]:
    followers = [Job(path="c:d", after="1h", **given)]
    by_python = await jobs.run_after(0, "a:b", queue="q", then=followers)
    by_http = await http_client.schedule(
        functionPath="a:b", delayMs=0, queue="q", then=[in_json("c:d", given) | {"delayMs": 9**7}]
    )
    following = []
    for id in (by_python, by_http["id"]):
        record = await jobs.get(id)
        assert record is not None
        following += [one.id for one in record.then]
    for one in await jobs.claim("q", max=2):
        await jobs.complete(one.id, one.lease)
    return following


async def retried(http_client: HttpClient, jobs: Scheduler, given: Given) -> list[str]:
    id = await jobs.run_after(0, "a:b", queue="q", **given)
    [one] = await jobs.claim("q")
    await jobs.complete(one.id, one.lease, ok=False, retryable=False)
    assert (await jobs.dead_retry(id)).retried
    return [id]


async def schedules(http_client: HttpClient, jobs: Scheduler, given: Given) -> list[str]:
    await jobs.schedules.put("s", "a:b", every="1h", queue="q", **given)
    await jobs.schedules.register("o", [("r", {"path": "a:b", "every": "1h", "queue": "q", **given})])
    cron = Cron().hourly("h", minute=17, target="a:b", queue="q", **given)
    await jobs.schedules.register("c", cron)
    defined = {"everyMs": 3_600_000, "queue": "q", **in_json("a:b", given)}
    assert (await http_client.client.put("/schedules/p", json=defined)).status_code == 200
    return [(await jobs.schedules.trigger(name)).id for name in ("s", "o:r", "c:h", "p")]


async def http(http_client: HttpClient, jobs: Scheduler, given: Given) -> list[str]:
    body = {"scheduledFor": DUE, **in_json("a:b", given)}
    alone = (await http_client.post("/schedule", body)).json()["id"]
    batch = (await http_client.post("/schedule/batch", {"jobs": [body]})).json()["results"]
    return [alone, batch[0]["id"]]


async def from_afar(http_client: HttpClient, jobs: Scheduler, given: Given) -> list[str]:
    async with RemoteScheduler("http://localhost", transport=http_client.client._transport) as remote:
        many = await remote.submit_many([Job(path="a:b", after="1h", **given)])
        return [
            await remote.run_after("1h", "a:b", **given),
            await remote.run_at(DUE, "a:b", **given),
            *(one.id for one in many if not isinstance(one, Exception)),
        ]


DOORS: Final[list[Callable[[HttpClient, Scheduler, Given], Coroutine[Any, Any, list[str]]]]] = [
    run_at, submit_many, deferred, then, retried, schedules, http, from_afar
]  # fmt: skip


def in_json(path: str, given: Given) -> dict[str, Any]:
    return {"functionPath": path, **given}


@pytest.mark.parametrize("given", [{}, {"args": None}, {"args": {}}, {"args": []}], ids=str)
@pytest.mark.parametrize("door", DOORS)
async def test_args_left_out_are_an_empty_object_and_none_is_null(
    http_client: HttpClient,
    door: Callable[[HttpClient, Scheduler, Given], Coroutine[Any, Any, list[str]]],
    given: Given,
) -> None:
    wanted = given.get("args", {})
    ids = await door(http_client, http_client.host.scheduler(), given)
    assert ids
    for id in ids:
        record = await http_client.host.scheduler().get(id)
        assert record is not None and record.args == wanted
        text = (await http_client.get("/get", params={"id": id})).content
        assert b'"args":' + json.dumps(wanted).encode() in text.replace(b" ", b"")


@pytest.mark.parametrize("given", [{}, {"args": None}, {"args": []}], ids=str)
def test_a_row_of_an_outbox_as_well(given: Given) -> None:
    for entry in (Outbox().run_at(DUE, "a:b", **given), Outbox().run_after("1h", "a:b", **given)):
        job = json.loads(next(text for text in entry.qmark[1] if isinstance(text, str) and text.startswith("{")))
        assert job["args"] == given.get("args", {})
