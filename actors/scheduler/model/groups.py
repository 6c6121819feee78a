"""Groups: jobs that are counted together, so that others can follow when the last of them has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final

from tocsin.actors.scheduler.model.followers import Follower, Followers, check_chain, encoded, renamed, targets
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.row import Row
from tocsin.actors.scheduler.model.rows import decode
from tocsin.actors.scheduler.model.validation import integer, plain_name
from tocsin.dispatch.words import word
from tocsin.errors import PayloadTooLargeError

GROUP: Final = "group"
"""The kind of the timers of groups: one that may be complete, or is dropped for its age."""
STOP: Final = "groupstop"
"""The kind of the timer of a group whose members are being cancelled."""
MAX_MEMBERS: Final = 100_000
MAX_JOBS: Final = 60 * 1024
"""Bytes of what follows a group: it stands in one row."""
KEPT_MS: Final = 7 * 86_400_000
"""For how long a group can be looked at that is done or cancelled."""
OPEN, DONE, DEAD, CANCELLED = "open", "done", "dead", "cancelled"
STATES: Final = (OPEN, DONE, DEAD, CANCELLED)
COUNTS: Final = ("members", "open", "done", "dead", "cancelled", "expired")


class GroupRow(Row, frozen=True, array_like=True, tag=1):
    """`group/<name>`: how many members there are, and how they ended.

    `members` is the sum of the other counts: those that live, and those that ended, each by its last end. A dead letter
    that is discarded still counts as dead.
    """

    uid: str
    """Its own: a group that is made under the name of one that was dropped has another."""
    made_at: int
    state: str = OPEN
    sealed: bool = False
    """No job joins it any more, but those that were to follow a member."""
    size: int | None = None
    """The number of members with which it is complete, without being sealed."""
    members: int = 0
    open: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    expired: int = 0
    stopping: bool = False
    """Its members were cancelled, together: nothing follows."""
    told: bool = False
    """True if `on_dead` has been started, which is done once."""
    ended_at: int | None = None
    rings_at: int = 0
    """The instant of the timer that drops it; 0: there is none."""
    then: tuple[str, ...] = ()
    """Targets of what is to follow, nested ones too: they count as pending; and ..."""
    on_dead: tuple[str, ...] = ()
    """... of what is to follow if some have died."""
    initiator: tuple[str, str] = ("", "")
    cursor: str = ""
    """The last member that was looked at to be cancelled."""

    @property
    def is_complete(self) -> bool:
        return not self.open and (self.sealed or (self.size is not None and self.members >= self.size))

    def pending(self) -> Iterator[str]:
        """Yield the targets of what is still to follow."""
        if self.state == OPEN and not self.stopping:
            yield from self.then
            yield from () if self.told else self.on_dead


class GroupJobsRow(Row, frozen=True, array_like=True, tag=1):
    """`groupjobs/<name>`: what is to follow a group, if all is well, and if some of its members have died."""

    then: bytes = b""
    on_dead: bytes = b""


def new_group(
    name: object, then: Sequence[Follower], on_dead: Sequence[Follower], size: object, initiator: tuple[str, str]
) -> NewGroup:
    """Check a group, what follows it excepted, which was checked. InvalidInputError, PayloadTooLargeError."""
    check_chain(then, on_dead)
    done, died = encoded(tuple(then), "then"), encoded(tuple(on_dead), word("on_dead"))
    if len(done) + len(died) > MAX_JOBS:
        raise PayloadTooLargeError(
            f"what follows group {name!r} is {len(done) + len(died)} bytes with its args, at most {MAX_JOBS}",
            limit=MAX_JOBS,
        )
    return NewGroup(
        plain_name(name, "name"),
        None if size is None else integer(size, "size", 1, MAX_MEMBERS),
        done, died, tuple(targets(then)), tuple(targets(on_dead)), initiator,
    )  # fmt: skip


def row_of(new: NewGroup, uid: str, now: int) -> GroupRow:
    """Return a group that has just been made."""
    return GroupRow(
        uid, now, size=new.size, then=new.then_targets, on_dead=new.on_dead_targets, initiator=new.initiator
    )


def is_as(new: NewGroup, row: GroupRow, jobs: GroupJobsRow) -> bool:
    """Return whether the group that is asked for is there; ids of what follows are new each time. Raises BadRow."""
    both = ((new.then, jobs.then), (new.on_dead, jobs.on_dead))
    return row.size == new.size and all(
        _nameless(jobs_of_group(asked)) == _nameless(jobs_of_group(there)) for asked, there in both
    )


def _nameless(jobs: tuple[Follower, ...]) -> tuple[Follower, ...]:
    return renamed(jobs, repeat(""))


def jobs_of_group(stored: bytes) -> tuple[Follower, ...]:
    """Read what is to follow a group; raises BadRow."""
    return decode(Followers, b"groupjobs", stored).jobs if stored else ()


def counts_of(row: GroupRow) -> dict[str, Any]:
    """Return how its members ended, as what follows it is told."""
    return {name: getattr(row, name) for name in COUNTS if name != "open"}


def group_key(name: str) -> bytes:
    return b"group/%b" % name.encode()


def group_jobs_key(name: str) -> bytes:
    return b"groupjobs/%b" % name.encode()


def member_prefix(uid: str) -> bytes:
    """Return the prefix of the rows by which a group, of this uid, finds its members that live or are dead."""
    return b"member/%b/" % uid.encode()


def member_key(uid: str, job_id: str) -> bytes:
    return b"member/%b/%b" % (uid.encode(), job_id.encode())
