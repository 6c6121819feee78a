"""The list of live jobs: filtered, by due instant or id, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.deeds import OF_JOBS
from tocsin.actors.http.dashboard.job_bulk import FILTERS as BULK
from tocsin.actors.http.dashboard.page import Elsewhere, Page
from tocsin.actors.http.dashboard.undo import Undoable, undoable
from tocsin.actors.http.dashboard.words import amount
from tocsin.actors.scheduler.client.reads import STATES
from tocsin.actors.scheduler.model.records import Page as JobPage
from tocsin.actors.scheduler.model.records import Record
from tocsin.errors import InvalidInputError, NotFoundError

SHOWN: Final = 50
FILTERS: Final = ("path", "pool", "queue", "label", "state")
ORDERS: Final = (("due", "when due"), ("id", "id"))
LIVE: Final = ("pending", "waiting", "running")
assert set(LIVE) <= set(STATES)


@dataclass(frozen=True, slots=True)
class Jobs:
    """The content of the page. `given` are the filters, as they were filled in; `wrong` says why they show nothing."""

    given: dict[str, str]
    order: str
    records: Sequence[Record]
    first: str
    next: str
    wrong: str = ""
    may_cancel: bool = False
    undoable: Sequence[Undoable] = ()
    orders: Sequence[tuple[str, str]] = ORDERS
    states: Sequence[str] = LIVE

    @property
    def filtered(self) -> bool:
        return any(self.given.values())

    @property
    def bulk(self) -> Mapping[str, str] | None:
        """The filters as a bulk cancel takes them; None where there are none, or it knows one of them not."""
        given = {name: value for name, value in self.given.items() if value}
        return given if given and given.keys() <= set(BULK) else None

    @property
    def shown(self) -> str:
        """Say how many there are on this page."""
        return f"{amount(len(self.records), 'job')} on this page" + ("" if self.next else ", the last")


async def show(asked: Asked) -> Jobs | Elsewhere:
    query = asked.query(*FILTERS, "order", "cursor", "id")
    given = {name: (query.text(name) or "").strip() for name in FILTERS}
    order = query.text("order") or "due"
    if id := (query.text("id") or "").strip():
        return Elsewhere(await _found(asked, id))
    cursor = query.text("cursor") or None
    filters = {name: value or None for name, value in given.items()}
    first = asked.url("/jobs", order=query.text("order"), **filters) if cursor else ""
    try:
        page: JobPage = await asked.port.reads.list(cursor=cursor, limit=SHOWN, order=order, **filters)
    except InvalidInputError as error:
        return Jobs(given, order, (), first, "", error.message)
    following = asked.url("/jobs", order=query.text("order"), **filters, cursor=page.cursor) if page.truncated else ""
    may_cancel = await asked.may("cancel_all")
    return Jobs(
        given, order, page.records, first, following, may_cancel=may_cancel, undoable=await undoable(asked, OF_JOBS)
    )  # fmt: skip


async def _found(asked: Asked, id: str) -> str:
    """Return the address of a job that is asked for by its id. NotFoundError or InvalidInputError say why there is
    none."""
    await asked.admit("get", id)
    reads = asked.port.reads
    if await reads.get(id) is None and not (await asked.may("history", id) and await reads.history(id)):
        raise NotFoundError(f"there is no job {id!r} in {asked.instance}, and none has ended within the last week")
    return asked.url(f"/jobs/{id}")


PLACES: Final = (Page(name="jobs", path="/jobs", title="Jobs", action="list", show=show),)
