"""Groups: how far the members of each have come, and what it still waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.overview import share
from tocsin.actors.http.dashboard.page import Act, Done, Page, Question
from tocsin.actors.http.dashboard.words import amount
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.group_records import GroupRecord
from tocsin.errors import NotFoundError

SHOWN: Final = 200
"""The page is read anew whenever something changes: so many lines are what people read, and a server can afford."""
OPEN: Final = "open"


def ended(group: GroupRecord) -> int:
    return group.members - group.open


def part(group: GroupRecord) -> float:
    """Return the share of the members that have ended."""
    return share(ended(group), group.members if group.size is None else max(group.size, group.members))


def waits_for(group: GroupRecord) -> str:
    """Say in words what has to happen before it is settled; nothing if it is."""
    if group.state == OPEN and group.stopping:
        return f"its members are being cancelled, {group.open:,} are left"
    if group.open:
        return f"{amount(group.open, 'member')} still to end"
    if group.state == OPEN and group.size is not None and group.members < group.size:
        return f"{amount(group.size - group.members, 'member')} still to come"
    if group.state == OPEN and not group.sealed:
        return "to be sealed: jobs may still join"
    return f"{amount(group.dead, 'dead member')} to be retried, or nothing" if group.dead else ""


@dataclass(frozen=True, slots=True)
class Groups:
    """The first groups of an instance, by name."""

    groups: Sequence[GroupRecord]
    more: bool

    def part(self, group: GroupRecord) -> float:
        return part(group)

    def waits_for(self, group: GroupRecord) -> str:
        return waits_for(group)


@dataclass(frozen=True, slots=True)
class OneGroup:
    """A group, the first of its members that are there, and whether the caller may cancel it."""

    group: GroupRecord
    members: Sequence[records.Record]
    more: bool
    may_cancel: bool

    @property
    def title(self) -> str:
        return self.group.name

    @property
    def ended(self) -> int:
        return ended(self.group)

    @property
    def part(self) -> float:
        return part(self.group)

    @property
    def waits_for(self) -> str:
        return waits_for(self.group)


async def show_all(asked: Asked) -> Groups:
    asked.query()
    page = await asked.port.reads.groups(cursor=None, limit=SHOWN)
    return Groups(page.groups, page.truncated)


async def show_one(asked: Asked) -> OneGroup:
    asked.query()
    name, group = asked.names["name"], await _known(asked)
    await asked.admit("groups.members", name)
    page = await asked.port.reads.members(name, cursor=None, limit=SHOWN)
    may_cancel = group.open > 0 and not group.stopping and await asked.may("groups.cancel", name)
    return OneGroup(group, page.records, page.truncated, may_cancel)


async def _known(asked: Asked) -> GroupRecord:
    name = asked.names["name"]
    await asked.admit("groups.get", name)
    group = await asked.port.reads.group(name)
    if group is None:
        raise NotFoundError(f"there is no group {name!r}: it was never made, or is dropped for its age")
    return group


async def ask_cancel(asked: Asked) -> Question:
    group = await _known(asked)
    return Question(
        title=f"Cancel the group {group.name}?",
        words=(
            f"{amount(group.open, 'member')} that has not ended is cancelled, and nothing follows.",
            "This cannot be undone.",
        ),
        button="Cancel the group",
        back=_url(asked),
        grave=True,
    )


async def cancel(asked: Asked) -> Done:
    group = await asked.port.changes.cancel_group(asked.names["name"])
    return Done(words=f"The members of the group {group.name} are being cancelled.", back=_url(asked))


def _url(asked: Asked) -> str:
    return asked.url(f"/groups/{asked.names['name']}")


PLACES: Final = (
    Page(path="/groups", action="groups.list", name="groups", title="Groups", show=show_all),
    Page(
        path="/groups/{name}", action="groups.get", resource="name", name="groups", title="Group", show=show_one,
        template="group.html",
    ),
    Act(
        path="/groups/{name}/cancel", action="groups.cancel", resource="name", name="groups", ask=ask_cancel,
        do=cancel,
    ),
)  # fmt: skip
