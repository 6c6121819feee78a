"""A workflow needs no word about the path that it has not, wherever jobs are made."""

from __future__ import annotations

import httpx
import pytest

from tests.http.http_client import DUE, HttpClient
from tocsin import Cron, Job, Outbox, RemoteScheduler
from tocsin.errors import InvalidInputError

pytestmark = pytest.mark.anyio


async def workflow_of(http_client: HttpClient, job_id: str) -> str | None:
    record = await http_client.host.scheduler().get(job_id)
    assert record is not None and record.function_path is None
    return record.workflow


async def test_at_every_door(http_client: HttpClient) -> None:
    jobs = http_client.host.scheduler()
    ids = [
        await jobs.run_after(3600, workflow="w"),
        await jobs.run_at(DUE, workflow="w"),
        *(one.id for one in await jobs.submit_many([Job(workflow="w", at=DUE)]) if not isinstance(one, Exception)),
    ]
    async with jobs.deferred() as later:
        ids += [later.run_after(3600, workflow="w"), later.run_at(DUE, workflow="w")]
    app = httpx.ASGITransport(app=http_client.host.asgi(insecure=True))
    async with RemoteScheduler("http://localhost", transport=app) as remote:
        ids += [await remote.run_after(3600, workflow="w"), await remote.run_at(DUE, workflow="w")]
    assert len(ids) == 7
    assert [await workflow_of(http_client, one) for one in ids] == ["w"] * 7

    await jobs.schedules.put("put", workflow="w", every=3600)
    await jobs.schedules.register("owner", Cron().hourly("built", minute=5, workflow="w"))
    for name in ("put", "owner:built"):
        schedule = await jobs.schedules.get(name)
        assert schedule is not None and (schedule.function_path, schedule.workflow) == (None, "w")


def test_in_an_outbox() -> None:
    box = Outbox()
    for entry in (box.run_after(0, workflow="w"), box.run_at(DUE, workflow="w")):
        assert '"workflow":"w"' in str(entry.qmark)


async def test_neither_is_still_refused(http_client: HttpClient) -> None:
    with pytest.raises(InvalidInputError, match="give exactly one of path and workflow"):
        await http_client.host.scheduler().run_after(0)
