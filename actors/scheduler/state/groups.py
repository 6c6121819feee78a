"""Change and count the groups of one scheduler: members that join, end, live again, and those whose rows are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.groups import COUNTS, GROUP, GroupRow, group_key, member_key
from tocsin.actors.scheduler.model.rows import JobRow, encode
from tocsin.actors.scheduler.state.grouped import Delta, Groups
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState
from tocsin.storage.api import after, each_row

PAGE: Final = 1_000


def groups_of(state: SchedulerState) -> Groups:
    """Return the groups of a scheduler, which gets the object when it first uses one."""
    if state.groups is None:
        state.groups = Groups()
    return state.groups


def uid_of(job: JobRow) -> str:
    """Return the uid of the job's group; "" if it is in none."""
    return "" if job.extras is None or job.extras.group is None else job.extras.group_uid


def note_member(state: SchedulerState, job: JobRow, **by: int) -> None:
    """Add to the counts of the job's group, if it is in one."""
    if (uid := uid_of(job)) and job.extras is not None and job.extras.group is not None:
        delta = groups_of(state).deltas.setdefault((job.extras.group, uid), {})
        for name, more in by.items():
            delta[name] = delta.get(name, 0) + more


def list_member(state: SchedulerState, job: JobRow) -> None:
    """Write the row by which a group finds a member."""
    if uid := uid_of(job):
        state.storage.put(member_key(uid, job.id), b"")


def unlist_member(state: SchedulerState, job: JobRow) -> None:
    if uid := uid_of(job):
        state.storage.delete(member_key(uid, job.id))


def added(row: GroupRow, by: Delta) -> GroupRow:
    """Return a group with more in its counts; none of them is ever below 0."""
    return msgspec.structs.replace(row, **{n: max(getattr(row, n) + by[n], 0) for n in COUNTS if n in by})


async def load_groups(state: SchedulerState, names: Iterable[str]) -> Groups:
    """Read the rows of those groups that are not in memory; return all that are."""
    groups = groups_of(state)
    keys = {group_key(name): name for name in names if name not in groups.rows}
    for key, value in (await state.storage.get_many(list(keys)) if keys else {}).items():
        if (row := state.read(GroupRow, key, value)) is not None:
            groups.rows[keys[key]] = groups.stored[keys[key]] = row
    return groups


async def recount(state: SchedulerState) -> None:
    """Count the open members of all groups anew, after the row of a job was set aside: such a member counts as dead,
    so that its group is complete some day. And list those that are there, and no others."""
    found: list[tuple[bytes, GroupRow]] = []
    for key, value in await state.all_rows(b"group/"):
        if (group := state.read(GroupRow, key, value)) is not None:
            found.append((key, group))
    if not found:
        return
    dead = {key[5:] for key, _ in await state.all_rows(b"dead/")}
    living: Counter[str] = Counter()
    members: dict[bytes, str] = {}
    async for key, value in each_row(state.storage, b"job/", after(b"job/"), PAGE):
        if (job := state.read(JobRow, key, value)) is not None and (uid := uid_of(job)):
            members[member_key(uid, job.id)] = uid
            living[uid] += key[4:] not in dead
    for key, row in found:
        if lost := row.open - living[row.uid]:
            counted = msgspec.structs.replace(row, open=living[row.uid], dead=max(row.dead + lost, 0))
            state.storage.put(key, encode(counted))
            state.put_timer(1, GROUP, key[6:].decode())
    await _list_anew(state, members, {row.uid for _, row in found})


async def _list_anew(state: SchedulerState, members: Mapping[bytes, str], uids: Set[str]) -> None:
    listed = {key for key, _ in await state.all_rows(b"member/")}
    for key in listed.difference(members):
        state.storage.delete(key)
    for key, uid in members.items():
        if uid in uids and key not in listed:
            state.storage.put(key, b"")
