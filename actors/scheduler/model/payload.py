"""Encode the `args` of a job's row: its args, what is to follow it, and what the job before it came to."""

from __future__ import annotations

from typing import NamedTuple

from tocsin.actors.scheduler.model.rows import JobRow


class Blob(NamedTuple):
    """The content of a job's `args`."""

    args: bytes
    then: bytes
    parent_result: bytes
    on_dead: bytes = b""


def parts_of(job: JobRow, whole: bytes) -> Blob:
    """Split everything that is stored as a job's args: the args, what comes then, what comes if it dies, and the result
    of its parent."""
    if job.args_size is None:
        return Blob(whole, b"", b"")
    end = job.args_size + job.then_size
    behind = end if job.extras is None else end + job.extras.on_dead_size
    return Blob(whole[: job.args_size], whole[job.args_size : end], whole[behind:], whole[end:behind])
