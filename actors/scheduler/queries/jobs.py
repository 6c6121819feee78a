"""Read committed state outside the actor's turns: one job, counts, pools. Lists are in `listing`.

Every answer comes from one snapshot of the store, so it never shows half of a turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tocsin.actors.scheduler.model.asked_by import Pause
from tocsin.actors.scheduler.model.clock import CLOCK
from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.damage import args_fault
from tocsin.actors.scheduler.model.flow_rows import QUEUES, PoolFlow, QueueRow
from tocsin.actors.scheduler.model.job_record import Found
from tocsin.actors.scheduler.model.later_rows import LaterRow, later_key
from tocsin.actors.scheduler.model.line_names import ORIGIN, base_in, level_in
from tocsin.actors.scheduler.model.line_names import whole as whole_line
from tocsin.actors.scheduler.model.moving import rests
from tocsin.actors.scheduler.model.rate_rows import RateRow, cools_until, opens_at, rate_key
from tocsin.actors.scheduler.model.records import Holder, Pool, PoolStatus, Record, pause_of
from tocsin.actors.scheduler.model.rows import (
    INSTANCE,
    META_COUNTERS,
    AtRow,
    BadRow,
    DeadRow,
    InstanceRow,
    JobRow,
    LeaseRow,
    LinesRow,
    PoolRow,
    R,
    args_key,
    at_key,
    bucket_prefix,
    dead_key,
    decode,
    job_key,
    pool_key,
    split_lease_key,
    split_lines_key,
)
from tocsin.actors.scheduler.queries.standing import Buckets, Standing, standing
from tocsin.dispatch.rate import rate_of
from tocsin.storage.api import Range, Row, StoreView, after

POOLS_SHOWN = 1_000
DUE_COUNTED = 10_000
PAGE = 5_000


def read(kind: type[R], key: bytes, value: bytes | None) -> R | None:
    """Decode a row; None if it is missing or unreadable. Only the actor moves an unreadable row aside."""
    if value is None:
        return None
    try:
        return decode(kind, key, value)
    except BadRow:
        return None


def one(key: bytes) -> Range:
    """Return the range of exactly this key."""
    return key, key + b"\x00", 1


# ---- One job -------------------------------------------------------------------------------------


async def get(view: StoreView, job_id: str, now: int) -> Record | None:
    """Return one job as users see it; None if there is no such job."""
    found = await find(view, job_id)
    return None if found is None else found.record(now)


async def find(view: StoreView, job_id: str) -> Found | None:
    """Return the rows of a job; None if there is no such job."""
    lease_prefix = b"lease/%b/" % job_id.encode()
    ranges = [
        one(job_key(job_id)),
        one(at_key(job_id)),
        one(dead_key(job_id)),
        (lease_prefix, after(lease_prefix), 100),
        (args_key(job_id, 0), after(b"args/%b/" % job_id.encode()), 100),
        one(later_key(job_id)),
    ]
    job_rows, at_rows, dead_rows, lease_rows, args_rows, later = await view.scan_many(ranges)
    job = read(JobRow, b"job", job_rows[0][1]) if job_rows else None
    if job is None:
        return None
    whole_args = job.args + b"".join(value for _, value in args_rows)
    found = Found(job, args=whole_args, damaged=args_fault(job, whole_args) is not None)
    found.later = read(LaterRow, later[0][0], later[0][1]) if later else None
    attach(found, dict([*at_rows, *dead_rows]), lease_rows)
    return found


def attach(found: Found, rows: Mapping[bytes, bytes], leases: Sequence[Row]) -> None:
    """Add the rows that say where the job stands."""
    job_id = found.job.id
    found.at = read(AtRow, at_key(job_id), rows.get(at_key(job_id)))
    found.dead = read(DeadRow, dead_key(job_id), rows.get(dead_key(job_id)))
    for key, value in leases:
        lease = read(LeaseRow, key, value)
        if lease is not None and lease.incarnation == found.job.incarnation:
            found.leases.append((split_lease_key(key)[1], lease))


# ---- Counts --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Counts:
    """The counts of `/status` from the store."""

    backlog: int
    in_flight: int
    dead: int
    due: int
    oldest_due_ms: int | None
    pools: list[PoolStatus]
    more_pools: bool
    retired: int
    paused: bool
    pause: Pause | None
    summary: Summary


@dataclass(frozen=True, slots=True)
class Summary:
    """The summaries of one scheduler. No job is read for them."""

    counters: Counters
    instance: InstanceRow
    buckets: Buckets
    pools: Mapping[str, PoolRow]
    leases: Sequence[LeaseRow]
    has_test_clock: bool
    rates: Mapping[str, RateRow]
    queues: Mapping[str, QueueRow]

    @property
    def suspects(self) -> int:
        """Count the jobs that wait and are kept apart from others."""
        return sum(waiting for (_, line, _), (waiting, _) in self.buckets.items() if level_in(line))

    def standing(self, now: int, wall: int) -> Standing:
        """Say what waits that should not. `now` is the instance's time: a test clock's stands apart from `wall`."""
        return standing(
            self.buckets, self.pools, self.leases, now, wall, paused=rests(self.instance),
            is_test_clock=self.has_test_clock, rates=self.rates, queues=self.queues,
        )  # fmt: skip


async def summary(view: StoreView) -> Summary:
    """Read the counters, lines, pools and leases of a scheduler."""
    summaries = [
        one(META_COUNTERS),
        one(INSTANCE),
        one(CLOCK),
        *((prefix, after(prefix), PAGE) for prefix in (b"lines/", b"pool/", b"lease/", b"rate/", QUEUES)),
    ]
    counter_rows, instance_rows, clock_rows, lines, pools, leases, rates, queues = await view.scan_many(summaries)
    lines += await _rest(view, b"lines/", lines)
    pools += await _rest(view, b"pool/", pools)
    leases += await _rest(view, b"lease/", leases)
    rates += await _rest(view, b"rate/", rates)
    queues += await _rest(view, QUEUES, queues)
    return Summary(
        read(Counters, META_COUNTERS, counter_rows[0][1] if counter_rows else None) or Counters(),
        instance_row(instance_rows),
        buckets_of(lines),
        {key[5:].decode(): pool for key, value in pools if (pool := read(PoolRow, key, value)) is not None},
        [lease for key, value in leases if (lease := read(LeaseRow, key, value)) is not None],
        bool(clock_rows),
        {key[5:].decode(): rate for key, value in rates if (rate := read(RateRow, key, value)) is not None},
        queues_of(queues),
    )


def queues_of(rows: Sequence[Row]) -> Mapping[str, QueueRow]:
    """Return what operators have said of queues, by name."""
    return {
        key[len(QUEUES) :].decode(): queue for key, value in rows if (queue := read(QueueRow, key, value)) is not None
    }


async def counts(view: StoreView, now: int) -> Counts:
    """Count from counters and line summaries. No job is read; of due jobs up to 10,000 keys are."""
    found = await summary(view)
    due, oldest = await due_in(view, found.buckets, now)
    shown, more = _pools(found)
    counters = found.counters
    return Counts(
        counters.waiting, counters.leased, counters.dead, due, oldest, shown, more, counters.retired,
        paused=found.instance.paused, pause=found.instance.pause, summary=found,
    )  # fmt: skip


def buckets_of(lines: Sequence[Row]) -> Buckets:
    """Return for each pool, queue and priority how many wait, and the first due instant."""
    return {
        (*split_lines_key(key), priority): bucket
        for key, value in lines
        if (row := read(LinesRow, key, value)) is not None
        for priority, bucket in row.buckets.items()
    }


async def due_callbacks(view: StoreView, until: int, origin: str = "") -> int:
    """Count the callbacks to an origin that are due by then or on their way, up to a bound."""
    families = (b"lines/", b"lease/")
    lines, leases = await view.scan_many([(prefix, after(prefix), PAGE) for prefix in families])
    base = ORIGIN + origin if origin else ""
    waiting = {name: bucket for name, bucket in buckets_of(lines).items() if base_in(name[1]) == base}
    rows = (read(LeaseRow, key, value) for key, value in leases)
    sent = sum(row is not None and row.kind == "fired" and row.origin == origin for row in rows)
    return min((await due_in(view, waiting, until))[0] + sent, DUE_COUNTED)


async def due_by_line(view: StoreView, lines: Sequence[Row], now: int) -> Counter[tuple[str, str]]:
    """Count the due jobs of each pool and queue that has any, each up to a bound; lines of shard keys are one."""
    due: dict[tuple[str, str], dict[tuple[str, str, int], tuple[int, int]]] = {}
    for name, bucket in buckets_of(lines).items():
        if bucket[0] and bucket[1] <= now:
            due.setdefault((name[0], whole_line(name[1])), {})[name] = bucket
    return Counter({name: (await due_in(view, buckets, now))[0] for name, buckets in due.items()})


def instance_row(rows: Sequence[Row]) -> InstanceRow:
    """Decode the instance's own row; the defaults if it has none."""
    return (read(InstanceRow, INSTANCE, rows[0][1]) if rows else None) or InstanceRow()


async def whole(view: StoreView, prefix: bytes) -> list[Row]:
    """Read every row of a family, a page at a time."""
    first = await view.scan(prefix, after(prefix), limit=PAGE)
    return [*first, *await _rest(view, prefix, first)]


async def _rest(view: StoreView, prefix: bytes, first: Sequence[Row]) -> list[Row]:
    """Read the pages behind the first one."""
    more: list[Row] = []
    page = first
    while len(page) == PAGE:
        page = await view.scan(page[-1][0] + b"\x00", after(prefix), limit=PAGE)
        more.extend(page)
    return more


async def due_in(view: StoreView, buckets: Buckets, now: int) -> tuple[int, int | None]:
    """Count the jobs that are due, up to a bound, and say for how long the first of them has been."""
    ripe = [(name, bucket) for name, bucket in buckets.items() if bucket[1] <= now and bucket[0]]
    if not ripe:
        return 0, None
    oldest = now - min(first for _, (_, first) in ripe)
    due = 0
    for start in range(0, len(ripe), 256):
        ranges = [
            (prefix, prefix + b"%015d/" % (now + 1), min(waiting, DUE_COUNTED))
            for name, (waiting, _) in ripe[start : start + 256]
            for prefix in [bucket_prefix(*name)]
        ]
        due += sum(len(rows) for rows in await view.scan_many(ranges))
        if due >= DUE_COUNTED:
            return DUE_COUNTED, oldest
    return due, oldest


def _pools(found: Summary) -> tuple[list[PoolStatus], bool]:
    """Return the pools with the longest lines, and whether there are more than are shown."""
    queued: Counter[str] = Counter()
    for (pool, _, _), (waiting, _) in found.buckets.items():
        queued[pool] += waiting
    held = Counter(lease.pool for lease in found.leases)
    known = found.pools
    names = {name for name in (*queued, *held, *known) if name}
    longest = sorted(names, key=lambda name: (-queued[name], name))
    shown = [
        PoolStatus(
            name,
            held[name],
            row.cap if row else 1,
            queued[name],
            row.paused if row else False,
            rate=rate_of(row.flow.rate) if row and row.flow else None,
            cooling_until=cools_until(row.flow, found.rates.get(name)) or None if row else None,
        )
        for name in longest[:POOLS_SHOWN]
        for row in [known.get(name)]
    ]
    return shown, len(longest) > POOLS_SHOWN


# ---- Pools ---------------------------------------------------------------------------------------

HOLDERS_SHOWN = 1_000


async def pool(view: StoreView, name: str, now: int) -> Pool:
    """Return one pool, from its lines and leases. `now` is the instance's time."""
    prefix = b"lines/%b/" % name.encode()
    rows, lines, leases, rates = await view.scan_many(
        [one(pool_key(name)), (prefix, after(prefix), PAGE), (b"lease/", after(b"lease/"), PAGE), one(rate_key(name))]
    )
    lines += await _rest(view, prefix, lines)
    leases += await _rest(view, b"lease/", leases)
    row = (read(PoolRow, rows[0][0], rows[0][1]) if rows else None) or PoolRow(1)
    queued = sum(
        count
        for key, value in lines
        if (line := read(LinesRow, key, value)) is not None
        for count, _ in line.buckets.values()
    )
    held = [
        Holder(split_lease_key(key)[0], lease.kind, lease.until, lease.orphan)
        for key, value in leases
        if (lease := read(LeaseRow, key, value)) is not None and lease.pool == name
    ]
    known = bool(rows or lines or held)
    at, by = pause_of(row.pause)
    flow = PoolFlow() if row.flow is None else row.flow
    rate = read(RateRow, rates[0][0], rates[0][1]) if rates else None
    cools, opens = cools_until(row.flow, rate), opens_at(row.flow, rate)
    return Pool(
        name, len(held), row.cap, queued, row.paused, held[:HOLDERS_SHOWN], known=known, paused_at=at, paused_by=by,
        rate=rate_of(flow.rate), cool_on_retry_after=flow.cool, cooling_until=cools if cools > now else None,
        next_token_at=opens if opens > now and opens != cools else None, fair=flow.fair, weights=flow.weights,
        max_per_key=flow.per_key,
    )  # fmt: skip
