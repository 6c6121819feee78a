"""Members that few jobs and pools have, kept apart so that the rows of all others stay small: the flow of work through
a pool, origins, groups, and jobs that follow a death."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.row import Row

FLOW_LAYOUT: Final = 4
"""The layout of schedulers that use what stands here: written at its first use, so that no older tocsin, which would
misread it, opens them."""


QUEUES: Final = b"queue/"


class JobExtras(Row, frozen=True, array_like=True, tag=1):
    """Options that few jobs have; `JobRow.extras` is None for all others."""

    origin: str = ""
    """The named origin that is called back; "": the host's own."""
    url: str | None = None
    """The address that is called back instead, if the host's list allows that."""
    rate: tuple[int, int, int] | None = None
    """The rate of its pool until an operator has set one: so many starts, in so many ms, and so many at once."""
    on_dead_size: int = 0
    """So many bytes of what is stored as its args follow when it dies; they stand behind those of `then`."""
    group: str | None = None
    """The group in which it is counted."""
    debounce: tuple[int, int | None] | None = None
    """When it was asked for first, and until when it can be put off, epoch ms (None: without end)."""
    parent_is: str = ""
    """The kind of its parent: a job that succeeded (""), one that died (`dead`), or a `group`."""
    group_uid: str = ""
    """The uid of its group; "": whichever has the name."""


class PoolFlow(Row, frozen=True, array_like=True, tag=1):
    """How jobs go through a pool, besides its cap; `PoolRow.flow` is None for most."""

    rate: tuple[int, int, int] | None = None
    """So many starts, in so many ms, and so many at once after a pause."""
    rate_by: str = "put"
    """Who set the rate: `job` or `put`; `off` if an operator took it away."""
    cool: str = "none"
    """The scope that a busy answer with Retry-After cools: `none`, the `pool`, or its `origin`."""
    fair: bool = False
    """Jobs with different shard keys have turns."""
    weights: dict[str, int] | None = None
    """How many turns a shard key has where others have one."""
    per_key: int | None = None
    """How many jobs of one shard key may run at once."""


class QueueRow(Row, frozen=True, array_like=True, tag=1):
    """`queue/<name>`: how jobs are taken from a queue, where an operator has said it."""

    fair: bool = False
    """Jobs with different shard keys have turns."""
    weights: dict[str, int] | None = None
    """How many turns a shard key has where others have one."""
    per_key: int | None = None
    """How many jobs of one shard key may run at once."""


def queue_key(name: str) -> bytes:
    return QUEUES + name.encode()
