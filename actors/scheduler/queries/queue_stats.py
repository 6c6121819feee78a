"""Count what queues hold and what still pends, from summaries in committed state; no job is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tocsin.actors.scheduler.model.flow_rows import QUEUES, QueueRow
from tocsin.actors.scheduler.model.line_names import queue_in
from tocsin.actors.scheduler.model.records import Pending, Queue
from tocsin.actors.scheduler.model.rows import (
    META_COUNTERS,
    META_LAYOUT,
    META_RECOUNT,
    PULLED,
    LeaseRow,
    LinesRow,
    bucket_prefix,
    split_lines_key,
)
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.state.layout import OLDEST, layout_of
from tocsin.actors.scheduler.state.path_counts import PATH_BYTES, PATHS, path_key
from tocsin.storage.api import Range, StoreView, after

UNSET = QueueRow()
DUE_COUNTED = 10_000
READ_AT_ONCE = 16
"""Buckets, of which many have few jobs where shard keys have turns."""
PAGE = 5_000


async def counts(view: StoreView, now: int, waiting_for: Callable[[str], int]) -> Sequence[Queue]:
    """Return each queue that holds jobs, or has settings, by name. `waiting_for` says how many claims wait for
    one."""
    lines = await query.whole(view, b"lines/")
    waiting: Counter[str] = Counter()
    oldest: dict[str, int] = {}
    buckets: dict[str, list[bytes]] = {}
    for key, value in lines:
        row = query.read(LinesRow, key, value)
        pool, line = split_lines_key(key)
        queue = queue_in(line)
        if row is None or not queue:
            continue
        for priority, (count, first_due) in row.buckets.items():
            waiting[queue] += count
            oldest[queue] = min(oldest.get(queue, first_due), first_due)
            if first_due <= now:
                buckets.setdefault(queue, []).append(bucket_prefix(pool, line, priority))
    held: Counter[str] = Counter()
    for key, value in await query.whole(view, b"lease/"):
        lease = query.read(LeaseRow, key, value)
        if lease is not None and lease.kind == PULLED and not lease.orphan:
            held[lease.queue] += 1
    rules = query.queues_of(await query.whole(view, QUEUES))
    return [
        Queue(
            name=queue,
            waiting=waiting[queue],
            due=await _due(view, buckets.get(queue, []), now),
            in_flight=held[queue],
            workers_waiting=waiting_for(queue),
            oldest_due_ms=now - oldest[queue] if queue in buckets else None,
            fair=rules.get(queue, UNSET).fair,
            weights=rules.get(queue, UNSET).weights,
            max_per_key=rules.get(queue, UNSET).per_key,
        )
        for queue in sorted({*waiting, *held, *rules})
    ]


async def _due(view: StoreView, prefixes: Sequence[bytes], now: int) -> int:
    due = 0
    for start in range(0, len(prefixes), READ_AT_ONCE):
        some: list[Range] = [
            (prefix, prefix + b"%015d/" % (now + 1), DUE_COUNTED - due)
            for prefix in prefixes[start : start + READ_AT_ONCE]
        ]
        due += sum(map(len, await view.scan_many(some)))
        if due >= DUE_COUNTED:
            break
    return min(due, DUE_COUNTED)


async def is_counted(view: StoreView) -> bool:
    """Return whether `pending` finds all counts: not in a scheduler of the oldest layout before its activation."""
    meta = await view.get([META_LAYOUT, META_COUNTERS, META_RECOUNT])
    return META_RECOUNT not in meta and layout_of(meta) != OLDEST


async def pending(view: StoreView, prefix: str) -> Pending:
    """Sum the counts of all paths that begin so. A store that cannot answer raises; it never means that none pends."""
    start = path_key(prefix)[: len(PATHS) + PATH_BYTES]
    end, count = after(start), 0
    while True:
        rows = (await view.scan_many([(start, end, PAGE)]))[0]
        count += sum(int(value) for _, value in rows if value.isdigit())
        if len(rows) < PAGE:
            return Pending(count > 0, count)
        start = rows[-1][0] + b"\x00"
