"""Numbers of a shared store, and taking slots away by hand: for the eyes and the hands of an operator."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.storage.ownership.engine import HostState, SharedEngine
from tocsin.storage.shared import HostFacts, StoreFacts


async def facts_of(engine: SharedEngine, host: str, beat_ms: int) -> StoreFacts:
    """Read who has what, and what waits, as this host sees it."""
    hosts, slots, backlogs = await engine.hosts(), await engine.slots(), await engine.backlogs()
    owned = dict.fromkeys((row.host for row in hosts if row.state is not HostState.DEAD), 0)
    for row in slots:
        if row.owner in owned:
            owned[row.owner] += 1
    return StoreFacts(
        host=host,
        hosts=[
            HostFacts(
                row.host, row.name, row.url, row.state.value, row.lease_left_ms, owned.get(row.host, 0), row.weight
            )
            for row in hosts
        ],
        unowned=len(slots) - sum(owned.values()),
        mail=sum(one.count for one in backlogs),
        oldest_mail_ms=max((one.oldest_ms for one in backlogs), default=0),
        beat_ms=beat_ms,
    )


async def release_from_all(engine: SharedEngine, slots: Sequence[int]) -> list[int]:
    """Leave slots without an owner, whoever that is; return which had one."""
    wanted, released = frozenset(slots), list[int]()
    by_owner: dict[str, list[int]] = {}
    for row in await engine.slots():
        if row.slot in wanted and row.owner is not None:
            by_owner.setdefault(row.owner, []).append(row.slot)
    for owner, theirs in by_owner.items():
        released += [row.slot for row in await engine.release(theirs, owner)]
    return sorted(released)
