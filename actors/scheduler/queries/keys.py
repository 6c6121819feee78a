"""Say of a job whose shard key has turns with others what that means for it."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.model.flow_rows import QueueRow, queue_key
from tocsin.actors.scheduler.model.job_record import Found
from tocsin.actors.scheduler.model.line_names import shard_of
from tocsin.actors.scheduler.model.pool_records import Pool
from tocsin.actors.scheduler.model.records import Reason
from tocsin.actors.scheduler.model.rows import LeaseRow, split_lease_key
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.storage.api import StoreView


async def of_key(view: StoreView, found: Found, pool: Pool | None) -> Sequence[Reason]:
    """Say that as many jobs of its key run as may in its pool or its queue; nothing if one more may."""
    said: list[Reason] = []
    if pool is not None and pool.fair and pool.max_per_key is not None:
        said += await _at_cap(view, found, "pool", pool.name, pool.max_per_key)
    if found.job.queue:
        key = queue_key(found.job.queue)
        queue = query.read(QueueRow, key, (await view.get([key])).get(key))
        if queue is not None and queue.fair and queue.per_key is not None:
            said += await _at_cap(view, found, "queue", found.job.queue, queue.per_key)
    return said


async def _at_cap(view: StoreView, found: Found, kind: str, name: str, cap: int) -> Sequence[Reason]:
    shard, held = shard_of(found.job.shard_key or ""), list[tuple[int, str]]()
    for key, value in await query.whole(view, b"lease/"):
        lease = query.read(LeaseRow, key, value)
        if lease is None or lease.shard != shard:
            continue
        if name == (lease.pool if kind == "pool" else lease.queue):
            held.append((lease.until, split_lease_key(key)[0]))
    if len(held) < cap:
        return []
    key_said = f"shard key {found.job.shard_key!r}" if found.job.shard_key else "no shard key"
    said = f"{len(held)} jobs with {key_said} run in {kind} {name}, and no more than {cap} may at once"
    holders = [job_id for _, job_id in sorted(held)][:20]
    return [Reason("KEY_FULL", said, min(held)[0], name if kind == "pool" else None, holders)]


def place_words(behind: int, more: str, found: Found) -> str:
    """Say how many jobs go before a job in its line."""
    if found.place.in_turn:
        key = "its shard key, which has turns with others"
        return {0: f"it is the first of {key}", 1: f"1 job of {key}, goes before it"}.get(
            behind, f"{behind:,} jobs{more} of {key}, go before it"
        )
    words = {0: "it is the first in its line", 1: "1 job of its line goes before it"}
    return words.get(behind, f"{behind:,} jobs{more} of its line go before it")
