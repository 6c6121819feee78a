"""Report rows outside the known families, written by a newer tocsin or another program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tocsin.actors.scheduler.integrity.findings import shown
from tocsin.actors.scheduler.model.row_kinds import BAD, FAMILIES, SINGLE
from tocsin.actors.scheduler.model.rows import META_LAYOUT, META_RECOUNT, META_SLOT, META_ZONES
from tocsin.actors.scheduler.state.labels import META_LABELS
from tocsin.storage.api import after

if TYPE_CHECKING:
    from tocsin.actors.scheduler.integrity.invariants_of_jobs import Look


async def name_unknown(look: Look) -> None:
    """Report rows between the families, with one read if there are none."""
    if look.only_families or not any(await look.view.scan_many([(start, end, 1) for start, end in GAPS])):
        return
    for start, end in GAPS:
        async for page in look.rows(start, end):
            for key, _ in page:
                look.found.add("UNKNOWN_ROW", shown(key), f"a row of no known kind: {shown(key)}")


def _gaps() -> list[tuple[bytes, bytes]]:
    known = [(family + b"/", after(family + b"/")) for family in FAMILIES]
    known += [
        (BAD, after(BAD)),
        *((key, key + b"\x00") for key in (*SINGLE, META_LAYOUT, META_RECOUNT, META_LABELS, META_SLOT, META_ZONES)),
    ]
    known.sort()
    starts, ends = [b"\x01", *(end for _, end in known)], [*(start for start, _ in known), b"\xff"]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


GAPS = _gaps()
