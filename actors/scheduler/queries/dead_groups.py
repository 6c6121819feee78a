"""Group dead letters by reason and path, from their index, the newest first."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from tocsin.actors.scheduler.model.audit_records import DeadGroup, DeadGroups
from tocsin.actors.scheduler.model.rows import DeadRow, ParkedRow, dead_key, split_line_tail
from tocsin.actors.scheduler.queries.jobs import read
from tocsin.storage.api import StoreView, after

PAGE: Final = 2_000
LOOKED_AT: Final = 100_000
SHOWN: Final = 200


@dataclass(slots=True)
class _Group:
    newest: int
    sample: str
    oldest: int = 0
    count: int = 0


async def groups(view: StoreView) -> DeadGroups:
    """Look at the newest 100,000 letters, and return the 200 largest groups. Each page of the index lets others run."""
    found: dict[tuple[str, str], _Group] = {}
    end, looked = after(b"parked/"), 0
    while looked < LOOKED_AT:
        rows = await view.scan(b"parked/", end, limit=PAGE, reverse=True)
        for key, value in rows:
            letter = read(ParkedRow, key, value)
            if letter is None:
                continue
            parked_at, job_id = split_line_tail(key)
            group = found.setdefault((letter.reason, letter.path), _Group(parked_at, job_id))
            group.oldest, group.count = parked_at, group.count + 1
        looked += len(rows)
        if len(rows) < PAGE:
            break
        end = rows[-1][0]
        await asyncio.sleep(0)
    more = looked >= LOOKED_AT and bool(await view.scan(b"parked/", end, limit=1))
    largest = sorted(found.items(), key=lambda one: (-one[1].count, one[0]))[:SHOWN]
    letters = await view.get([dead_key(group.sample) for _, group in largest])
    shown: list[DeadGroup] = []
    for (reason, path), group in largest:
        key = dead_key(group.sample)
        dead = read(DeadRow, key, letters.get(key))
        error = dead.at.last_error if dead is not None else None
        message, status = error.message if error is not None else None, dead.status if dead is not None else None
        one = DeadGroup(reason, path, group.count, group.oldest, group.newest, group.sample, message, status)
        shown.append(one)
    return DeadGroups(shown, more or len(found) > SHOWN)
