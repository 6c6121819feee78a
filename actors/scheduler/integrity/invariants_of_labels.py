"""Check that `label/` and `deadlabel/` have a row for every label of every job, and no others.

What each job must have is looked up with the job; here those that no job has are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tocsin.actors.scheduler.integrity.findings import shown
from tocsin.actors.scheduler.model.rows import BadRow, DeadRow, JobRow, dead_key, decode, job_key
from tocsin.actors.scheduler.state.labels import DEAD, LIVE
from tocsin.storage.api import after

if TYPE_CHECKING:
    from tocsin.actors.scheduler.integrity.invariants_of_jobs import Look

SOME: Final = 200


async def check_labels(look: Look) -> None:
    for family, prefix in (("label", LIVE), ("deadlabel", DEAD)):
        if await look.has_strays(family):
            await _name_strays(look, prefix)


async def _name_strays(look: Look, prefix: bytes) -> None:
    async for page in look.rows(prefix, after(prefix), SOME):
        ids = {key: key.rsplit(b"/", 1)[1].decode("latin-1") for key, _ in page}
        known = await look.get([row for job_id in set(ids.values()) for row in (job_key(job_id), dead_key(job_id))])
        for key, job_id in ids.items():
            if look.is_recounted and job_key(job_id) not in known:
                continue  # its job was set aside: dropped at the next start
            if not _has(key, job_id, known):
                look.found.add("LABELS", job_id, f"{shown(key)} is of no job that stands so")


def _has(key: bytes, job_id: str, known: Mapping[bytes, bytes]) -> bool:
    """Return whether the job of a row has that label, and is live or dead as the row says."""
    family, label, *when = key.split(b"/")[:-1]
    try:
        job = decode(JobRow, b"job", known.get(job_key(job_id), b""))
        letter = known.get(dead_key(job_id))
        dead = None if letter is None else decode(DeadRow, b"dead", letter)
    except BadRow:
        return False
    if label.decode("latin-1") not in job.labels:
        return False
    if family == b"label":
        return dead is None
    return dead is not None and when == [b"%015d" % dead.parked_at]
