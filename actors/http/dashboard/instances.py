"""The instances that the caller may see, with how each is; and the way to one whose name is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.access import Caller
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.page import Elsewhere, Page
from tocsin.actors.http.dashboard.words import amount
from tocsin.actors.http.instances import ACTION, may_see
from tocsin.actors.http.operations import ADMIN
from tocsin.actors.scheduler.model.records import Instance, Status
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.errors import ForbiddenError

SHOWN: Final = 25
"""Instances of a page: the health of each is looked at."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An instance and how it is; `status` is None to whom HTTP would not tell."""

    one: Instance
    status: Status | None
    url: str
    here: bool


@dataclass(frozen=True, slots=True)
class Instances:
    """The content of the page. `listed` is None for who may not list them."""

    listed: Sequence[Listed] | None
    here: str
    first: str = ""
    next: str = ""

    @property
    def shown(self) -> str:
        return f"{amount(len(self.listed or ()), 'instance')} on this page" + ("" if self.next else ", the last")


async def show(asked: Asked) -> Instances | Elsewhere:
    query = asked.query("name", "cursor")
    if name := (query.text("name") or "").strip():
        return Elsewhere(asked.url(of=instance_name(name)))
    try:
        asked.gate.check_scope(asked.visit.token, ADMIN, ACTION)
    except ForbiddenError:
        return Instances(None, asked.instance)
    caller: Caller = asked.visit.caller

    async def shown(name: str) -> bool:
        return await may_see(asked.gate, caller, asked.visit.token, name)

    cursor = query.text("cursor") or None
    page = await asked.host.instances(cursor=cursor, limit=SHOWN, shown=shown)
    listed = [await _listed(asked, one) for one in page.instances]
    following = asked.url("/instances", cursor=page.cursor) if page.truncated else ""
    return Instances(listed, asked.instance, asked.url("/instances") if cursor else "", following)


async def _listed(asked: Asked, one: Instance) -> Listed:
    told = await asked.may("status", instance=one.name)
    status = asked.crowd.seen(await asked.host.ports(one.name).reads.status()) if told else None
    return Listed(one, status, asked.url(of=one.name), one.name == asked.instance)


PLACES: Final = (Page(name="instances", path="/instances", title="Instances", action="", show=show),)
