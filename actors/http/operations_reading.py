"""Reading: jobs, lists, counts, history, and why a job does not run."""

from __future__ import annotations

from typing import Final

from tocsin.actors.http.job_records import JobPage, page_of, record_of
from tocsin.actors.http.parameters import CHANGES, DEAD_LISTED, LISTED, ONE_JOB, RECENT, names
from tocsin.actors.http.request import Call
from tocsin.actors.http.response_models import CatalogEntry, CatalogListed, Found, History, Reasons
from tocsin.actors.scheduler.model.activity import MOST_MINUTES, Activity
from tocsin.actors.scheduler.model.feed_frames import FeedPage
from tocsin.actors.scheduler.model.records import Status
from tocsin.actors.scheduler.model.validation import CLAIM_WAIT_MS, integer
from tocsin.dispatch.catalog.listing import listing

DEFAULT_LIMIT: Final = 100


async def why(call: Call) -> Reasons:
    id = call.query(*names(ONE_JOB)).required("id")
    await call.admit(id)
    return Reasons(id, await call.port.reads.why(id))


async def history(call: Call) -> History:
    id = call.query(*names(ONE_JOB)).required("id")
    await call.admit(id)
    return History(id, await call.port.reads.history(id))


async def get(call: Call) -> Found:
    id = call.query(*names(ONE_JOB)).required("id")
    await call.admit(id)
    record = await call.port.reads.get(id)
    return Found(None if record is None else record_of(record, call.port.name))


async def list_jobs(call: Call) -> JobPage:
    query = call.query(*names(LISTED))
    await call.admit(None)
    page = await call.port.reads.list(
        cursor=query.text("cursor") or None,
        limit=query.whole_or("limit", DEFAULT_LIMIT),
        order=_default(query.text("order"), "due"),
        queue=query.text("queue"),
        pool=query.text("pool"),
        state=query.text("state"),
        label=query.text("label"),
        path=query.text("functionPath"),
    )
    return page_of(page, call.port.name)


async def list_dead(call: Call) -> JobPage:
    query = call.query(*names(DEAD_LISTED))
    await call.admit(None)
    page = await call.port.reads.dead(
        cursor=query.text("cursor") or None,
        limit=query.whole_or("limit", DEFAULT_LIMIT),
        pool=query.text("pool"),
        label=query.text("label"),
        reason=query.text("reason"),
        since=query.whole("since"),
        path=query.text("functionPath"),
    )
    return page_of(page, call.port.name)


async def changes(call: Call) -> FeedPage:
    query = call.query(*names(CHANGES))
    wait_ms = integer(query.whole_or("waitMs", 0), "waitMs", *CLAIM_WAIT_MS)
    await call.admit(None)
    return await call.port.reads.changes(since=query.text("since") or None, wait_s=wait_ms / 1000)


async def status(call: Call) -> Status:
    call.query()
    await call.admit(None)
    return call.seen(await call.port.reads.status())


async def activity(call: Call) -> Activity:
    query = call.query(*names(RECENT))
    await call.admit(None)
    return await call.port.reads.activity(query.whole_or("minutes", MOST_MINUTES))


async def catalog(call: Call) -> CatalogListed:
    """List the host's catalog, which is the same for every instance."""
    call.query()
    await call.admit(None)
    given = call.port.checks.catalog.catalog
    if given is None:
        return CatalogListed(False, ())
    listed = listing(given)
    entries = [CatalogEntry(one.function_path, one.workflow, one.schema, one.schema is None) for one in listed.entries]
    return CatalogListed(True, entries, listed.left_out)


def _default(value: str | None, otherwise: str) -> str:
    return otherwise if value is None else value
